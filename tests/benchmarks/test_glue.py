"""Both programs from one start: the same scores, where dropout and two heads made them differ."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.benchmark import finetuning
from tidybert.benchmark.finetuning import FinetuningWork
from tidybert.data.options import ReadOptions


@pytest.fixture
def toy_jobs(script: Callable[[str], ModuleType], tmp_path: Path) -> dict[str, Any]:
    """A job of 24 texts with scores, whose correlation shows every bit that differs."""
    path = tmp_path / "texts.csv"
    words = ("the red cat", "a dog was near", "the dog", "red", "was a cat near", "cat and dog")
    rows = [f"{word},{0.1 * (at * 7 % 11)}\n" for at, word in enumerate(words * 4)]
    path.write_text("text,label\n" + "".join(rows))
    options = ReadOptions(text="text", label="label")
    job = script("side_by_side").Job("regress", str(path), str(path), options, ("pearson",))
    return {"toy": job}


@pytest.mark.parametrize("same_start", [True, False])
def test_one_start_leaves_rounding(
    same_start: bool,
    script: Callable[[str], ModuleType],
    run_script: Callable[..., None],
    toy_jobs: dict[str, Any],
    page: Callable[[str], Path],
    pretrained_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    scores: dict[str, float] = {}

    def measure_here(side: str, work: FinetuningWork) -> dict[str, Any]:
        work = FinetuningWork(**{**asdict(work), "train_batch_size": 4, "options": work.options})
        measured = finetuning._run(side, asdict(work))
        scores[side] = measured["metrics"]["pearson"]
        return {**measured, "peak_mib": 1}

    glue = script("glue")
    monkeypatch.setattr(glue, "run", partial(glue.run, measure=measure_here))
    monkeypatch.setattr(glue, "TASKS", toy_jobs)
    mark = "glue-same-start" if same_start else "glue"
    shown = page(mark)
    run_script(
        *("glue", *(["--same-start"] if same_start else []), "--model", pretrained_run),
        *("--seeds", "1", "--out", tmp_path / "measured.jsonl", "--write", shown),
    )

    difference = abs(scores["ours"] - scores["transformers"])
    assert difference < 1e-4 if same_start else difference > 1e-3
    assert "| toy | pearson |" in shown.read_text()
