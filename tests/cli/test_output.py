"""Results on stdout, notes on stderr."""

import io
import json
import sys

import numpy as np
import pytest

from tidybert.cli.output import note, print_json, print_table


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
    print_table({"text": "left", "[count]": "right"}, [(long, "12"), ("[b]no markup[/b]", "3")])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= min(80, int(columns))
    assert all(word in out for word in [*long.split(), "[count]"])
    assert "[b]no markup[/b]" in " ".join(out.split())
