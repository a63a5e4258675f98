"""How a RUN was trained, read back from its metrics.jsonl."""

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
    """What was logged, in the order of the steps.

    steps: each with step and the figures that were asked for.  evaluations: each with step and the
    metrics on dev, or on held-out text, by name.
    """

    steps: list[dict[str, float]]
    evaluations: list[dict[str, float]]


def read_training_history(
    run: str | Path, figures: Sequence[str] = ("loss", "learning_rate")
) -> TrainingHistory | None:
    """The history of a RUN; None where it has none, as with a model of another program's.

    ``figures`` are kept of each step, where it has them.
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
    """The finite numbers of a line; none of a line that a kill left half written."""
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
