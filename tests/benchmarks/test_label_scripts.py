"""The scripts on labels, on the toy problem: a table with every column, and nothing done twice."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.checking import out_of_fold


@pytest.mark.parametrize(
    ("name", "flags", "cells"),
    [
        ("label_errors", ["--size", "40"], 11),
        ("suggested_labels", ["--pool", "30", "--start", "10", "--step", "5", "--rounds", "1"], 4),
    ],
)
def test_a_script_measures_once_and_writes_its_table(
    name: str,
    flags: list[str],
    cells: int,
    script: Callable[[str], ModuleType],
    run_script: Callable[..., None],
    toy_examples: Callable[..., list[Any]],
    page: Callable[[str], Path],
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    module, out = script(name), tmp_path / "out.jsonl"
    monkeypatch.setattr(out_of_fold, "FOLDS", 2)
    monkeypatch.setattr(module, "DATA_SETS", ("toy",))
    monkeypatch.setattr(module, "examples_of", lambda _name, _part: toy_examples(40))
    shown = page(name.replace("_", "-"))
    words = [name, "--model", tiny_model, "--seeds", "1", *flags, "--out", out, "--write", shown]

    run_script(*words)
    first = out.read_text()
    run_script(*words)

    assert out.read_text() == first
    row = next(line for line in shown.read_text().splitlines() if line.startswith("| toy"))
    assert len(row.split("|")) == cells + 2
    for line in map(json.loads, first.splitlines()):
        shares = line["precision"].values() if name == "label_errors" else line["curve"]
        assert all(0 <= share <= 1 for share in shares)
