"""The history of a RUN's training, from its metrics.jsonl."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.errors import DataError
from tidybert.storage.json_objects import read_json_lines
from tidybert.storage.model_files import METRICS_FILE
from tidybert.storage.opening import present

_EVALUATION: Final = "eval_"


@dataclass(frozen=True)
class TrainingHistory:
    """The logged numbers, in the order of the steps.

    Args:
        steps: the number of each step, and its figures by name.
        evaluations: the step of each evaluation, and its metrics by name.
    """

    steps: list[dict[str, float]]
    evaluations: list[dict[str, float]]


def read_training_history(
    run: str | Path, figures: Sequence[str] = ("loss", "learning_rate")
) -> TrainingHistory | None:
    """The history of a RUN; None without a log.  Raises DataError for a log that cannot be read.

    Args:
        run: a directory.
        figures: the names of the numbers to keep for each step.
    """
    path = Path(run) / METRICS_FILE
    if not present(path):
        return None
    steps: list[dict[str, float]] = []
    evaluations: list[dict[str, float]] = []
    for _, logged in read_json_lines(path, error=DataError):
        entry = _numbers(logged or {})
        if "step" not in entry:
            continue
        if "loss" in entry:
            steps.append({key: entry[key] for key in ("step", *figures) if key in entry})
        measured = {
            key.removeprefix(_EVALUATION): value
            for key, value in entry.items()
            if key.startswith(_EVALUATION)
        }
        if measured:
            evaluations.append({"step": entry["step"], **measured})
    return TrainingHistory(steps, evaluations) if steps or evaluations else None


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line that a float can hold."""
    return {
        key: value
        for key, value in entry.items()
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max
    }
