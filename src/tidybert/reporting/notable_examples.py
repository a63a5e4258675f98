"""Examples worth reading: the surest errors, the closest calls, and labels that look wrong."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tidybert.metrics.label_errors import suspected_label_errors
from tidybert.reporting.evaluation import Evaluation, Judgement

SHOWN_EXAMPLES: Final = 25


def surest_errors(evaluation: Evaluation) -> dict[str, Any]:
    """Answers that are wrong, or not wholly right, those first that were given with confidence."""

    def weight(one: Judgement) -> float:
        assert one.correct is not None
        return (1 - one.correct) * (1.0 if one.confidence is None else one.confidence)

    wrong = [one for one in evaluation.judgements if one.correct is not None and one.correct < 1]
    wrong.sort(key=weight, reverse=True)
    return {"total": len(wrong), "shown": [_example(one) for one in wrong[:SHOWN_EXAMPLES]]}


def largest_errors(evaluation: Evaluation) -> dict[str, Any]:
    """Scores by their distance from the true ones, the largest first."""
    errors = [float(one.predicted) - float(one.expected) for one in evaluation.judgements]
    order = np.argsort(-np.abs(errors), kind="stable")[:SHOWN_EXAMPLES]
    return {
        "total": len(errors),
        "shown": [
            {**_example(evaluation.judgements[at]), "residual": errors[at]} for at in order.tolist()
        ],
    }


def uncertain(evaluation: Evaluation) -> dict[str, Any] | None:
    """The closest calls: the lowest margin of the likeliest class over the next one.

    Without the probabilities of classes, the lowest confidence; None where there is none either.
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
    """Labels that may be wrong, the largest margin first; None where an answer is no class."""
    names: Sequence[str] | None = evaluation.label_names
    if evaluation.probabilities is None or names is None:
        return None
    found = suspected_label_errors(evaluation.probabilities, evaluation.labels())
    return {
        "total": len(found),
        "shown": [
            {
                **_example(evaluation.judgements[each.example]),
                "suggested": names[each.suggested],
                "margin": each.margin,
            }
            for each in found[:SHOWN_EXAMPLES]
        ],
    }


def _example(one: Judgement) -> dict[str, Any]:
    return {
        "row": one.row,
        "id": one.id,
        "text": one.text,
        "expected": one.expected,
        "predicted": one.predicted,
        "correct": one.correct,
        "confidence": one.confidence,
        "expected_probability": one.expected_probability,
        "num_tokens": one.num_tokens,
    }
