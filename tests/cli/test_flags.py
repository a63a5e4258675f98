"""Flags made from dataclasses: one a field, with its default and its help."""

import contextlib
import re
import shlex
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tidybert.cli import flags, main
from tidybert.cli.commands.training import Finetune
from tidybert.cli.flags import PANELS
from tidybert.cli.flags import command as declare
from tidybert.cli.main import run as shell
from tidybert.files.reading import ReadOptions
from tidybert.options import declared, helps, option
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.tasks.task_options import TaskOptions
from tidybert.training.training_arguments import TrainingArguments


@pytest.mark.parametrize("group", [ReadOptions, TrainingArguments])
def test_every_field_has_a_flag_and_a_help_text(group: type, capsys) -> None:
    assert shell(["finetune", "--help"]) == 0

    shown = capsys.readouterr().out
    found = helps(group)
    for each in fields(group):
        assert "--" + each.name.replace("_", "-") in shown
        assert found[each.name]
        assert "``" not in found[each.name]


def test_a_field_without_a_text_of_its_own_takes_the_next() -> None:
    class Group:
        first: int = 1
        second: int = 2
        """``--second``: both of them"""

    assert helps(Group) == {"first": "Both of them", "second": "Both of them"}


def test_a_value_that_begins_a_help_text_is_shown_as_it_is_typed() -> None:
    class Group:
        first: str = "bert"
        """``bert``, or ``fast``, whichever."""

    assert helps(Group) == {"first": "bert, or fast, whichever."}


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
    first = main.program().commands[command].callback.first_flags
    assert len(first) == 10
    assert shown["Most used"] == ["--" + name.replace("_", "-") for name in first]
    flags = [flag for panel in shown.values() for flag in panel]
    assert len(flags) == len(set(flags))
    assert {"--device"} <= {*shown["Most used"], *shown.get("Device", [])}
    assert set(shown["Other options"]) <= {"--json", "--quiet", "--verbose", "--help"}


@pytest.mark.parametrize(
    "group",
    [
        ReadOptions,
        TaskOptions,
        Finetune,
        TrainingArguments,
        InstanceOptions,
        MaskingOptions,
        PretrainingArguments,
    ],
)
def test_every_panel_is_known(group: type) -> None:
    assert {group.PANEL, *(declared(each).panel or group.PANEL for each in fields(group))} <= {
        *PANELS
    }


def test_every_line_of_help_is_short() -> None:
    group = main.program()
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        for parameter in command.params:
            words = (getattr(parameter, "help", None) or "").split()
            assert len(words) < 25, (name, parameter.name)


def test_a_text_may_declare_the_flag_and_its_metavar(monkeypatch, capsys) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Shared:
        number: int = option(1, at_least=1)
        """A number."""

    class Own(Shared):
        """What it does."""

        train: str
        """``--train FILE``: a file."""
        quick: bool = False
        """``--quick``: without pause."""

        def run(self) -> None:
            print(self)

    monkeypatch.setattr(flags, "app", app := typer.Typer(rich_markup_mode=None))
    declare("own")(Own)
    flags.register("own")
    for words in (["--train", "a", "--number", "2", "--quick"], ["--train", "a", "--number", "0"]):
        with contextlib.suppress(SystemExit, Exception):
            typer.main.get_command(app).main(words, standalone_mode=False)
    with contextlib.suppress(SystemExit):
        app(["--help"])

    out = capsys.readouterr().out
    assert out.count("Own(") == 1
    assert "Own(number=2, train='a', quick=True)" in out
    assert "--train FILE" in out
    assert "x>=1" in out
    assert "--no-quick" not in out
    assert out.index("--train FILE") < out.index("--number")


def test_a_model_is_named_by_its_place_or_by_a_flag_whichever_the_help_shows(
    tiny_model: Path, tiny_run: Path, tmp_path: Path, capsys
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "red,colour\ncat,animal\n" * 12)
    model, run = str(tiny_model), str(tiny_run)
    told: dict[str, list[str]] = {}
    for first, second in (
        (["tokenize", model, "red"], ["tokenize", "--model", model, "red"]),
        (["predict", run, str(file)], ["predict", str(file), f"--model={run}"]),
        (["duplicates", str(file), "--model", model], ["duplicates", model, str(file)]),
    ):
        for words in (first, second):
            assert shell(words) == 0, words
            told.setdefault(first[0], []).append(capsys.readouterr().out)
    assert all(one == other != "" for one, other in told.values())
    assert shell(["serve", "--model=nobody"]) == 1
    assert "is named 'nobody'" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_model_is_told(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mails.csv"
    file.write_text("text,label\nred,colour\n")

    assert shell(["finetune", "classify", str(file), "--out", str(tmp_path / "run")]) == 2
    assert f"give the file as --train {file}" in capsys.readouterr().err
    assert shell(["predict", str(file), str(file)]) == 1
    assert f"'{file}' is a file in the place of a MODEL" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "inspect x --max-seq-length 70000",
            "--max-seq-length is 70000; expected a number of at most 65,536",
        ),
        ("finetune classify x --train x --out x --seeds 1000000000", "Invalid value for '--seeds'"),
        ("finetune classify x --train x --out x --save-total-limit 0", "expected a number above 0"),
        ("pretrain x --data x --out x --save-total-limit 0", "expected a number above 0"),
        ("pretrain x --data x --out ''", "expected a path, not an empty text"),
        ("build-corpus x --vocab x --out=", "expected a path, not an empty text"),
        ("predict x x --out ''", "expected a path, not an empty text"),
    ],
)
def test_wrong_usage_is_told_before_any_work(words: str, message: str, capsys) -> None:
    assert shell(shlex.split(words)) == 2

    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["pretrain"])
def test_torchrun_hands_every_flag_on(command: str) -> None:
    """torchrun takes an abbreviation of two of its own flags for an error."""
    from torch.distributed.run import get_args_parser

    main.program(command)
    (found,) = [each for each in main.app.registered_commands if each.name == command]
    names = typer.main.get_params_from_function(found.callback)
    flags = ["--" + name.replace("_", "-") for name in names if name != "model"]
    given = ["--nproc-per-node", "2", "-m", "tidybert", command, "mini", *flags]

    read = get_args_parser().parse_args(given)

    assert read.training_script_args == given[4:]
    if sys.version_info < (3, 14):
        # Later versions hand all of them on.
        with pytest.raises(SystemExit):
            get_args_parser().parse_args([*given, "--start"])
