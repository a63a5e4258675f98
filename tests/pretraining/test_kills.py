"""Kills at random moments of runs that change, branch and skip: the same bits as without a kill.

The suite tries a few moments; ``make test-kills KILLS=100`` tries more.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell

KILLS = int(os.environ.get("TIDYBERT_KILLS", "2"))
FLAGS = [
    "--recipe", "fast", "--tokens-per-step", "256", "--micro-batch", "96", "--dropout", "0.1",
    "--max-seq-length", "32", "--eval-steps", "4", "--eval-tokens", "256", "--save-steps", "2",
    "--logging-steps", "1", "--device", "cpu", "--keep-every", "2", "--quiet",
]  # fmt: skip


def commands(model: Path, corpus: Path, folder: Path, first: Path) -> dict[str, list[str]]:
    """By what they write: a run, one that changes, and a branch that passes over data."""

    def written(name: str) -> list[str]:
        return ["--out", str(folder / name), *FLAGS, "--resume"]

    begin = ["pretrain", str(model), "--data", str(corpus)]
    changed = ["--change", "--max-steps", "10", "--learning-rate", "1e-3"]
    skipping = ["--max-steps", "10", "--skip-steps", "6:7"]
    return {
        "run": [*begin, *written("run"), "--max-steps", "8"],
        "changed": [*begin, *written("changed"), *changed],
        "branch": ["pretrain", "--branch", f"{first}@4", *written("branch"), *skipping],
    }


def half_done(first: Path, folder: Path) -> None:
    """A run as a kill after step 4 leaves it, which the second command changes."""
    shutil.copytree(first / "checkpoints" / "step-4", folder / "changed/checkpoints/step-4")
    for name in ("metrics.jsonl", "arguments.json"):
        shutil.copy(first / name, folder / "changed" / name)


def results_of(run: Path) -> tuple[bytes, list[Any]]:
    """The weights, and what was logged of each step but for times."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    logged = [
        {name: value for name, value in line.items() if "per_second" not in name} for line in lines
    ]
    return (run / "model.safetensors").read_bytes(), logged


@pytest.fixture(scope="module")
def whole(tiny_model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs without a kill."""
    folder = tmp_path_factory.mktemp("whole")
    for name, words in commands(tiny_model, corpus, folder, folder / "run").items():
        if name == "changed":
            half_done(folder / "run", folder)
        assert shell(words) == 0, name
    return folder


@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_at_any_moment_changes_nothing(
    number: int,
    begin: Callable[..., Any],
    whole: Path,
    tiny_model: Path,
    corpus: Path,
    tmp_path: Path,
) -> None:
    generator = random.Random(number)
    half_done(whole / "run", tmp_path)
    for name, words in commands(tiny_model, corpus, tmp_path, whole / "run").items():
        process = begin(*words)
        time.sleep(generator.uniform(0.1, 2.0))
        process.kill()
        process.wait()
        # A supervisor gives the same command again.
        assert shell(words) == 0, name
        assert results_of(tmp_path / name) == results_of(whole / name), name
