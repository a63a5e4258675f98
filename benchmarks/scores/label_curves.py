"""Accuracy and processor seconds over the number of labels, drawn from what small_data measured.

    python -m benchmarks label_curves --out docs/few-labels.svg

The first picture is the mean over five sets of single texts: a point needs all five.  The second is
the set on which nothing was chosen.  Seconds are the mean of the sets that have processor seconds.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from benchmarks.harness import script
from benchmarks.scores import labels
from benchmarks.scores.compare import MODELS, THEIRS
from tidybert.reporting.drawing import Frame, Picture, moved, straight, text

SINGLE: Final = ("BANKING77", "SMS spam", "SST-2", "TREC", "tickets")
SIZES: Final = ("8 a class", 50, 100, 300, 1000, labels.ALL)
WAYS: Final = {
    "default": ("tidybert's default", ""), "SetFit": ("SetFit", " second"),
    "SetFit, R=20": ("SetFit, 20 pairs a text", " fifth"),
    "vectors": ("vectors + logistic regression", " third"),
    "Trainer": ("transformers", " fourth"),
    "TF-IDF": ("TF-IDF + logistic regression", " sixth"),
}  # fmt: skip
"""By side its name, and the class of its colour."""
_WHOLE: Final = {MODELS[0]: "default", THEIRS: "Trainer"}
"""The sides of full_sets, and what they are called here."""
_LEAST_SECONDS: Final = 0.1

Points = Mapping[str, Sequence[tuple[int, float]]]
"""By side the number of each size that was measured, and the figure."""


def whole_sets(lines: Sequence[script.Line]) -> list[script.Line]:
    """What full_sets measured, as lines of small_data; its seconds are not the processor's."""
    return [
        {"data": line["task"], "size": labels.ALL, "side": _WHOLE[line["side"]],
         "seed": line["seed"], "accuracy": line["metrics"]["accuracy"]}
        for line in lines if line["task"] in SINGLE and line["side"] in _WHOLE
    ]  # fmt: skip


def means(
    lines: Sequence[script.Line], data: Sequence[str], sizes: Sequence[object], key: str, least: int
) -> Points:
    """The mean over the data of the means over the draws, of what ``least`` of the data have."""
    found: dict[str, list[tuple[int, float]]] = {side: [] for side in WAYS}
    for side, points in found.items():
        for number, size in enumerate(sizes):
            draws = [
                [line[key] for line in lines
                 if (line["data"], line["size"], line["side"]) == (name, size, side)
                 and line.get(key) is not None]
                for name in data
            ]  # fmt: skip
            values = [statistics.mean(each) for each in draws if each]
            if len(values) >= least:
                points.append((number, statistics.mean(values)))
    return found


def _panel(
    frame: Frame, title: str, sizes: Sequence[object], points: Points, y: Sequence[float], unit: str
) -> list[Markup]:
    """A frame with a line a side; texts of each class are another draw, so their dot is alone."""
    numbers = [f"{each:,}" if isinstance(each, int) else str(each) for each in sizes]
    is_time = unit == "s"
    drawn = [
        text(title, 8, 14, "panel"),
        frame.axes(
            "labels", x_ticks=range(len(sizes)), x_text=lambda at: numbers[int(at)], y_ticks=y,
            y_text=lambda at: f"{10**at:,g}" if is_time else f"{at:.0f}",
        ),
    ]  # fmt: skip
    for side, (name, colour) in WAYS.items():
        own = points[side]
        at = {number: math.log10(max(each, _LEAST_SECONDS)) if is_time else each
              for number, each in own}  # fmt: skip
        joined = [each for each in at.items() if "class" not in numbers[each[0]]]
        drawn += [frame.line(joined, f"line{colour}")] if joined else []
        drawn += [
            frame.dot(x, at[x], f"{name}, {numbers[x]}: {value:.1f} {unit}", 3, f"dot{colour}")
            for x, value in own
        ]
    return drawn


def picture(lines: Sequence[script.Line]) -> Picture:
    """Both accuracies, and the seconds."""
    found = means(lines, SINGLE, SIZES, "accuracy", len(SINGLE)).values()
    sizes = [SIZES[each] for each in sorted({at for own in found for at, _ in own})]
    all_five = means(lines, SINGLE, sizes, "accuracy", len(SINGLE))
    accuracy = {side: [(at, 100 * of) for at, of in own] for side, own in all_five.items()}
    some = [size for size in SIZES if any(e["data"] == labels.ARTICLES and e["size"] == size
                                          for e in lines)]  # fmt: skip
    one = means(lines, [labels.ARTICLES], some, "accuracy", 1)
    unchosen = {side: [(at, 100 * of) for at, of in own] for side, own in one.items()}
    seconds = means(lines, SINGLE, sizes, "cpu_seconds", 1)
    drawn = [text("Accuracy by number of labels", 8, 22, "heading")]
    shown = [WAYS[side] for side in WAYS if all_five[side] or one[side]]
    for number, (name, colour) in enumerate(shown):
        x, y = (8, 214, 325)[number % 3], 44 + 18 * (number // 3)
        drawn += [straight(f"line{colour}", x, y - 4, x + 20, y - 4), text(name, x + 26, y)]
    lowest = int(min((of for own in accuracy.values() for _, of in own), default=0) // 10 * 10)
    percents, shares, powers = range(lowest, 101, 10), range(0, 101, 20), range(-1, 4)
    top = Frame((-0.4, len(sizes) - 0.6), (lowest, 100), 520, 260, left=36, right=8, top=24)
    left = Frame((-0.6, len(some) - 0.5), (0, 100), 212, 220, left=36, right=4, top=24)
    right = Frame((-0.6, len(sizes) - 0.5), (-1.1, 3.8), 308, 220, left=42, right=4, top=24)
    drawn += [
        moved(0, 72, *_panel(top, "Mean of five sets, %", sizes, accuracy, percents, "%")),
        moved(0, 340, *_panel(left, "20 articles of Wikipedia, %", some, unchosen, shares, "%")),
        moved(212, 340, *_panel(right, "Processor seconds", sizes, seconds, powers, "s")),
    ]
    said = "; ".join(
        f"{WAYS[side][0]} {', '.join(f'{sizes[at]}: {of:.1f}' for at, of in own)}"
        for side, own in accuracy.items()
        if own
    )
    return Picture("few-labels", "Accuracy by number of labels", said, 520, 568, drawn)


def missing(lines: Sequence[script.Line]) -> str:
    """The points of the five sets that are not drawn, by side."""
    found = means(lines, SINGLE, SIZES, "accuracy", len(SINGLE))
    left_out = {
        WAYS[side][0]: [str(size) for at, size in enumerate(SIZES) if at not in dict(own)]
        for side, own in found.items()
    }
    return "; ".join(f"{name}: {', '.join(sizes)}" for name, sizes in left_out.items() if sizes)


def label_curves(parser: argparse.ArgumentParser) -> None:
    """Draw accuracy and processor seconds over the number of labels, from what was measured.

    A point of the five sets needs all of them; those that are missing are printed.  Lines of
    full_sets count as the whole training part, on whole test parts.
    """
    measured = Path("benchmarks/measured")
    parser.add_argument("--small", type=Path, default=measured / "small.jsonl", help="small_data's")
    parser.add_argument("--full", type=Path, default=measured / "full.jsonl", help="full_sets'")
    given = script.parse(parser, "out", out=Path("few-labels.svg"))
    lines = script.Results(given.small).lines + whole_sets(script.Results(given.full).lines)
    picture(lines).save(given.out)
    print(f"{given.out}; not measured on all five sets: {missing(lines) or 'nothing'}")
