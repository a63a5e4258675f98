"""The pictures of a report, each drawn from its part of the contents."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from markupsafe import Markup

from tidybert.reporting.drawing import (
    CellTable,
    Frame,
    Picture,
    around,
    element,
    percent,
    room_for,
    short,
    straight,
    text,
)
from tidybert.reporting.training_history import course_of, smooth_course, thinned

Entry = Mapping[str, Any]

_LARGEST_DOT, _SMALLEST_DOT = 8.0, 2.5
_INTERVAL_WIDTH, _INTERVAL_HEIGHT = 150.0, 18.0
FEWEST_JOINED: Final = 10
"""Examples of a bin of the calibration curve; those of fewer are chance: faint, and not joined."""
MOST_CURVES: Final = 24
"""Types of entities with a picture each."""
# With more classes, a confusion matrix shows no counts, or writes the predicted classes upwards.
_MOST_WITH_COUNTS: Final = 20
_MOST_WITH_FLAT_NAMES: Final = 6


def interval(
    low: float, value: float, high: float, baseline: float | None = None, least: float = 0
) -> Markup:
    """A value, its interval and its baseline on a line from ``least`` to 1, for a row."""

    def place(number: float) -> float:
        return 4 + (number - least) / (1 - least) * (_INTERVAL_WIDTH - 8)

    y, mark = _INTERVAL_HEIGHT / 2, Markup()
    if baseline is not None:
        mark = straight("whisker", place(baseline), 2, place(baseline), _INTERVAL_HEIGHT - 2)
    return element(
        '<svg class="picture" viewBox="0 0 {0} {1}" width="{0}" height="{1}" aria-hidden="true">'
        '{2}{3}{4}<circle cx="{5}" cy="{6}" r="4" class="dot"/></svg>',
        *(_INTERVAL_WIDTH, _INTERVAL_HEIGHT, straight("axis", place(least), y, place(1), y)),
        *(straight("band", place(low), y, place(high), y), mark, place(value), y),
    )


def calibration(
    bins: Sequence[Entry], right: str = "accuracy", sure: str = "confidence", noun: str = "answers"
) -> Markup:
    """The mean correctness of answers, called ``right``, by confidence; equal on the diagonal."""
    frame = Frame((0, 1), (0, 1))
    most = max(each["count"] for each in bins)
    joined = [each for each in bins if each["count"] >= FEWEST_JOINED]
    dots = []
    for each in bins:
        x, y, faint = each["confidence"], each["accuracy"], "" if each in joined else " faint"
        dots.append(frame.upright(x, each["low"], each["high"], f"whisker{faint}"))
        hover = f"{each['count']:,} {noun}: {sure} {x:.3f}, {right} {y:.3f}"
        radius = _SMALLEST_DOT + (_LARGEST_DOT - _SMALLEST_DOT) * (each["count"] / most) ** 0.5
        dots.append(frame.dot(x, y, hover, radius, f"dot{faint}"))
    return frame.picture(
        "calibration" if sure == "confidence" else f"calibration-{sure}",
        "Calibration curve",
        f"The {right} of the {noun} by their {sure}; on the dashed diagonal both are equal.",
        frame.axes(sure, right, x_text=percent, y_text=percent),
        frame.line([(0, 0), (1, 1)], "ideal"),
        frame.line([(each["confidence"], each["accuracy"]) for each in joined], "line thin"),
        *dots,
    )


def coverage(points: Sequence[Entry], right: str = "accuracy") -> Markup:
    """The mean correctness of the surest answers, called ``right``, by their share."""
    line = [(each["coverage"], each["accuracy"]) for each in points]
    lowest = min(accuracy for _, accuracy in line)
    frame = Frame((0, 1), (max(0.0, min(0.9, int(lowest * 10) / 10)), 1))
    return frame.picture(
        "coverage",
        f"{right[0].upper()}{right[1:]} against coverage",
        f"The {right} of the surest answers, for each fraction of the examples.",
        frame.axes("fraction answered, surest first", right, x_text=percent, y_text=percent),
        frame.line(line),
    )


def recall(points: Sequence[Entry], chosen: Entry | None, name: str, number: int) -> Markup:
    """The precision of a type's entities by their recall, and the point that was chosen."""
    frame, dots = Frame((0, 1), (0, 1)), []
    if chosen is not None and chosen["num_given"]:
        x, y = chosen["recall"]["value"], chosen["precision"]
        hover = f"score {chosen['threshold']:.4g}: recall {x:.3f}, precision {y['value']:.3f}"
        dots = [
            frame.upright(x, y["low"], y["high"]),
            frame.dot(x, y["value"], hover, 6, "dot second"),
        ]
    return frame.picture(
        f"recall-{number}",
        f"{name}: precision against recall",
        f"The precision of entities of the type {name}, for each share of them that is found.",
        frame.axes("recall", "precision", x_text=percent, y_text=percent),
        frame.line([(each["recall"], each["precision"]) for each in points]),
        *dots,
    )


