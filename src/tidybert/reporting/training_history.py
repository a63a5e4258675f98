"""The history of a RUN's training, from its metrics.jsonl."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.model_files import METRICS_FILE

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
    """The history of a RUN; None without a log.

    Args:
        run: a directory.
        figures: the names of the numbers to keep for each step.
    """
    try:
        text = (Path(run) / METRICS_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    steps: list[dict[str, float]] = []
    evaluations: list[dict[str, float]] = []
    for line in text.split("\n"):
        entry = _entry(line)
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


def _entry(line: str) -> dict[str, float]:
    """The finite numbers of a line; none if a kill left it half written."""
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(entry, Mapping):
        return {}
    return {
        key: value
        for key, value in entry.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
