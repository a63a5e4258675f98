"""One message, spelt for the shell and for Python."""

import doctest
import pickle
import textwrap
from pathlib import Path

import pytest

from tidybert import errors
from tidybert.errors import LINE, TidyBertError, UsageError, in_python, in_shell, param, suggestion


@pytest.mark.parametrize(
    ("marked", "shell", "python"),
    [
        (param("max_seq_length"), "--max-seq-length", "max_seq_length"),
        (param("max_seq_length", 128), "--max-seq-length 128", "max_seq_length=128"),
        (param("learning_rate", 1e-05), "--learning-rate 1e-05", "learning_rate=1e-05"),
        (param("layers", -1), "--layers -1", "layers=-1"),
        (param("format", "json"), "--format json", "format='json'"),
        (param("threshold", "1e"), "--threshold 1e", "threshold='1e'"),
        (param("out", Path("a b.npy")), "--out 'a b.npy'", "out='a b.npy'"),
        (param("header", True), "--header", "header=True"),
        (param("header", False), "--no-header", "header=False"),
        (f"{LINE} 3", "line 3", "line 3"),
        (f"{LINE}s 3, 7 and {param('dev')}", "lines 3, 7 and --dev", "lines 3, 7 and dev"),
        ("no parameter, 100%", "no parameter, 100%", "no parameter, 100%"),
    ],
)
def test_each_face_spells_a_parameter_its_own_way(marked: str, shell: str, python: str) -> None:
    assert in_shell(f"give {marked}.") == f"give {shell}."
    assert in_python(f"give {marked}.") == f"give {python}."


def test_python_may_name_rows_otherwise() -> None:
    assert in_python(f"{LINE}s 3, 7", rows="position") == "positions 3, 7"


def test_an_error_is_in_pythons_words_and_keeps_its_marks() -> None:
    error = UsageError(f"{param('epochs', 0)}: expected at least 1")

    assert str(error) == "epochs=0: expected at least 1"
    assert in_shell(error.message) == "--epochs 0: expected at least 1"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(TidyBertError()) == ""


def test_an_error_that_quotes_another_is_spelt_as_a_whole() -> None:
    inner = UsageError(f"{param('top_k')} is 0")
    outer = UsageError(f"FILE: {inner.message}; see {param('among')}")

    assert str(outer) == "FILE: top_k is 0; see among"
    assert in_shell(outer.message) == "FILE: --top-k is 0; see --among"


def test_a_message_that_was_wrapped_before_it_is_spelt_keeps_its_width() -> None:
    message = " ".join([f"{LINE} 3 needs {param('max_seq_length', 128)} or {param('dev')};"] * 9)

    lines = in_shell(textwrap.fill(message, 80)).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines) == in_shell(message)


def test_a_parameter_broken_over_two_lines_is_still_one() -> None:
    broken = textwrap.fill(f"expected {param('format', 'a b c d')}", 14)

    assert "\n" in broken
    assert in_shell(broken).split() == ["expected", "--format", "'a", "b", "c", "d'"]


def test_a_suggestion_is_the_closest_name() -> None:
    assert suggestion("minni", ["mini", "tiny"]) == "; did you mean 'mini'?"
    assert suggestion("xyz", ["mini", "tiny"]) == ""


def test_the_examples_in_docstrings_run() -> None:
    assert doctest.testmod(errors) == doctest.TestResults(failed=0, attempted=2)


def test_a_long_line_of_a_message_loses_its_middle_and_keeps_its_advice() -> None:
    wanted = UsageError(
        f"{param('task')} is {['a text'] * 9000!r}; give {param('task', 'tag')}\nand a line"
    )
    first, second = str(wanted).splitlines()
    assert len(first) < 900
    assert first.startswith("task is ['a text',")
    assert first.endswith("; give task='tag'")
    assert second == "and a line"
    assert "--task tag" in in_shell(wanted.message)
    # A parameter that is cut is left out whole.
    broken = UsageError("x" * 398 + param("layers", "y" * 5000) + "z" * 10)
    assert in_shell(broken.message) == "x" * 398 + " … " + "z" * 10