def lengths(groups: Sequence[Entry], name: str, of_scores: bool) -> Markup:
    """Accuracy, or the mean absolute error of scores, by number of tokens."""
    top = max(each["high"] for each in groups) * 1.05 if of_scores else 1.0
    frame = Frame((0, len(groups)), (0, top))
    bars = []
    for place, each in enumerate(groups):
        hover = f"{token_range(each)} tokens, {each['count']:,} examples: {each['mean']:.3f}"
        bars.append(frame.bar((place + 0.12, place + 0.88), (0, each["mean"]), hover))
        bars.append(frame.upright(place + 0.5, each["low"], each["high"]))
    return frame.picture(
        "lengths",
        f"Length against {name}",
        f"The {name} for each range of tokens, with its 95 % interval.",
        frame.axes(
            "tokens in the example",
            name,
            x_ticks=[place + 0.5 for place in range(len(groups))],
            x_text=lambda at: token_range(groups[int(at)]),
            y_text=short if of_scores else percent,
        ),
        *bars,
    )


def token_range(group: Entry) -> str:
    """The numbers of tokens that a group holds: 7, or 8–11."""
    low, high = group["from"], group["to"]
    return f"{low}" if low == high else f"{low}–{high}"


def scatter(points: Sequence[Sequence[float]]) -> Markup:
    both = around(value for point in points for value in point)
    frame = Frame(both, both, height=420)
    return frame.picture(
        "scatter",
        "Predicted scores against true ones",
        "A dot for each example; on the dashed diagonal the prediction is right.",
        frame.axes("true score", "predicted score"),
        frame.line([(both[0], both[0]), (both[1], both[1])], "ideal"),
        *(frame.dot(x, y, None, 2.5, "dot faint") for x, y in points),
    )


def residuals(edges: Sequence[float], counts: Sequence[int]) -> Markup:
    frame = Frame((edges[0], edges[-1]), (0, max(counts) * 1.05))
    return frame.picture(
        "residuals",
        "Residuals",
        "How many examples are predicted too low (left of 0) or too high, and by how much.",
        frame.axes("predicted minus true score", "examples"),
        *_bars(frame, edges, counts, "examples"),
        frame.upright(0, *frame.y, "ideal"),
    )


def similarities(edges: Sequence[float], counts: Sequence[int], kind: str) -> Markup:
    """How many queries have their nearest text of a kind, right or wrong, at which cosine."""
    frame = Frame((edges[0], edges[-1]), (0, max(max(counts), 1) * 1.05))
    return frame.picture(
        f"similarities-{kind}",
        f"Nearest {kind} texts",
        f"How many queries have their nearest {kind} text at which cosine.",
        frame.axes(f"cosine of the nearest {kind} text", "queries"),
        *_bars(frame, edges, counts, "queries"),
    )


def _bars(
    frame: Frame, edges: Sequence[float], counts: Sequence[int], noun: str
) -> Iterator[Markup]:
    for ends, count in zip(pairwise(edges), counts, strict=True):
        if count:
            yield frame.bar(ends, (0, count), f"{ends[0]:.3g} to {ends[1]:.3g}: {count:,} {noun}")


