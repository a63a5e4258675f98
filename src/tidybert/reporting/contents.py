"""The contents of report.json: all measurements of an Evaluation.

docs/trust.md names the keys. The page shows these contents and nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.files.rows import count_of
from tidybert.metrics.bootstrap import FEWEST_RESAMPLES, proportion_interval
from tidybert.metrics.calibration import (
    brier_score,
    expected_calibration_error,
    reliability_bins,
    risk_coverage,
    temperature_note,
)
from tidybert.metrics.label_errors import suspected_label_errors
from tidybert.metrics.text_scores import classification_metrics
from tidybert.reporting.evaluation import Evaluation
from tidybert.system.version import installed_version

if TYPE_CHECKING:
    from tidybert.tasks.answers import Judgement, ScoredEntities, Search


# What a report measures beside the metrics: confidence, lengths, and how far off scores are.

MAX_POINTS: Final = 200
FEWEST_ANSWERED: Final = 20
_SHARES: Final = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
_RECALLS: Final = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
MAX_GROUPS: Final = 6
FEWEST_IN_GROUP: Final = 20
MAX_DOTS: Final = 2000
NUM_RESIDUAL_BINS: Final = 21
NUM_COSINE_BINS: Final = 20
MOST_FRIENDS: Final = 25

_NORMAL_QUANTILE: Final = 1.96

Floats = npt.NDArray[np.float64]


def calibration(evaluation: Evaluation) -> dict[str, Any] | None:
    """Whether answers of 80 % confidence are right in 80 % of cases; None without confidence."""
    p = evaluation.probabilities
    brier = None if p is None else brier_score(p, evaluation.labels())
    return _reliability(*_answered(evaluation), brier)


def _reliability(
    confidence: Floats, correct: Floats, brier: float | None = None
) -> dict[str, Any] | None:
    """Confidence beside correctness, (N,) each, all together and in bins; None for N = 0."""
    if not len(confidence):
        return None
    bins = reliability_bins(confidence, correct)
    equal = reliability_bins(confidence, correct, equal_mass=True)
    return {
        "num_examples": len(confidence),
        "mean_confidence": float(confidence.mean()),
        "accuracy": float(correct.mean()),
        "expected_calibration_error": expected_calibration_error(bins),
        "equal_mass_calibration_error": expected_calibration_error(equal),
        "brier_score": brier,
        "bins": [
            {**asdict(each), **asdict(proportion_interval(each.accuracy, each.count))}
            for each in bins
        ],
    }


def coverage(evaluation: Evaluation) -> dict[str, Any] | None:
    """Accuracy of the surest answers by their share; None for fewer than FEWEST_ANSWERED."""
    confidence, correct = _answered(evaluation)
    if len(confidence) < FEWEST_ANSWERED:
        return None
    curve = risk_coverage(confidence, correct)

    def at(place: int) -> dict[str, float]:
        return {
            "threshold": float(curve.threshold[place]),
            "coverage": float(curve.coverage[place]),
            "accuracy": float(1 - curve.risk[place]),
        }

    # The accuracy of fewer answers is chance.
    first = int(np.searchsorted(curve.coverage, FEWEST_ANSWERED / len(confidence) - 1e-9))
    places = np.unique(np.linspace(first, len(curve.risk) - 1, MAX_POINTS).round().astype(int))
    # The highest threshold that still answers each share; several shares may have the same one.
    firsts = np.unique(np.searchsorted(curve.coverage, np.array(_SHARES) - 1e-9))[::-1]
    firsts = firsts[firsts >= first]
    return {
        "num_examples": len(confidence),
        "aurc": curve.aurc,
        "points": [at(place) for place in places.tolist()],
        "choices": [at(place) for place in firsts.tolist()],
    }


def entities(evaluation: Evaluation) -> dict[str, Any] | None:
    """How honest the scores of entities are, and what each score finds; None without entities."""
    given, dev = evaluation.entities, evaluation.dev_metrics.get("per_label")
    if given is None:
        return None
    return {
        "num_examples": given.num_true,
        "calibration": _reliability(given.scores.clip(0, 1), given.right.astype(np.float64)),
        "types": {
            name: _recall_curve(each, dev.get(name) if isinstance(dev, Mapping) else None)
            for name, each in evaluation.entity_types.items()
            if each.num_true and len(each.scores)
        },
    }


def _recall_curve(every: "ScoredEntities", dev: Any) -> dict[str, Any]:
    """Precision by recall, and the point where the entities given begin; ``dev``: its figures."""
    curve = risk_coverage(every.scores.clip(0, 1), every.right)
    given = (curve.coverage * len(every.scores)).round()
    precision = 1 - curve.risk
    recall = (precision * given).round() / every.num_true

    def at(place: int) -> dict[str, float]:
        values = {"threshold": curve.threshold, "precision": precision, "recall": recall}
        return {name: float(each[place]) for name, each in values.items()}

    def first(shares: npt.ArrayLike) -> list[int]:
        places = np.unique(np.searchsorted(recall, np.asarray(shares) - 1e-9))
        return [place for place in places.tolist() if place < len(recall)]

    return {
        "num_examples": every.num_true,
        "points": [at(place) for place in first(np.linspace(0, float(recall[-1]), MAX_POINTS))],
        "choices": [at(place) for place in first(_RECALLS)],
        "chosen": None if every.threshold is None else _chosen(every, every.threshold, dev),
    }


def _chosen(every: "ScoredEntities", threshold: float, dev: Any) -> dict[str, Any]:
    """Where the entities given begin, with intervals, and what dev had there if it chose it."""
    given = every.scores >= threshold
    num_right, num_given = int(every.right[given].sum()), int(given.sum())
    is_of_dev = isinstance(dev, Mapping) and dev.get("threshold") == threshold
    return {
        "threshold": threshold,
        "num_given": num_given,
        "recall": _share(num_right, every.num_true),
        "precision": _share(num_right, num_given),
        "dev": {name: dev.get(name) for name in ("recall", "precision")} if is_of_dev else None,
    }


def _share(count: int, total: int) -> dict[str, float | None]:
    if not total:
        return {"value": None, "low": None, "high": None}
    return {"value": count / total, **asdict(proportion_interval(count / total, total))}


def lengths(evaluation: Evaluation) -> list[dict[str, Any]] | None:
    """Examples by number of tokens, in groups of about equal size; None for a single group."""
    tokens = np.array([one.num_tokens for one in evaluation.judgements])
    count = min(MAX_GROUPS, len(tokens) // FEWEST_IN_GROUP)
    if count < 2:
        return None
    # Examples of one length stay together, so groups may be fewer and uneven.
    shares = np.linspace(0, 1, count + 1)[1:-1]
    edges = np.unique(np.quantile(tokens, shares, method="inverted_cdf"))
    places = np.searchsorted(edges, tokens)
    if evaluation.of_scores:
        expected, predicted = _scores(evaluation)
        values = np.abs(predicted - expected)
    else:
        values = np.array([one.correct or 0.0 for one in evaluation.judgements]).clip(0, 1)
    groups = [places == place for place in np.unique(places)]
    if len(groups) < 2:
        return None
    return [
        {
            "from": int(tokens[group].min()),
            "to": int(tokens[group].max()),
            "count": int(group.sum()),
            "mean": float(values[group].mean()),
            **_interval(values[group], is_share=not evaluation.of_scores),
        }
        for group in groups
    ]


def scores(evaluation: Evaluation) -> dict[str, Any]:
    """Predicted scores against the true ones, and the residuals (predicted minus true)."""
    expected, predicted = _scores(evaluation)
    residuals = predicted - expected
    # The bins are on both sides of 0, so that none holds scores that are too high and too low.
    largest = float(np.abs(residuals).max()) or 1.0
    counts, edges = np.histogram(residuals, np.linspace(-largest, largest, NUM_RESIDUAL_BINS + 1))
    places = np.unique(np.linspace(0, len(expected) - 1, MAX_DOTS).round().astype(int))
    return {
        "mean_residual": float(residuals.mean()),
        "mean_absolute_error": float(np.abs(residuals).mean()),
        "root_mean_square_error": float(np.sqrt(np.square(residuals).mean())),
        "points": [[float(expected[at]), float(predicted[at])] for at in places],
        "residuals": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def similarities(searches: Sequence["Search"]) -> dict[str, Any] | None:
    """Cosines of queries with the nearest right and wrong text, and the wrong ones that lead."""
    if not searches:
        return None
    scores = np.array([[one.right_score, one.wrong_score] for one in searches])
    finite = np.where(np.isfinite(scores), scores, np.nan)
    # Rounding takes a cosine of equal vectors past 1.
    edges = np.linspace(float(np.nanmin(finite)), max(1.0, np.nanmax(finite)), NUM_COSINE_BINS + 1)
    right, wrong = (
        np.histogram(column[np.isfinite(column)], edges)[0].tolist() for column in scores.T
    )
    friends = [one for one in searches if one.wrong_score > one.right_score]
    friends.sort(key=lambda one: one.right_score - one.wrong_score)
    return {
        "edges": edges.tolist(),
        "right": right,
        "wrong": wrong,
        "false_friends": {
            "total": len(friends),
            "shown": [asdict(one) for one in friends[:MOST_FRIENDS]],
        },
    }


def _answered(evaluation: Evaluation) -> tuple[Floats, Floats]:
    """Confidence and correctness, (N,) each, of the judgements with both."""
    pairs = [
        (one.confidence, one.correct)
        for one in evaluation.judgements
        if one.confidence is not None and one.correct is not None
    ]
    both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    # A softmax in floating point may come out a hair above 1.
    return both[:, 0].clip(0, 1), both[:, 1].clip(0, 1)


def _scores(evaluation: Evaluation) -> tuple[Floats, Floats]:
    pairs = [(float(one.expected), float(one.predicted)) for one in evaluation.judgements]
    expected, predicted = np.array(pairs).T
    return expected, predicted


def _interval(values: Floats, *, is_share: bool) -> dict[str, float]:
    mean = float(values.mean())
    if is_share:
        return asdict(proportion_interval(mean, len(values)))
    half = _NORMAL_QUANTILE * float(values.std()) / math.sqrt(len(values))
    return {"low": max(0.0, mean - half), "high": mean + half}


# Examples worth reading: the surest errors, the closest calls, and labels that look wrong.

SHOWN_EXAMPLES: Final = 25
# With more than one answer in ten wrong, most suspicions are mistakes of the model.
LEAST_RIGHT: Final = 0.9
_SHOWN_FIELDS: Final = (
    "row",
    "id",
    "text",
    "expected",
    "predicted",
    "correct",
    "confidence",
    "expected_probability",
    "num_tokens",
)


def surest_errors(evaluation: Evaluation) -> dict[str, Any]:
    """Answers that are wrong, in part or whole; the wrongest and surest come first."""
    wrong = [
        ((1 - one.correct) * (1.0 if one.confidence is None else one.confidence), one)
        for one in evaluation.judgements
        if one.correct is not None and one.correct < 1
    ]
    wrong.sort(key=itemgetter(0), reverse=True)
    return {"total": len(wrong), "shown": [_example(one) for _, one in wrong[:SHOWN_EXAMPLES]]}


def largest_errors(evaluation: Evaluation) -> dict[str, Any]:
    errors = [float(one.predicted) - float(one.expected) for one in evaluation.judgements]
    order = np.argsort(-np.abs(errors), kind="stable")[:SHOWN_EXAMPLES]
    return {
        "total": len(errors),
        "shown": [
            {**_example(evaluation.judgements[at]), "residual": errors[at]} for at in order.tolist()
        ],
    }


def uncertain(evaluation: Evaluation) -> dict[str, Any] | None:
    """The closest calls, by the margin of the likeliest class, or by confidence; None without."""
    judgements, p = evaluation.judgements, evaluation.probabilities
    if p is not None and evaluation.label_names is not None and p.shape[1] > 1:
        order = np.argsort(-p, axis=1, kind="stable")[:, :2]
        top = np.take_along_axis(p, order, axis=1)
        margins = top[:, 0] - top[:, 1]
        closest = np.argsort(margins, kind="stable")[:SHOWN_EXAMPLES].tolist()
        shown = [
            {
                **_example(judgements[at]),
                "second": evaluation.label_names[int(order[at, 1])],
                "margin": float(margins[at]),
            }
            for at in closest
        ]
        return {"total": len(judgements), "shown": shown}
    sure = [(one.confidence, at) for at, one in enumerate(judgements) if one.confidence is not None]
    if not sure:
        return None
    shown = [_example(judgements[at]) for _, at in sorted(sure)[:SHOWN_EXAMPLES]]
    return {"total": len(sure), "shown": shown}


def suspected(evaluation: Evaluation) -> dict[str, Any] | None:
    """Labels that may be wrong; ``reliable``: the model is right often enough to be believed."""
    names: Sequence[str] | None = evaluation.label_names
    p = evaluation.probabilities
    if p is None or names is None:
        return None
    found = suspected_label_errors(p, evaluation.labels())
    right = float(np.mean([one.correct == 1 for one in evaluation.judgements]))
    return {
        "total": len(found),
        "reliable": right >= LEAST_RIGHT,
        "shown": [
            {
                **_example(evaluation.judgements[each.example]),
                "suggested": names[each.suggested],
                "margin": float(p[each.example, each.suggested] - p[each.example, each.given]),
            }
            for each in found[:SHOWN_EXAMPLES]
        ],
    }


def _example(one: "Judgement") -> dict[str, Any]:
    return {name: getattr(one, name) for name in _SHOWN_FIELDS}


REPORT_VERSION: Final = 1
SHOWN_CONFUSIONS: Final = 30
FEW_EXAMPLES: Final = 200

_COUNTS: Final = ("num_examples", "num_truncated", "num_windowed", "num_windows")


def report_contents(evaluation: Evaluation) -> dict[str, Any]:
    """The contents of report.json; a part that makes no sense for the task is None."""
    baseline = _baseline(evaluation)
    metrics = _metrics(evaluation, baseline["metrics"] if baseline else {})
    of_scores, drawn = evaluation.of_scores, evaluation.intervals
    return {
        "report_version": REPORT_VERSION,
        "tidybert_version": installed_version(),
        "task": evaluation.task,
        "model": evaluation.model,
        "data": evaluation.data,
        "date": evaluation.date,
        "origin": asdict(evaluation.origin),
        "is_dev": evaluation.is_dev,
        **{key: evaluation.metrics[key] for key in _COUNTS},
        "max_seq_length": evaluation.max_seq_length,
        "truncation": evaluation.truncation,
        "temperature": evaluation.temperature,
        "metric": evaluation.metric or None,
        "metrics": metrics,
        "baseline": baseline,
        "correctness": None if of_scores else evaluation.correctness,
        "bootstrap": drawn
        and {
            "method": "percentile",
            "level": drawn.level,
            "num_resamples": drawn.num_resamples,
            "seed": drawn.seed,
        },
        "notes": _notes(evaluation, metrics),
        "tables": _tables(evaluation),
        "confusion": _confusion(evaluation),
        "calibration": None if of_scores else calibration(evaluation),
        "coverage": None if of_scores else coverage(evaluation),
        "entities": entities(evaluation),
        "scores": scores(evaluation) if of_scores else None,
        "similarities": similarities(evaluation.searches),
        "lengths": lengths(evaluation),
        "errors": largest_errors(evaluation) if of_scores else surest_errors(evaluation),
        "uncertain": None if of_scores else uncertain(evaluation),
        "suspected_label_errors": suspected(evaluation),
        "training": asdict(evaluation.training) if evaluation.training else None,
    }


def _baseline(evaluation: Evaluation) -> dict[str, Any] | None:
    """The metrics of the commonest class, given to every example; None without classes."""
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


def _notes(evaluation: Evaluation, metrics: dict[str, dict[str, Any]]) -> list[str]:
    notes = list(evaluation.notes)
    count, cut, windowed, windows = (evaluation.metrics[key] for key in _COUNTS)
    if evaluation.is_dev:
        notes.append(
            "this file chose the best weights in training, so its figures flatter the model: "
            "measure on texts that had no part in training"
        )
    if known := evaluation.metrics.get("num_trained_on"):
        notes.append(
            f"the model was trained on {known:,} of {count_of(count, 'example')}, so the figures "
            "flatter it"
        )
    if chosen := evaluation.metrics.get("num_chosen"):
        value = evaluation.metrics["drawn_at_random"][evaluation.metric]
        notes.append(
            f"{chosen:,} of {count_of(count, 'example')} were chosen to teach a model, so they are "
            f"harder than new texts and the figures read low: {evaluation.metric} of the "
            f"{count - chosen:,} drawn at random is {value:.4f}"
        )
    if cut:
        notes.append(
            f"{cut:,} of {count_of(count, 'example')} {evaluation.truncation}: the model saw only "
            "a part of each"
        )
    if windowed:
        read = f"{windowed:,} of {count_of(count, 'example')} were read in windows"
        notes.append(f"{read}, {windows:,} in all")
    if count < FEW_EXAMPLES:
        notes.append(
            f"few examples, {count:,}: look at the intervals first, and do not rely on "
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
    main = metrics.get(evaluation.metric, {"baseline": None})
    if main["baseline"] is not None and main["value"] <= main["baseline"]:
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
