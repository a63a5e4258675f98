"""Entities: a tiny model of toy data is trained, and each score and setting has its row."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.scores import entities
from tidybert.metrics.entity_scores import Entity
from tidybert.tasks.task_options import TagOptions


@pytest.mark.filterwarnings("ignore::tidybert.errors.DataWarning")
def test_each_setting_is_a_row(
    run_script: Callable[..., int],
    toy_data: Path,
    tiny_model: Path,
    page: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = toy_data / "ner" / "conll2003"
    (folder / "dev.txt").write_text((folder / "train.txt").read_text())
    settings = {"as trained": TagOptions(), "recall": TagOptions(min_recall=0.5)}
    monkeypatch.setattr(
        entities, "SETTINGS", settings | {"of": TagOptions(min_recall="ANIMAL=0.5")}
    )
    monkeypatch.setattr(entities, "PERSONS", ("as trained", "of"))
    monkeypatch.setattr(entities, "PERSON", "ANIMAL")
    given = (
        "--model",
        tiny_model,
        "--out",
        tmp_path / "out.jsonl",
        "--trials",
        2,
        "--max-seq-length",
        16,
    )

    assert run_script("entities", *given, "--write", page("entities")) == 0

    lines = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [each["setting"] for each in lines if "setting" in each] == [
        *("as trained", "as trained", "recall", "of"),
    ]
    found = lines[3]
    assert 0 <= found["test"]["recall"] <= found["test"]["gone"] <= 1
    assert sum("trial" in each for each in lines) == 4
    rows = [each for each in (tmp_path / "page.md").read_text().splitlines() if each[:2] == "| "]
    assert len(rows) == 1 + len(entities.SCORES) + 1 + 4
    assert rows[-1].startswith("| of | persons | ")
    # The RUN is kept, and not trained again.
    assert run_script("entities", *given) == 0


def test_a_word_is_gone_where_an_entity_covers_it() -> None:
    example = entities.TaggedExample(("a", "b", "c", "d"), ("B-X", "I-X", "O", "B-X"), 1)
    given = [(Entity("X", 1, 3), 0.5), (Entity("X", 0, 1), 0.5)]
    answers: Any = SimpleNamespace(
        examples=[example], found=[given], metrics=lambda: {"recall": 0.0, "precision": 0.0}
    )

    measured = entities.found_of(answers, None)

    # Of (a b) and (d) the first is covered by two that are wrong, and so is c.
    assert (measured["gone"], measured["others_gone"]) == (0.5, 1.0)
