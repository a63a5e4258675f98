"""Flags made from dataclasses: one a field, with its default and its help."""

import importlib
import re
from dataclasses import fields

import pytest
import typer
from typer.core import TyperGroup

from tidybert.cli import main
from tidybert.cli.flags import PANELS, field_helps
from tidybert.cli.main import run as shell
from tidybert.files.read_options import ReadOptions
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.training.training_arguments import TrainingArguments


@pytest.mark.parametrize("group", [ReadOptions, TrainingArguments])
def test_every_field_has_a_flag_and_a_help_text(group: type, capsys) -> None:
    assert shell(["finetune", "--help"]) == 0

    shown = capsys.readouterr().out
    helps = field_helps(group)
    for field in fields(group):
        assert "--" + field.name.replace("_", "-") in shown
        assert helps[field.name]
        assert "``" not in helps[field.name]


def test_a_field_without_a_text_of_its_own_takes_the_next() -> None:
    class Group:
        first: int = 1
        second: int = 2
        """``--second``: both of them"""

    assert field_helps(Group) == {"first": "Both of them", "second": "Both of them"}


def test_a_value_that_begins_a_help_text_is_shown_as_it_is_typed() -> None:
    class Group:
        first: str = "bert"
        """``bert``, or ``fast``, whichever."""

    assert field_helps(Group) == {"first": "bert, or fast, whichever."}


def sections(command: str, capsys) -> dict[str, list[str]]:
    """The flags in each section of a command's help."""
    assert shell([command, "--help"]) == 0
    found: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if re.fullmatch(r"\w[\w ]+:", line):
            flags = found.setdefault(line.removesuffix(":"), [])
        elif line.startswith("  -"):
            flags.append(next(word for word in line.split() if word.startswith("--")))
    return found


@pytest.mark.parametrize("command", ["finetune", "pretrain", "embed"])
def test_help_shows_ten_flags_first_and_the_others_in_panels(command: str, capsys) -> None:
    shown = sections(command, capsys)

    assert list(shown) == [title for title in PANELS if title in shown]
    first = importlib.import_module(f"tidybert.cli.{command}").MOST_USED
    assert len(first) == 10
    assert shown["Most used"] == ["--" + name.replace("_", "-") for name in first]
    flags = [flag for panel in shown.values() for flag in panel]
    assert len(flags) == len(set(flags))
    assert {"--device"} <= {*shown["Most used"], *shown.get("Device", [])}
    assert set(shown["Other options"]) <= {"--json", "--help"}


@pytest.mark.parametrize(
    "group",
    [
        ReadOptions,
        TrainingArguments,
        InstanceOptions,
        MaskingOptions,
        PretrainingArguments,
    ],
)
def test_every_panel_names_fields_and_is_known(group: type) -> None:
    names = {each.name for each in fields(group)}
    others = getattr(group, "PANELS", {})

    assert group.PANEL in PANELS
    assert set(others) <= set(PANELS)
    in_others = [field for panel in others.values() for field in panel]
    assert set(in_others) <= names
    assert len(in_others) == len(set(in_others))


def test_every_line_of_help_is_short() -> None:
    group = typer.main.get_command(main.app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        for parameter in command.params:
            words = (getattr(parameter, "help", None) or "").split()
            assert len(words) <= 40, (name, parameter.name)
