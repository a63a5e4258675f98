"""The history of a RUN's training, from its metrics.jsonl, and its figures as lines to draw."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from tidybert.errors import DataError
from tidybert.storage.json_objects import read_json_lines, read_json_object
from tidybert.storage.model_files import KEPT_FILE, METRICS_FILE, STATE_FILE, checkpoints_by_step
from tidybert.storage.opening import present
from tidybert.storage.own_files import bytes_below

Points = list[tuple[float, float]]

_EVALUATION: Final = "eval_"
_MOST_STEPS: Final = 10**15
# The mean over this share of the steps shows the course of a noisy loss.
_SMOOTHED_SHARE: Final = 0.05
_MAX_LINE_POINTS: Final = 400


@dataclass(frozen=True)
class TrainingHistory:
    """The logged figures and metrics beside their ``step``; skipped: steps without an update.

    stages: what came before step 1, its seconds, and the losses of its own steps.
    """

    steps: list[dict[str, float]]
    evaluations: list[dict[str, float]]
    skipped: list[int] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)

    def skipped_ranges(self) -> list[tuple[int, int]]:
        """The first and the last step of each stretch whose data were passed over."""
        ranges: list[tuple[int, int]] = []
        for step in self.skipped:
            if ranges and ranges[-1][1] == step - 1:
                ranges[-1] = ranges[-1][0], step
            else:
                ranges.append((step, step))
        return ranges


def read_training_history(
    run: str | Path, figures: Sequence[str] = ("loss", "learning_rate")
) -> TrainingHistory | None:
    """The history of a RUN; None without a log.  Raises DataError for a log that cannot be read."""
    path = Path(run) / METRICS_FILE
    if not present(path):
        return None
    steps: list[dict[str, float]] = []
    evaluations: list[dict[str, float]] = []
    skipped: list[int] = []
    stages: list[dict[str, Any]] = []
    for _, logged in read_json_lines(path, error=DataError):
        entry = _numbers(logged or {})
        if "step" not in entry:
            continue
        if not 0 <= entry["step"] <= _MOST_STEPS:
            raise DataError(
                f"{path}: a line has the step {entry['step']:g}: expected 0 to {_MOST_STEPS:g}"
            )
        if logged and isinstance(logged.get("stage"), str) and "seconds" in entry:
            found = logged.get("steps")
            found = found if isinstance(found, list) else []
            losses = [_numbers(one) for one in found if isinstance(one, dict)]
            losses = [one for one in losses if one.keys() == {"step", "loss"}]
            stages.append({"stage": logged["stage"], "seconds": entry["seconds"], "steps": losses})
        if entry.get("skipped"):
            skipped.append(int(entry["step"]))
        if "loss" in entry:
            steps.append({key: entry[key] for key in ("step", *figures) if key in entry})
        measured = {
            key.removeprefix(_EVALUATION): value
            for key, value in entry.items()
            if key.startswith(_EVALUATION)
        }
        if measured:
            evaluations.append({"step": entry["step"], **measured})
    is_empty = not (steps or evaluations or stages)
    return None if is_empty else TrainingHistory(steps, evaluations, skipped, stages)


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line that a float can hold."""
    return {
        key: value
        for key, value in entry.items()
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max
    }


def course_of(entries: Sequence[Mapping[str, float]], key: str) -> Points:
    """The steps at which ``key`` was logged, each with its value."""
    return [(each["step"], each[key]) for each in entries if key in each]


def smooth_course(points: Points) -> Points:
    """Each value as the mean of its neighbours.

    Near the beginning, where a loss falls fast, the neighbours are as few on both sides.
    """
    half = max(1, int(len(points) * _SMOOTHED_SHARE / 2))
    sums = [0.0, *accumulate(value for _, value in points)]
    smooth = []
    for at, (step, _) in enumerate(points):
        near = min(half, at)
        first, end = at - near, min(len(points), at + near + 1)
        smooth.append((step, (sums[end] - sums[first]) / (end - first)))
    return smooth


def thinned(points: Points) -> Points:
    """At most 400 points at equal distances, the last among them."""
    every = -(-len(points) // _MAX_LINE_POINTS)
    return points[::-every][::-1]


def extremes(points: Points) -> Points:
    """The lowest and highest point of each stretch, so that a thinned line keeps its jumps."""
    length = -(-2 * len(points) // _MAX_LINE_POINTS)
    kept = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        kept += sorted({min(stretch, key=itemgetter(1)), max(stretch, key=itemgetter(1))})
    return kept


# The checkpoints that a RUN keeps, beside what was measured of each.


def checkpoint_rows(run: Path) -> list[dict[str, Any]]:
    """An entry for each checkpoint, by step: what was measured last up to it, and its size.

    ``model`` names it as a MODEL, ``measured`` is the step of the measurement, and ``best``
    whether the run has nothing better up to its last checkpoint.
    """
    history = read_training_history(run)
    evaluations = history.evaluations if history else []
    rows = []
    found = checkpoints_by_step(run)
    states = [read_json_object(path / STATE_FILE) for path in found.values()]
    for step, path in found.items():
        measured = [each for each in evaluations if each["step"] <= step]
        metrics = dict(measured[-1]) if measured else {}
        at = metrics.pop("step", None)
        rows.append(
            {
                "model": f"{run}@{step}",
                "step": step,
                "measured": None if at is None else int(at),
                "best": at is not None and states[-1].get("best_step") == at,
                "kept_for_good": (path / KEPT_FILE).exists(),
                "bytes": bytes_below(path),
                "metrics": metrics,
            }
        )
    return rows
