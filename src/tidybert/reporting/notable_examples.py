"""Examples worth reading: the surest errors, the closest calls, and labels that look wrong."""

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tidybert.metrics.label_errors import suspected_label_errors
from tidybert.reporting.evaluation import Evaluation

if TYPE_CHECKING:
    from tidybert.tasks.answers import Judgement

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
    """The scores that are the farthest from the true ones."""
    errors = [float(one.predicted) - float(one.expected) for one in evaluation.judgements]
    order = np.argsort(-np.abs(errors), kind="stable")[:SHOWN_EXAMPLES]
    return {
        "total": len(errors),
        "shown": [
            {**_example(evaluation.judgements[at]), "residual": errors[at]} for at in order.tolist()
        ],
    }


def uncertain(evaluation: Evaluation) -> dict[str, Any] | None:
    """The closest calls: the lowest margins of the likeliest class over the next one.

    Without probabilities of classes they are the lowest confidences; None without confidence.
    """
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
    """Labels that may be wrong, as a check ranks them; None where an answer is not a class.

    ``reliable`` says whether the model is right often enough for most of them to be errors of the
    labels and not its own.
    """
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
