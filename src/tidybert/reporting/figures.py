"""The sections that are pictures: confidence, scores, lengths, and the course of training.

Every picture has its figures beside it as a table.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from tidybert.reporting.markup import Markup, join, tag
from tidybert.reporting.pictures import (
    calibration_picture,
    course_picture,
    coverage_picture,
    lengths_picture,
    residuals_picture,
    scatter_picture,
    token_range,
)
from tidybert.reporting.tables import as_table, between, number, share, table

Contents = Mapping[str, Any]

_SMALL_GAP: Final = 0.005


def confidence(contents: Contents) -> Markup | None:
    """Whether confidence can be trusted, and what could be left to a person."""
    measured = contents["calibration"]
    if not measured:
        return None
    gap = measured["mean_confidence"] - measured["accuracy"]
    side = "above" if gap > 0 else "below"
    text = (
        "On average confidence is as high as accuracy."
        if abs(gap) < _SMALL_GAP
        else f"On average confidence lies {abs(gap):.3f} {side} accuracy."
    )
    if contents["temperature"] not in (None, 1):
        text += (
            " The probabilities were mended with a temperature that was fitted on the same dev "
            "part that picked the weights: if this file is that part, the calibration is flattered."
        )
    return join([tag("p", text), _pair(_calibration(contents), _coverage(contents["coverage"]))])


def _calibration(contents: Contents) -> Markup:
    measured = contents["calibration"]
    facts = {
        "mean confidence": measured["mean_confidence"],
        "accuracy": measured["accuracy"],
        "expected calibration error": measured["expected_calibration_error"],
        "the same over bins of equal mass": measured["equal_mass_calibration_error"],
        "Brier score, 0 to 2": measured["brier_score"],
        "area under risk and coverage": contents["coverage"]["aurc"],
        "temperature": contents["temperature"],
    }
    bins = [
        [
            f"{share(each['lower'])} to {share(each['upper'])}",
            each["count"],
            each["confidence"],
            each["accuracy"],
            between(each["low"], each["high"]),
        ]
        for each in measured["bins"]
    ]
    headings = ["confidence", "examples", "mean", "accuracy", "95 % interval"]
    return _figure(
        calibration_picture(measured["bins"]),
        "Calibration: of the answers with about the same confidence, how many are right. Below "
        "the diagonal the model is too sure. A larger dot stands for more examples; lines are "
        "95 % intervals.",
        as_table(table(headings, bins, caption="Calibration curve")),
        table(
            ["figure", "value"],
            [[name, value] for name, value in facts.items() if value is not None],
            caption="How far to trust the confidence",
        ),
    )


def _coverage(curve: Mapping[str, Any]) -> Markup:
    rows = [
        [share(each["coverage"]), each["accuracy"], each["threshold"]] for each in curve["choices"]
    ]
    return _figure(
        coverage_picture(curve["points"]),
        "Coverage: how accurate the answers are if only the surest are given and the rest is left "
        "to a person.",
        table(
            ["answered", "accuracy", "confidence of at least"],
            rows,
            caption="Thresholds to choose from",
        ),
    )


def scores(contents: Contents) -> Markup | None:
    """How far predicted scores are off, and to which side."""
    found = contents["scores"]
    if not found:
        return None
    edges, counts = found["residuals"]["edges"], found["residuals"]["counts"]
    rows = [
        [f"{low:.3g} to {high:.3g}", count]
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
    ]
    points, total = found["points"], contents["num_examples"]
    side = "high" if found["mean_residual"] > 0 else "low"
    text = (
        f"Predictions are off by {number(found['mean_absolute_error'])} on average, and lie "
        f"{number(abs(found['mean_residual']))} too {side} as a whole."
    )
    shown = f"{len(points):,} of {total:,} examples are shown." if len(points) < total else ""
    return join(
        [
            tag("p", text),
            _pair(
                _figure(scatter_picture(points), f"Predicted against true scores. {shown}"),
                _figure(
                    residuals_picture(edges, counts),
                    "How far predictions are off, and to which side.",
                    as_table(table(["predicted less true", "examples"], rows, caption="Residuals")),
                ),
            ),
        ]
    )


def lengths(contents: Contents) -> Markup | None:
    """Whether long examples are answered worse than short ones."""
    groups = contents["lengths"]
    if not groups:
        return None
    of_scores = contents["scores"] is not None
    what = "mean absolute error" if of_scores else "accuracy"
    rows = [
        [
            token_range(each),
            each["count"],
            each["mean"],
            between(each["low"], each["high"]),
        ]
        for each in groups
    ]
    caption = f"{what.capitalize()} by tokens"
    return _figure(
        lengths_picture(groups, of_scores),
        f"The {what} of short and of long examples, in groups of about the same size; lines are "
        "95 % intervals. Where they overlap, the groups may not differ.",
        as_table(table(["tokens", "examples", what, "95 % interval"], rows, caption=caption)),
    )


def training(contents: Contents) -> Markup | None:
    """Loss, learning rate and the metric on dev, step by step."""
    found = contents["training"]
    if not found:
        return None
    steps, evaluations, metric = found["steps"], found["evaluations"], contents["metric"]
    drawn = [
        course_picture(key, entries, title, dots=key == metric, smoothed=key == "loss")
        for key, entries, title in (
            ("loss", steps, "training loss"),
            (metric, evaluations, f"{metric} on dev"),
            ("learning_rate", steps, "learning rate"),
        )
        if any(key in each for each in entries)
    ]
    keys = list(dict.fromkeys(key for each in evaluations for key in each))
    rows = [[each.get(key) for key in keys] for each in evaluations]
    caption = "Evaluations on dev while training"
    return join(
        [
            _pair(*(tag("figure", each) for each in drawn)),
            as_table(table(keys, rows, caption=caption)) if rows else None,
        ]
    )


def _figure(picture: Markup, caption: str, *more: Markup) -> Markup:
    return tag("figure", picture, tag("figcaption", caption), *more)


def _pair(*figures: Markup) -> Markup:
    """Side by side where there is room."""
    return tag("div", *figures, class_="pair")
