"""Flags made from dataclasses: one a field, with its default and its help."""

from dataclasses import fields

import pytest

from tidybert.cli.flags import field_helps
from tidybert.cli.main import run as shell
from tidybert.files.read_options import ReadOptions
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
