"""Draw the answer time of tidybert serve against its load, in float32 and in int8.

For each server the script first measures the capacity: requests a second of 32 clients that each
wait for their answer.  Then requests come at fixed times, at growing shares of that capacity, and
a time counts from when its request was due.  The picture has p50 and p99 over requests a second.
The texts are those of ``serve``.  --against transformers adds the guide's handler.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from benchmarks.harness.datasets import mixed_texts
from benchmarks.harness.rounds import at_least, note, record, script_parser
from benchmarks.harness.tables import markdown
from benchmarks.speed.http_load import OK, Load, sent
from benchmarks.speed.infer import max_seq_length_for, save_classifier
from benchmarks.speed.serve import cut_texts, write_bodies
from benchmarks.speed.serving_sides import TRANSFORMERS, Side, other_side, our_side, running
from tidybert.errors import TidyBertError
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
    ours = our_side(directory, embeds=False)
    sides = {
        f"tidybert, {precision}": replace(
            ours, command=[*ours.command, "--precision", precision], name=precision
        )
        for precision in ("float32", "int8")
    }
    if against is not None:
        sides[against] = other_side(against, directory)
    return sides


def curve_of(side: Side, bodies: str, first: str, requests: int, threads: int | None) -> Curve:
    """The answer times of one server; raises TidyBertError where it refuses a request."""
    points = []
    with running(side, first, threads) as server:
        load = Load(server.port, side.path, bodies, requests, 32)
        sent(load)
        capacity = _checked(side, load)["requests_per_second"]
        for share in SHARES:
            rate = share * capacity
            limit = 10 * requests / rate + 60
            times = _checked(side, replace(load, clients=_CONNECTIONS, rate=rate, limit_s=limit))[
                "times"
            ][str(OK)]
            points.append({"rate": rate, "p50_ms": times["p50_ms"], "p99_ms": times["p99_ms"]})
            note(f"{side.name} at {rate:.0f} requests/s: p50 {times['p50_ms']:.1f} ms")
    return points


def _checked(side: Side, load: Load) -> dict[str, Any]:
    found = sent(load)
    if set(found["statuses"]) != {str(OK)}:
        raise TidyBertError(
            f"the {side.name} side answered with the statuses {found['statuses']} (0: it closed "
            f"the connection): expected only {OK}"
        )
    return found


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
        [
            name,
            f"{share:.0%}",
            *(f"{point[each]:,.0f}" for each in ("rate", "p50_ms", "p99_ms")),
        ]
        for name, curve in curves.items()
        for share, point in zip(SHARES, curve, strict=True)
    ]
    return markdown(["server", "load", "requests/s", "p50 ms", "p99 ms"], rows)


def flags() -> argparse.ArgumentParser:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="minilm", help="MODEL that the classifier is on")
    parser.add_argument("--against", choices=(TRANSFORMERS,), help="draw this handler too")
    parser.add_argument(
        "--requests", type=at_least(1), default=400, help="at each share (default 400)"
    )
    parser.add_argument("--threads", type=at_least(1), help="OMP_NUM_THREADS of the servers")
    parser.add_argument("--out", type=Path, default=Path("answer-times.svg"), help="the picture")
    parser.add_argument("--json", action="store_true", help="print one JSON object, every point")
    return parser


def main() -> None:
    given = flags().parse_args()
    source, texts = mixed_texts()
    length = max_seq_length_for(given.model)
    cut = cut_texts(given.model, texts, length)
    curves: dict[str, Curve] = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = str(Path(folder) / "model")
        save_classifier(given.model, Path(directory), length)
        for name, side in sides_of(directory, given.against).items():
            bodies = write_bodies(side, cut, Path(folder) / "bodies")
            curves[name] = curve_of(side, bodies, cut[0], given.requests, given.threads)
    picture(curves).save(given.out)
    if given.json:
        print(json.dumps({"bench": "answer_times", "data": source, "curves": curves, **record()}))
        return
    print(f"{source}, {given.model}, a text a request; the picture is {given.out}\n")
    print("\n".join(table(curves)))
