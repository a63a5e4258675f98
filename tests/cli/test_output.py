"""Results on stdout, notes on stderr."""

import ast
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tidybert import cli
from tidybert.cli.output import note, print_json, print_line, print_table


def test_a_note_goes_to_stderr(capsys) -> None:
    note("loaded")
    assert capsys.readouterr() == ("", "loaded\n")


def test_json_is_one_line_of_plain_values(capsys) -> None:
    print_json(
        {
            "text": "café ☕",
            "f1": np.float32(0.5),
            "counts": np.array([[1, 2], [3, 4]]),
            "matthews": float("nan"),
            "scores": ({"a": np.float64("inf")}, None, True),
        }
    )
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "café ☕" in out
    assert json.loads(out) == {
        "text": "café ☕",
        "f1": 0.5,
        "counts": [[1, 2], [3, 4]],
        "matthews": None,
        "scores": [{"a": None}, None, True],
    }


def test_json_is_valid_where_stdout_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    print_json({"text": "☕"})
    sys.stdout.flush()
    assert json.loads(raw.getvalue()) == {"text": "☕"}


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_a_table_is_no_wider_than_80_and_loses_nothing(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    long = " ".join(f"word{number}" for number in range(40))
    print_table({"text": "", "[count]": ","}, [(long, 12), ("[b]no markup[/b]", 3)])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= min(80, int(columns))
    assert all(word in out for word in [*long.split(), "[count]"])
    assert "[b]no markup[/b]" in " ".join(out.split())


def test_escapes_of_files_and_users_are_shown_and_not_sent(capsys) -> None:
    evil = "\x1b[2J\x9b31m\u202elabel"
    note(f"error: {evil} is there already")
    print_line(evil)
    print_table({evil: "", "n": ","}, [(evil, "1")], title=evil)
    print_json({evil: evil})

    out, err = capsys.readouterr()
    assert not {"\x1b", "\x9b", "\u202e"}.intersection(out + err)
    assert err.count("\\x1b[2J\\x9b31m\\u202elabel") == 1
    assert out.count("\\x1b[2J\\x9b31m\\u202elabel") == 4
    assert json.loads(out.splitlines()[-1]) == {evil: evil}


def test_output_is_the_one_place_that_prints() -> None:
    for path in Path(cli.__file__).parent.glob("*.py"):
        if path.name in ("output.py", "main.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_print = isinstance(node, ast.Name) and node.id == "print"
            assert not is_print, f"{path}: print_line shows control characters, print sends them"