def course(
    key: str,
    entries: Sequence[Mapping[str, float]],
    title: str,
    *,
    dots: bool = False,
    smoothed: bool = False,
    stage: str = "",
) -> Markup:
    """How ``key`` went over the steps, with a dot for each value or a mean over neighbours.

    ``stage`` has steps of its own, before step 1.
    """
    points = course_of(entries, key)
    last = max(step for step, _ in points)
    # Step 0 may be all that was measured.
    frame = Frame((0, max(1, last)), around(value for _, value in points), height=220)
    drawn = [frame.line(thinned(points), "line thin" if smoothed else "line")]
    if smoothed:
        drawn.append(frame.line(thinned(smooth_course(points))))
    if dots:
        drawn += [frame.dot(x, y, f"step {x:,}: {y:.4g}") for x, y in points]
    return frame.picture(
        f"course-{stage or key}",
        title,
        f"{title} in {len(points):,} values up to step {last:,}.",
        frame.axes("step", title),
        *drawn,
    )


def confusion(names: Sequence[str], matrix: Sequence[Sequence[int]]) -> Markup:
    """Rows of true classes and columns of predicted ones; cells show their share of the row.

    Up to 20 classes have their counts in the cells. Long names are cut; the pointer shows the full
    names of a cell.
    """
    with_counts, flat = len(names) <= _MOST_WITH_COUNTS, len(names) <= _MOST_WITH_FLAT_NAMES
    wide, high = (max(84.0, room_for(names)) if flat else 38.0, 34.0) if with_counts else (11, 11)
    table = CellTable(names, wide, high, flat, small=not with_counts)
    left, top = table.corner
    cells = []
    for row, line in enumerate(matrix):
        for column, count in enumerate(line):
            if not count:
                continue
            share, right = count / sum(line), row == column
            said = "right" if right else f"taken for {names[column]}"
            hover = f"{names[row]}: {count:,} ({100 * share:.1f} %) {said}"
            class_, words = "right" if right else "wrong", f"{count:,}" if with_counts else ""
            # The root keeps a share of 1 % visible beside one of 90 %.
            cells.append(table.cell((row, column), class_, share**0.5, hover, words))
    return Picture(
        "confusion",
        "Confusion matrix",
        "Rows are true classes and columns predicted ones; the diagonal is right. The tables "
        "below have the same counts.",
        *table.size,
        [
            text("predicted", left, 12, "name"),
            text("true", 12, top, "name", "end", upwards=True),
            table.lines(),
            *cells,
        ],
    ).inline


_SHADES: Final = ("first", "second", "third", "fourth", "fifth", "sixth")


def topic_map(contents: Entry) -> Markup:
    """Texts as dots in the colours of their topics, and a topic's number in its middle."""
    points, wide, high = contents["map"], 860.0, 560.0
    x, y = ([each[name] for each in points] for name in ("x", "y"))
    edges = {"left": 8.0, "right": 8.0, "top": 8.0, "bottom": 8.0}
    frame = Frame(around(x, 0.02), around(y, 0.02), wide, high, **edges)
    by_topic: dict[int, list[Entry]] = {}
    for each in points:
        by_topic.setdefault(each["topic"], []).append(each)
    dots, numbers = [], []
    for topic, own in sorted(by_topic.items()):
        shade, name = _SHADES[topic % len(_SHADES)], contents["topics"][topic - 1]["name"]
        for each in own:
            dots.append(
                element(
                    '<circle cx="{}" cy="{}" r="3" class="topic {}" data-topic="{}">'
                    "<title>{}</title></circle>",
                    *(frame.at_x(each["x"]), frame.at_y(each["y"]), shade, topic),
                    f"{topic} {name}: {each['text']}",
                )
            )
        middle = (frame.at_x(median(e["x"] for e in own)), frame.at_y(median(e["y"] for e in own)))
        numbers.append(text(str(topic), middle[0], middle[1] + 4, "halo", "middle"))
    said = f"{len(points)} texts in {len(by_topic)} topics; texts that are alike are near."
    return Picture("topics", "Map of the texts", said, wide, high, [*dots, *numbers]).inline
