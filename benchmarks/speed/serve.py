"""tidybert serve timed: clients that send a text a request, and answer times against the load."""

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from benchmarks.harness import datasets, processes, script
from benchmarks.speed import servers
from benchmarks.speed.http_load import OK, Load
from benchmarks.speed.infer import difference
from benchmarks.speed.inference_sides import max_seq_length_for, save_classifier
from tidybert.catalog import find_model
from tidybert.errors import UsageError
from tidybert.files.rows import count_of
from tidybert.files.text_files import read_examples
from tidybert.reporting.drawing import Frame, Picture, straight, text
from tidybert.tokenization import BertTokenizer

CLIENTS: Final = (1, 8, 32, 128)
ANSWERS_TOLERANCE: Final = 1e-3
_REQUESTS_A_CLIENT: Final = 8
"""At least, so that most requests have the company of all clients."""
_WARM_UP: Final = 32
"""Requests before the clock; their answers are compared."""
_SHOWN: Final = {
    "texts/s": "texts_per_second", "p50 ms": "p50_ms", "p95 ms": "p95_ms", "p99 ms": "p99_ms",
    "CPU ms/text": "cpu_ms_per_text",
}  # fmt: skip


def bench_serving(texts: Sequence[str], given: argparse.Namespace) -> dict[str, Any]:
    """What ``take_rounds`` finds of the servers.

    The quantities are those of _SHOWN with _N for N clients, seconds_to_first_answer (from the
    start of the process) and peak_mib.  The processor time is the server's only.  Raises
    TidyBertError where a server fails or refuses a request, or where the sides' answers differ by
    more than ANSWERS_TOLERANCE.
    """
    length, tokenizer = given.max_seq_length, BertTokenizer.from_pretrained(given.model)
    cut = [servers.cut_text(text, tokenizer, length) for text in texts]
    answers: dict[str, list[list[float]]] = {}
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        directory = str(find_model(given.model))
        if given.against != servers.INFINITY:
            directory = str(Path(folder) / "model")
            save_classifier(given.model, Path(directory), length)
        sides = {"ours": servers.our_side(directory, embeds=given.against == servers.INFINITY)}
        if given.against is not None:
            sides[given.against] = servers.other_side(given.against, directory, given.infinity)

        def measure(name: str) -> Mapping[str, float]:
            side, values = sides[name], {}
            bodies = servers.write_bodies(side, cut, Path(folder) / name)
            with servers.running(side, cut[0], given.threads) as server:
                values["seconds_to_first_answer"] = server.seconds_to_first_answer
                load = Load(server.port, side.path, bodies, _WARM_UP, 4, kept=_WARM_UP)
                answers[name] = [side.read(found) for found in servers.asked(side, load)["answers"]]
                for number in CLIENTS:
                    count = max(given.requests, _REQUESTS_A_CLIENT * number)
                    begin = server.cpu_seconds()
                    found = servers.asked(side, Load(server.port, side.path, bodies, count, number))
                    used = 1e3 * (server.cpu_seconds() - begin) / count
                    every = found["times"][str(OK)] | {"cpu_ms_per_text": used}
                    every["texts_per_second"] = found["requests_per_second"]
                    values |= {f"{name}_{number}": every[name] for name in _SHOWN.values()}
                    shares.append(found["share_of_a_core"])
                values["peak_mib"] = processes.memory_mib(server.process)
            return values

        result = script.take_rounds(list(sides), given.rounds, measure)
    return {
        **result,
        **{name: getattr(given, name) for name in ("requests", "threads", "max_seq_length")},
        "num_texts": len(texts),
        "num_cut": sum(one != text for one, text in zip(cut, texts, strict=True)),
        "largest_difference_of_answers": difference(
            "answers", list(answers.values()), ANSWERS_TOLERANCE
        ),
        "generators_share_of_a_core": max(shares),
    }


def serve(parser: argparse.ArgumentParser) -> None:
    """Time tidybert serve with 1, 8, 32 and 128 clients that send a text a request.

    Each round starts each server, times its first answer, and asks it with growing numbers of
    clients from a process of its own.  The servers classify with random weights on MODEL.  The
    other side is a FastAPI handler around transformers' pipeline as its guide for web servers shows
    it: a text at a time, or with the guide's dynamic batching.  Beside infinity both servers answer
    with the embeddings of MODEL.  Without the data folder (TIDYBERT_DATA, or ../shared/data) the
    texts are the bundled tickets.  It needs Linux, which tells the time and memory of other
    processes.
    """
    script.add_against(parser, servers.OTHERS)
    script.add_flags(parser, "model rounds json threads texts max-seq-length")
    script.add_number(parser, "requests", 400, "by number of clients; 8 a client at least")
    parser.add_argument("--infinity", default="infinity_emb", help="command of infinity-emb")
    given = parser.parse_args()
    if not Path("/proc/self/stat").exists():
        raise UsageError("serve reads /proc, which this system does not have")
    if given.texts is None:
        source, texts = datasets.mixed_texts()
    else:
        source = given.texts
        texts = [one.text for one in read_examples(source, need_label=False)]
    given.max_seq_length = max_seq_length_for(given.model, given.max_seq_length)
    result = bench_serving(texts, given)
    rows = {
        f"{name}, {count_of(number, 'client')}": f"{quantity}_{number}"
        for number in CLIENTS
        for name, quantity in _SHOWN.items()
    }
    rows |= {"seconds to the first answer": "seconds_to_first_answer", "peak MiB": "peak_mib"}
    cut = f"{result['num_cut']:,} of {result['num_texts']:,}"
    remarks = [
        f"cut to {given.max_seq_length} tokens before they were sent: {cut} texts",
        f"a core's time that sending took: {result['generators_share_of_a_core']:.1%} at most",
    ]
    if given.against:
        largest = result["largest_difference_of_answers"]
        remarks.append(f"largest difference of answers: {largest:.1e}")
    title = f"Serving: {source}, {given.model}, float32, a text a request"
    script.print_speed(given, title, result, rows, remarks)


