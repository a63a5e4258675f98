"""Classes by their names: each label of the data has a sentence, and the table has a row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import datasets
from benchmarks.scores import no_labels
from tidybert.files.text_examples import TextExample


def test_each_label_has_a_name_and_a_sentence(real_data: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TIDYBERT_DATA", str(real_data))
    for data in no_labels.SETS:
        names, sentences = no_labels.classes_of(data)

        assert names.keys() == {one.label for one in datasets.examples_of(data, "dev")}
        assert sentences.keys() == set(names.values())


def test_each_way_is_a_cell(
    run_script: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    texts = [TextExample(text, None, "billing", 1) for text in ("my bill", "the invoice")]
    monkeypatch.setattr(datasets, "examples_of", lambda _name, _part: texts)
    given = ("--data", "tickets", "--models", "tidybert-small", "--out", tmp_path / "out.jsonl")

    assert run_script("no_labels", *given) == 0

    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| tickets")]
    assert row.startswith("| tickets | 3 | 100.0, 0.")
