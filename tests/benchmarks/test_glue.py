"""Both programs from one start: the same scores, where dropout and two heads made them differ."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.files.read_options import ReadOptions
from tidybert.timing import finetuning_speed as finetuning
from tidybert.timing.work import FinetuningWork


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


@pytest.mark.parametrize(
    ("flags", "mark", "least", "most"),
    [
        ([], "glue", 1e-3, 2.0),
        (["--same-start"], "glue-same-start", 0.0, 1e-4),
        (["--same-start", "--precision", "bfloat16"], "glue-same-start-bfloat16", 1e-5, 0.02),
    ],
)
def test_one_start_leaves_rounding(
    flags: list[str],
    mark: str,
    least: float,
    most: float,
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
    shown = page(mark)
    run_script(
        *("glue", *flags, "--model", pretrained_run),
        *("--seeds", "1", "--out", tmp_path / "measured.jsonl", "--write", shown),
    )

    assert least <= abs(scores["ours"] - scores["transformers"]) < most
    assert "| toy | pearson |" in shown.read_text()
