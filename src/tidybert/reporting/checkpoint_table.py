"""The checkpoints that a RUN keeps, beside what was measured of each."""

from pathlib import Path
from typing import Any

from tidybert.reporting.training_history import read_training_history
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import KEPT_FILE, STATE_FILE, checkpoints_by_step


def checkpoint_rows(run: Path) -> list[dict[str, Any]]:
    """An entry for each checkpoint, by step: what was measured last up to it, and its size.

    ``model`` names it as a MODEL, ``measured`` is the step of the measurement, and ``best`` whether
    the run has nothing better up to its last checkpoint.  Raises TidyBertError for a file that
    cannot be read.
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
                "bytes": sum(each.stat().st_size for each in path.iterdir()),
                "metrics": metrics,
            }
        )
    return rows
