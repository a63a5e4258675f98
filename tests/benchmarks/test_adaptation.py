"""Books read, and passages of other books told apart: the parts, and a run on a small scale."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.timing import finetuning_speed as finetuning
from tidybert.timing.work import FinetuningWork


@pytest.fixture
def adaptation(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("adaptation")


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Twelve books of six authors, one of them too old and one without a year of our era."""
    years = ["1800", "1900", "1850", "1950", "1889", "1890", "1600", "441 BC"] + ["1920"] * 4
    texts = []
    for number, year in enumerate(years):
        paragraphs = [f"the red cat is near the old dog {number} {n} . " * 9 for n in range(40)]
        head = f"Title: Book {number}\nAuthor: Author {number // 2}\nYear: {year}\n"
        texts.append(head + "\n".join(paragraphs))
    path = tmp_path / "books.txt"
    path.write_text("\n\n".join(texts) + "\n")
    return path


def test_passages_are_parted_by_author_and_labelled_by_year(
    adaptation: ModuleType, books: Path, tmp_path: Path
) -> None:
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    adaptation.write_passages(books, train, dev)
    number_of: dict[str, Counter[str]] = {}
    labels = {}
    for path in (train, dev):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        number_of[path.name] = Counter(line["text"].split()[8] for line in lines)
        labels |= {line["text"].split()[8]: line["label"] for line in lines}
        assert {len(line["text"].split()) for line in lines} == {adaptation.NUM_WORDS}
        assert len({line["text"] for line in lines}) == len(lines)
    # Authors 0, 1, 2, 4, 5 have books that are young enough; the third of them is held out.
    assert set(number_of["dev.jsonl"]) == {"4", "5"}
    assert set(number_of["train.jsonl"]) == {"0", "1", "2", "3", "8", "9", "10", "11"}
    assert set(number_of["train.jsonl"].values()) == {adaptation.NUM_PASSAGES}
    assert {book for book, label in labels.items() if label == "before"} == {"0", "2", "4"}


def test_items_are_spread_evenly(adaptation: ModuleType) -> None:
    assert adaptation.spread("abcdefgh", 4) == ["a", "c", "e", "g"]
    assert adaptation.spread("abc", 4) == ["a", "b", "c"]


def test_a_model_before_and_after_reading(
    adaptation: ModuleType,
    run_script: Callable[..., None],
    page: Callable[[str], Path],
    books: Path,
    pretrained_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys,
) -> None:
    works: list[FinetuningWork] = []

    def measure_here(side: str, work: FinetuningWork) -> dict[str, Any]:
        works.append(work)
        return {**finetuning._run(side, asdict(work)), "peak_mib": 1}

    monkeypatch.setattr(adaptation, "measure", measure_here)
    monkeypatch.setattr(adaptation, "HELD_OUT", 0.5)
    monkeypatch.setitem(
        adaptation.TASKS,
        "age of a book",
        replace(adaptation.TASKS["age of a book"], train=str(books), dev=str(books)),
    )
    written, out, folder = page("adaptation"), tmp_path / "out.jsonl", tmp_path / "adapted"
    model = str(pretrained_run)
    flags = ["--model", model, "--tasks", "age of a book", "--seeds", "1", "--max-steps", "1"]
    flags += ["--steps", "2", "3", "--tokens-per-step", "256", "--corpus", books]
    run_script("adaptation", *flags, "--folder", folder, "--out", out, "--write", written)
    assert [work.model for work in works] == [
        model,
        str(folder / "steps-2"),
        str(folder / "steps-3"),
    ]
    for steps in (2, 3):
        metadata = ModelMetadata.read(folder / f"steps-{steps}")
        assert metadata is not None
        assert metadata.task == "pretrain"
    text = written.read_text()
    header = f"| task | metric | {model} | {model} + 2 steps | {model} + 3 steps | seeds |"
    assert header in text
    assert "| age of a book | accuracy | " in text
