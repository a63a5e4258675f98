"""The pictures of a report, each from its part of the contents."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Final

from tidybert.reporting.drawing import Frame, around, percent, picture, short
from tidybert.reporting.markup import Markup, tag

Entry = Mapping[str, Any]

# A mean over this share of the steps shows the course of a loss that jumps about.
_SMOOTHED_SHARE: Final = 0.05
_MAX_LINE_POINTS: Final = 400
_LARGEST_DOT: Final = 8.0
_INTERVAL_WIDTH, _INTERVAL_HEIGHT = 150.0, 18.0


def interval_picture(low: float, value: float, high: float) -> Markup:
    """A value and its interval on a line from 0 to 1; the numbers stand beside it."""

    def at(number: float) -> float:
        return 4 + number * (_INTERVAL_WIDTH - 8)

    middle = _INTERVAL_HEIGHT / 2
    return tag(
        "svg",
        tag("line", x1=at(0), x2=at(1), y1=middle, y2=middle, class_="axis"),
        tag("line", x1=at(low), x2=at(high), y1=middle, y2=middle, class_="band"),
        tag("circle", cx=at(value), cy=middle, r=4.0, class_="dot"),
        viewBox=f"0 0 {_INTERVAL_WIDTH:g} {_INTERVAL_HEIGHT:g}",
        width=_INTERVAL_WIDTH,
        height=_INTERVAL_HEIGHT,
        aria_hidden="true",
    )


def calibration_picture(bins: Sequence[Entry]) -> Markup:
    """Accuracy by confidence; on the diagonal both are equal."""
    frame = Frame((0, 1), (0, 1))
    most = max(each["count"] for each in bins)
    dots = []
    for each in bins:
        x, y = each["confidence"], each["accuracy"]
        dots.append(frame.whisker(x, each["low"], each["high"]))
        hover = f"{each['count']:,} examples: confidence {x:.3f}, accuracy {y:.3f}"
        radius = 2.5 + (_LARGEST_DOT - 2.5) * (each["count"] / most) ** 0.5
        dots.append(frame.dot(x, y, hover, radius))
    return picture(
        "calibration",
        "Calibration curve",
        "Accuracy of the answers by their confidence; the dashed diagonal is perfect.",
        frame.width,
        frame.height,
        frame.axes("confidence", "accuracy", x_text=percent, y_text=percent),
        frame.line([(0, 0), (1, 1)], "ideal"),
        frame.line([(each["confidence"], each["accuracy"]) for each in bins], "line thin"),
        *dots,
    )


def coverage_picture(points: Sequence[Entry]) -> Markup:
    """Accuracy of the answers given, by how many are given."""
    line = [(each["coverage"], each["accuracy"]) for each in points]
    lowest = min(accuracy for _, accuracy in line)
    floor = max(0.0, min(0.9, int(lowest * 10) / 10))
    frame = Frame((0, 1), (floor, 1))
    return picture(
        "coverage",
        "Accuracy against coverage",
        "Accuracy among the surest answers, by the share of the examples that is answered.",
        frame.width,
        frame.height,
        frame.axes("share answered, the surest first", "accuracy", x_text=percent, y_text=percent),
        frame.line(line),
    )


def lengths_picture(groups: Sequence[Entry], of_scores: bool) -> Markup:
    """Accuracy, or the mean absolute error, by number of tokens."""
    top = max(each["high"] for each in groups) * 1.05 if of_scores else 1.0
    frame = Frame((0, len(groups)), (0, top))
    what = "mean absolute error" if of_scores else "accuracy"
    text = short if of_scores else percent
    bars = []
    for place, each in enumerate(groups):
        hover = f"{token_range(each)} tokens, {each['count']:,} examples: {each['mean']:.3f}"
        bars.append(frame.bar((place + 0.12, place + 0.88), each["mean"], hover))
        bars.append(frame.whisker(place + 0.5, each["low"], each["high"]))
    return picture(
        "lengths",
        f"Length against {what}",
        f"A bar for each range of tokens: its {what}, with the 95 % interval.",
        frame.width,
        frame.height,
        frame.axes(
            "tokens of the example",
            what,
            x_ticks=[place + 0.5 for place in range(len(groups))],
            x_text=lambda at: token_range(groups[int(at)]),
            y_text=text,
        ),
        *bars,
    )


def token_range(group: Entry) -> str:
    """The numbers of tokens that a group holds: 7, or 8–11."""
    low, high = group["from"], group["to"]
    return f"{low}" if low == high else f"{low}–{high}"


def scatter_picture(points: Sequence[Sequence[float]]) -> Markup:
    """Predicted scores over the true ones."""
    both = around([value for point in points for value in point])
    frame = Frame(both, both, height=420)
    return picture(
        "scatter",
        "Predicted scores against true ones",
        "A dot for each example; on the dashed diagonal the prediction is the true score.",
        frame.width,
        frame.height,
        frame.axes("true score", "predicted score"),
        frame.line([(both[0], both[0]), (both[1], both[1])], "ideal"),
        *(frame.dot(x, y, None, 2.5, "dot faint") for x, y in points),
    )


def residuals_picture(edges: Sequence[float], counts: Sequence[int]) -> Markup:
    """How often predictions are off by how much."""
    frame = Frame((edges[0], edges[-1]), (0, max(counts) * 1.05))
    pairs = list(pairwise(edges))
    return picture(
        "residuals",
        "Residuals",
        "How many examples are predicted too low (left of 0) or too high, and by how much.",
        frame.width,
        frame.height,
        frame.axes("predicted less true score", "examples"),
        *(
            frame.bar(pair, count, f"{pair[0]:.3g} to {pair[1]:.3g}: {count:,} examples")
            for pair, count in zip(pairs, counts, strict=True)
            if count
        ),
        tag(
            "line",
            x1=frame.at_x(0),
            x2=frame.at_x(0),
            y1=frame.at_y(0),
            y2=frame.at_y(frame.y[1]),
            class_="ideal",
        ),
    )


def course_picture(
    key: str,
    entries: Sequence[Mapping[str, float]],
    title: str,
    *,
    dots: bool = False,
    smoothed: bool = False,
) -> Markup:
    """What ``key`` was over the steps, with a dot for each value or a mean over neighbours."""
    points = [(each["step"], each[key]) for each in entries if key in each]
    last = max(step for step, _ in points)
    frame = Frame((0, last), around(value for _, value in points), height=220)
    drawn = [frame.line(thinned(points), "line thin" if smoothed else "line")]
    if smoothed:
        drawn.append(frame.line(thinned(smooth_course(points))))
    if dots:
        drawn += [frame.dot(x, y, f"step {x:,}: {y:.4g}") for x, y in points]
    return picture(
        f"course-{key}",
        title,
        f"{title} in {len(points):,} values up to step {last:,}.",
        frame.width,
        frame.height,
        frame.axes("step", title),
        *drawn,
    )


Points = list[tuple[float, float]]


def smooth_course(points: Points) -> Points:
    """Each value as the mean of those near it.

    At the beginning, where a loss falls fast, no more values follow than came before.
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
    """At most so many points as can be seen, the last among them."""
    every = -(-len(points) // _MAX_LINE_POINTS)
    return points[::-every][::-1]


def extremes(points: Points) -> Points:
    """The lowest and the highest point of each stretch, so that a thinned line keeps its jumps."""
    length = -(-2 * len(points) // _MAX_LINE_POINTS)
    kept = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        kept += sorted({min(stretch, key=itemgetter(1)), max(stretch, key=itemgetter(1))})
    return kept
