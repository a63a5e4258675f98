"""Draw the answer time of tidybert serve against its load, in float32 and in int8.

For each server the script first measures the capacity: requests a second of 32 clients that each
wait for their answer.  Then requests come at fixed times, at growing shares of that capacity, and
a time counts from when its request was due.  The picture has p50 and p99 over requests a second.
The texts are those of ``serve``.  --against transformers adds the guide's handler.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from markupsafe import Markup

from benchmarks.harness import script
from benchmarks.speed.http_load import OK
from benchmarks.speed.servers import (
    TRANSFORMERS,
    Side,
    asked,
    classifier_of,
    other_side,
    our_side,
    under_load,
)
from tidybert.reporting.drawing import Frame, Picture, straight, text

SHARES: Final = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9)
"""Of the capacity."""
_CONNECTIONS: Final = 256
_CLASSES: Final = ("line", "line second", "line third")
_MS_TICKS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

Curve = Sequence[Mapping[str, float]]
"""A point a share: "rate" in requests a second, "p50_ms" and "p99_ms"."""


def sides_of(directory: str, against: str | None) -> dict[str, Side]:
    """The servers, by the name that the picture has."""
    sides = {}
    for precision in ("float32", "int8"):
        side = our_side(directory, "--precision", precision)
        sides[f"tidybert, {precision}"] = replace(side, name=precision)
    return sides if against is None else {**sides, against: other_side(against, directory)}


def curve_of(side: Side, texts: Sequence[str], requests: int, threads: int | None) -> Curve:
    """The answer times of one server; raises TidyBertError where it refuses a request."""
    points = []
    with under_load(side, texts, requests, threads) as (_, load, capacity):
        for share in SHARES:
            rate = share * capacity
            times = asked(side, load.at(rate, requests, _CONNECTIONS))["times"][str(OK)]
            points.append({"rate": rate, "p50_ms": times["p50_ms"], "p99_ms": times["p99_ms"]})
            script.note(f"{side.name} at {rate:.0f} requests/s: p50 {times['p50_ms']:.1f} ms")
    return points


def picture(curves: Mapping[str, Curve]) -> Picture:
    """p50 as lines and p99 as broken lines, on a scale of powers."""
    points = [point for curve in curves.values() for point in curve]
    fastest = max(point["rate"] for point in points)
    low, high = min(point["p50_ms"] for point in points), max(point["p99_ms"] for point in points)
    frame = Frame(
        (0.0, fastest * 1.05), (math.log10(low) - 0.1, math.log10(high) + 0.1), 780, 380, top=84
    )
    shown = [math.log10(ms) for ms in _MS_TICKS if frame.y[0] <= math.log10(ms) <= frame.y[1]]
    drawn: list[Markup] = [
        text("Answer time against load", 52, 26, "heading"),
        frame.axes(
            "requests a second",
            "milliseconds",
            y_ticks=shown,
            y_text=lambda power: f"{10**power:,.0f}",
        ),
    ]
    for at, (class_, (name, curve)) in enumerate(zip(_CLASSES, curves.items(), strict=False)):
        for quantile, style in (("p50_ms", ""), ("p99_ms", " thin")):
            places = [(point["rate"], math.log10(point[quantile])) for point in curve]
            drawn.append(frame.line(places, class_ + style))
        drawn += [
            frame.dot(
                point["rate"],
                math.log10(point["p50_ms"]),
                f"{name}, {point['rate']:.0f} requests/s: p50 {point['p50_ms']:.1f} ms, "
                f"p99 {point['p99_ms']:.1f} ms",
                3,
                class_.replace("line", "dot"),
            )
            for point in curve
        ]
        left = 52 + 240 * at
        drawn += [straight(class_, left, 48, left + 26, 48), text(name, left + 33, 52)]
    drawn.append(text("thick: half of the answers come in this time; thin: 99% of them", 52, 72))
    figures = "; ".join(
        f"{name}: p50 {curve[0]['p50_ms']:.1f} ms at {curve[0]['rate']:.0f} requests/s, "
        f"{curve[-1]['p50_ms']:.1f} ms at {curve[-1]['rate']:.0f}"
        for name, curve in curves.items()
    )
    return Picture("answer-times", "Answer time against load", figures, 780, 380, drawn)


def table(curves: Mapping[str, Curve]) -> list[str]:
    """A row for each share of each server's capacity."""
    rows = [
        [name, f"{share:.0%}", *(f"{point[of]:,.0f}" for of in ("rate", "p50_ms", "p99_ms"))]
        for name, curve in curves.items()
        for share, point in zip(SHARES, curve, strict=True)
    ]
    return script.markdown(["server", "load", "requests/s", "p50 ms", "p99 ms"], rows)


def main(parser: argparse.ArgumentParser) -> None:
    script.add_against(parser, (TRANSFORMERS,))
    script.add_flags(parser, "model threads out json", out=Path("answer-times.svg"))
    parser.add_argument(
        "--requests", type=script.at_least(1), default=400, help="at each share (default 400)"
    )
    given = parser.parse_args()
    with classifier_of(given.model) as (source, directory, texts):
        curves = {
            name: curve_of(side, texts, given.requests, given.threads)
            for name, side in sides_of(directory, given.against).items()
        }
    picture(curves).save(given.out)
    if given.json:
        print(
            json.dumps(
                {"bench": "answer_times", "data": source, "curves": curves, **script.record()}
            )
        )
        return
    print(f"{source}, {given.model}, a text a request; the picture is {given.out}\n")
    print("\n".join(table(curves)))
