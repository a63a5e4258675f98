"""The contents of report.json: all measurements of an Evaluation.

docs/trust.md names the keys. The page shows these contents and nothing else.
"""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from tidybert.metrics.bootstrap import FEWEST_RESAMPLES
from tidybert.metrics.calibration import temperature_note
from tidybert.metrics.classification_scores import classification_metrics
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.measurements import (
    calibration,
    coverage,
    lengths,
    scores,
    similarities,
)
from tidybert.reporting.notable_examples import largest_errors, surest_errors, suspected, uncertain

REPORT_VERSION: Final = 1
SHOWN_CONFUSIONS: Final = 30
FEW_EXAMPLES: Final = 200

_COUNTS: Final = ("num_examples", "num_truncated", "num_windowed", "num_windows")


def report_contents(evaluation: Evaluation) -> dict[str, Any]:
    """The contents of report.json; a part that makes no sense for the task is None."""
    baseline = _baseline(evaluation)
    metrics = _metrics(evaluation, baseline["metrics"] if baseline else {})
    of_scores = evaluation.of_scores
    return {
        "report_version": REPORT_VERSION,
        "tidybert_version": version("tidybert"),
        "task": evaluation.task,
        "model": evaluation.model,
        "data": evaluation.data,
        "date": evaluation.date,
        "origin": asdict(evaluation.origin),
        **{key: evaluation.metrics[key] for key in _COUNTS},
        "max_seq_length": evaluation.max_seq_length,
        "truncation": evaluation.truncation,
        "temperature": evaluation.temperature,
        "metric": evaluation.metric or None,
        "metrics": metrics,
        "baseline": baseline,
        "correctness": None if of_scores else evaluation.correctness,
        "bootstrap": _bootstrap(evaluation),
        "notes": _notes(evaluation, metrics),
        "tables": _tables(evaluation),
        "confusion": _confusion(evaluation),
        "calibration": None if of_scores else calibration(evaluation),
        "coverage": None if of_scores else coverage(evaluation),
        "scores": scores(evaluation) if of_scores else None,
        "similarities": similarities(evaluation.searches),
        "lengths": lengths(evaluation),
        "errors": largest_errors(evaluation) if of_scores else surest_errors(evaluation),
        "uncertain": None if of_scores else uncertain(evaluation),
        "suspected_label_errors": suspected(evaluation),
        "training": asdict(evaluation.training) if evaluation.training else None,
    }


def _baseline(evaluation: Evaluation) -> dict[str, Any] | None:
    """The metrics of the answer that is right most often, given to every example.

    None where an answer is not a class.
    """
    names = evaluation.label_names
    if evaluation.probabilities is None or names is None:
        return None
    labels = evaluation.labels()
    counts = np.bincount(labels, minlength=len(names))
    most = int(counts.argmax())
    scores = classification_metrics(labels, np.full_like(labels, most), names)
    return {
        "label": names[most],
        "metrics": {name: value for name, value in scores.items() if isinstance(value, float)},
    }


def _metrics(evaluation: Evaluation, baseline: dict[str, float]) -> dict[str, dict[str, Any]]:
    """The value, interval, baseline and meaning of each metric that is a number."""
    intervals = evaluation.intervals.by_name if evaluation.intervals else {}
    numbers = {
        name: value
        for name, value in evaluation.metrics.items()
        if isinstance(value, int | float) and not name.startswith("num_")
    }
    classes = evaluation.label_names or ()
    positive = classes[1] if len(classes) == 2 else ""
    meanings = {name: text.format(positive=positive) for name, text in evaluation.meanings.items()}
    names = [name for name in meanings if name in numbers]
    names += [name for name in numbers if name not in names]
    return {
        name: {
            "value": numbers[name],
            **(asdict(intervals[name]) if name in intervals else {"low": None, "high": None}),
            "baseline": baseline.get(name),
            "meaning": meanings.get(name),
        }
        for name in names
    }


def _bootstrap(evaluation: Evaluation) -> dict[str, Any] | None:
    drawn = evaluation.intervals
    if drawn is None:
        return None
    return {
        "method": "percentile",
        "level": drawn.level,
        "num_resamples": drawn.num_resamples,
        "seed": drawn.seed,
    }


def _notes(evaluation: Evaluation, metrics: dict[str, dict[str, Any]]) -> list[str]:
    """Notes to read before the figures."""
    notes = []
    count, cut, windowed, windows = (evaluation.metrics[key] for key in _COUNTS)
    if cut:
        notes.append(
            f"{cut:,} of {count:,} examples {evaluation.truncation}: the model saw only a part of "
            "each"
        )
    if windowed:
        notes.append(f"{windowed:,} of {count:,} examples were read in windows, {windows:,} in all")
    if count < FEW_EXAMPLES:
        notes.append(
            f"{count:,} examples are few: look at the intervals first, and do not rely on "
            "figures for single classes or groups"
        )
    drawn = evaluation.intervals
    if drawn is not None and drawn.num_resamples < FEWEST_RESAMPLES:
        notes.append(
            f"time ran out after {drawn.num_resamples:,} resamples, too few for an interval"
        )
    elif drawn is not None and drawn.ran_out:
        notes.append(
            f"the intervals come from {drawn.num_resamples:,} resamples; then time ran out"
        )
    chosen = metrics.get(evaluation.metric, {"baseline": None})
    if chosen["baseline"] is not None and chosen["value"] <= chosen["baseline"]:
        notes.append(
            f"{evaluation.metric} is not above that of the most frequent class, given to every "
            "example: the model has learned nothing that helps here"
        )
    flat = [name for name, one in metrics.items() if one["low"] is not None]
    flat = [name for name in flat if metrics[name]["low"] == metrics[name]["high"]]
    if flat:
        notes.append(
            f"every resample has the same {', '.join(flat)}: an interval without width does not "
            "mean certainty"
        )
    warm = temperature_note(evaluation.temperature) if evaluation.temperature else None
    return notes + ([warm] if warm else [])


def _tables(evaluation: Evaluation) -> dict[str, dict[str, dict[str, Any]]]:
    """The metrics that are tables, such as those by label."""
    return {
        name: {str(key): dict(row) for key, row in table.items()}
        for name, table in evaluation.metrics.items()
        if isinstance(table, dict) and table and all(isinstance(r, dict) for r in table.values())
    }


def _confusion(evaluation: Evaluation) -> dict[str, Any] | None:
    found = evaluation.metrics.get("confusion_matrix")
    names = evaluation.label_names
    if found is None or names is None:
        return None
    matrix = np.array(found)
    wrong = matrix - np.diag(np.diag(matrix))
    support = np.maximum(matrix.sum(axis=1), 1)
    # A stable sort keeps equal counts in the order of the classes.
    order = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN_CONFUSIONS]
    pairs = [divmod(int(at), len(names)) for at in order if wrong.flat[at]]
    return {
        "label_names": list(names),
        "matrix": matrix.tolist(),
        "num_confusions": int(wrong.sum()),
        "pairs": [
            {
                "expected": names[true],
                "predicted": names[predicted],
                "count": int(wrong[true, predicted]),
                "share_of_expected": float(wrong[true, predicted] / support[true]),
            }
            for true, predicted in pairs
        ],
    }