# --- answer times against the load

SHARES: Final = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9)
"""Of the capacity."""
_CONNECTIONS: Final = 256
_CLASSES: Final = ("line", "line second", "line third")
_MS_TICKS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

Curve = Sequence[Mapping[str, float]]
"""A point a share: "rate" in requests a second, "p50_ms" and "p99_ms"."""


def sides_of(directory: str, against: str | None) -> dict[str, servers.Side]:
    """The servers, by the name that the picture has."""
    sides = {}
    for precision in ("float32", "int8"):
        side = servers.our_side(directory, "--precision", precision)
        sides[f"tidybert, {precision}"] = replace(side, name=precision)
    return {**sides, **({against: servers.other_side(against, directory)} if against else {})}


def curve_of(side: servers.Side, texts: Sequence[str], requests: int, threads: int | None) -> Curve:
    """The answer times of one server; raises TidyBertError where it refuses a request."""
    points = []
    with servers.under_load(side, texts, requests, threads) as (_, load, capacity):
        for share in SHARES:
            rate = share * capacity
            times = servers.asked(side, load.at(rate, requests, _CONNECTIONS))["times"][str(OK)]
            points.append({"rate": rate, "p50_ms": times["p50_ms"], "p99_ms": times["p99_ms"]})
            script.note(f"{side.name} at {rate:.0f} requests/s: p50 {times['p50_ms']:.1f} ms")
    return points


def picture(curves: Mapping[str, Curve]) -> Picture:
    """p50 as lines and p99 as broken lines, on a scale of powers."""
    points = [point for curve in curves.values() for point in curve]
    fastest = max(point["rate"] for point in points)
    low, high = min(point["p50_ms"] for point in points), max(point["p99_ms"] for point in points)
    heights = math.log10(low) - 0.1, math.log10(high) + 0.1
    frame = Frame((0.0, fastest * 1.05), heights, 780, 380, top=84)
    drawn: list[Markup] = [
        text("Answer time against load", 52, 26, "heading"),
        frame.axes(
            "requests a second",
            "milliseconds",
            y_ticks=[
                tick for tick in map(math.log10, _MS_TICKS) if heights[0] <= tick <= heights[1]
            ],
            y_text=lambda power: f"{10**power:,.0f}",
        ),
    ]
    for at, (class_, (name, curve)) in enumerate(zip(_CLASSES, curves.items(), strict=False)):
        for quantile, style in (("p50_ms", ""), ("p99_ms", " thin")):
            places = [(point["rate"], math.log10(point[quantile])) for point in curve]
            drawn.append(frame.line(places, class_ + style))
        for point in curve:
            rate, p50 = point["rate"], point["p50_ms"]
            said = f"{name}, {rate:.0f} requests/s: p50 {p50:.1f} ms, p99 {point['p99_ms']:.1f} ms"
            dot = class_.replace("line", "dot")
            drawn.append(frame.dot(rate, math.log10(p50), said, 3, dot))
        left = 52 + 240 * at
        drawn += [straight(class_, left, 48, left + 26, 48), text(name, left + 33, 52)]
    drawn.append(text("thick: half of the answers come in this time; thin: 99% of them", 52, 72))
    figures = "; ".join(
        f"{name}: p50 {curve[0]['p50_ms']:.1f} ms at {curve[0]['rate']:.0f} requests/s, "
        f"{curve[-1]['p50_ms']:.1f} ms at {curve[-1]['rate']:.0f}"
        for name, curve in curves.items()
    )
    return Picture("answer-times", "Answer time against load", figures, 780, 380, drawn)


def answer_times(parser: argparse.ArgumentParser) -> None:
    """Draw the answer time of tidybert serve against its load, in float32 and in int8.

    For each server the script first measures the capacity: requests a second of 32 clients that
    each wait for their answer.  Then requests come at fixed times, at growing shares of that
    capacity, and a time counts from when its request was due.  The picture has p50 and p99 over
    requests a second.  The texts are those of ``serve``.  --against transformers adds the guide's
    handler.
    """
    script.add_against(parser, (servers.TRANSFORMERS,))
    script.add_flags(parser, "model threads out json", out=Path("answer-times.svg"))
    script.add_number(parser, "requests", 400, "at each share")
    given = parser.parse_args()
    with servers.classifier_of(given.model) as (source, directory, texts):
        curves = {
            name: curve_of(side, texts, given.requests, given.threads)
            for name, side in sides_of(directory, given.against).items()
        }
    picture(curves).save(given.out)
    rows = [
        [name, f"{share:.0%}", *(f"{point[of]:,.0f}" for of in ("rate", "p50_ms", "p99_ms"))]
        for name, curve in curves.items()
        for share, point in zip(SHARES, curve, strict=True)
    ]
    title = f"{source}, {given.model}, a text a request; the picture is {given.out}"
    heads = ["server", "load", "requests/s", "p50 ms", "p99 ms"]
    script.print_table(given, title, {"curves": curves}, heads, rows)
