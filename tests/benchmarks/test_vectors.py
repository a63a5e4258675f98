"""Sentence vectors: the benchmark's score is that of evaluate, for every form of data."""

import warnings
from pathlib import Path
from typing import Any

import pytest

import tidybert
from benchmarks.speed import vectors

PAIRS = [(f"the {a} cat", f"we saw a {b} dog") for a in ("red", "blue") for b in ("old", "black")]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        ("stsb", [(*pair, float(number)) for number, pair in enumerate(PAIRS)]),
        ("squad", [(f"{a} {number}", b) for number, (a, b) in enumerate(PAIRS)]),
        ("banking77", [(text, number % 2) for number, (text, _) in enumerate(PAIRS)]),
    ],
)
def test_the_score_is_that_of_evaluate(
    data: str, rows: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "DATA", {data: lambda _part: rows})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tidybert.finetune(
            rows, "embed", tiny_model, dev=0, max_steps=1, max_seq_length=16, out=tmp_path / "run"
        )
        expected = tidybert.evaluate(tmp_path / "run", rows)[vectors.METRICS[data]]

    assert vectors.score(tmp_path / "run", data, 16) == pytest.approx(expected, abs=1e-6)


@pytest.mark.weights
def test_texts_of_full_length_have_more_than_128_tokens() -> None:
    rows = vectors.full("train")

    assert len(rows) == 1024
    assert all(len(text.split()) > 128 for pair in rows[:5] for text in pair)
