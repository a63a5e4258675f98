"""tidybert serve timed: clients that send a text a request, answer times, and long loads."""

import argparse
import itertools
import json
import math
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from markupsafe import Markup

from benchmarks.harness import datasets, script
from benchmarks.speed import servers
from benchmarks.speed.infer import difference, save_classifier
from benchmarks.speed.servers import HOST, OK, Load, request, sent
from benchmarks.speed.training import max_seq_length_for
from tidybert.catalog import find_model
from tidybert.errors import UsageError
from tidybert.files.rows import count_of
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
    """What ``take_rounds`` finds of the servers, with _N for N clients.

    Their answers must be the same in float32.  Of more than two there are no ratios.
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
        embeds = given.against == servers.INFINITY
        sides = {
            f"ours {precision}".removesuffix(" float32"): servers.our_side(
                directory, "--precision", precision, embeds=embeds
            )
            for precision in given.precision
        }
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
                values["peak_mib"] = script.memory_mib(server.process)
            return values

        result = script.take_rounds(list(sides), given.rounds, measure)
    if len(sides) > 2:
        result["ratios"] = {}
    exact = [each for name, each in answers.items() if " " not in name]
    return {
        **result,
        **{name: getattr(given, name) for name in ("requests", "threads", "max_seq_length")},
        "num_texts": len(texts),
        "num_cut": sum(one != text for one, text in zip(cut, texts, strict=True)),
        "largest_difference_of_answers": difference("answers", exact, ANSWERS_TOLERANCE),
        "generators_share_of_a_core": max(shares),
    }


def serve(parser: argparse.ArgumentParser) -> None:
    """Time tidybert serve with 1, 8, 32 and 128 clients that send a text a request.

    Each round starts each server, times its first answer, and asks it with growing numbers of
    clients.  The servers classify with random weights on MODEL.  The other side is a FastAPI
    handler around transformers' pipeline as its guide shows it: a text at a time, or with dynamic
    batching. Beside infinity both servers answer with the embeddings of MODEL.  It needs Linux.
    """
    script.add_against(parser, servers.OTHERS)
    script.add_number(parser, "requests", 400, "by number of clients; 8 a client at least")
    parser.add_argument("--infinity", default="infinity_emb", help="command of infinity-emb")
    kinds = ("float32", "bfloat16", "int8")
    parser.add_argument("--precision", nargs="+", choices=kinds, default=["float32"])
    given = script.parse(parser, "model rounds json threads")
    if not Path("/proc/self/stat").exists():
        raise UsageError("serve reads /proc, which this system does not have")
    source, texts = datasets.mixed_texts()
    given.max_seq_length = max_seq_length_for(given.model)
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
    largest = result["largest_difference_of_answers"]
    if largest is not None:
        remarks.append(f"largest difference of answers: {largest:.1e}")
    title = f"Serving: {source}, {given.model}, {', '.join(given.precision)}, a text a request"
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

    The capacity is what 32 clients get that each wait for their answer.  Then requests come at
    fixed times, at growing shares of it, and a time counts from when its request was due.
    """
    script.add_against(parser, (servers.TRANSFORMERS,))
    script.add_number(parser, "requests", 400, "at each share")
    given = script.parse(parser, "model threads out json", out=Path("answer-times.svg"))
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


# --- long loads

PARTS: Final = 10
SHARE_OF_CAPACITY: Final = 0.8
_HEADS: Final = (
    "load", "requests/s", "200", "429", "p50 ms", "p99 ms", "p99 ms of 429", "sent again", "MiB",
)  # fmt: skip


def failures(parts: Sequence[Mapping[str, Any]], max_growth: float) -> list[str]:
    """What is not as it must be in the parts of a load below capacity, a line each."""
    lines = [
        f"part {number} has the statuses {part['statuses']}"
        for number, part in enumerate(parts, 1)
        if set(part["statuses"]) != {"200"}
    ]
    first, last = (parts[place]["mib"] for place in (0, -1))
    if last >= (1 + max_growth) * first:
        lines.append(f"memory grew from {first:.0f} to {last:.0f} MiB")
    return lines


def rows_of(found: Mapping[str, Any]) -> list[list[str]]:
    """A row of the first and the last part, and of the overload if there was one."""
    named = {"first tenth": found["parts"][0], "last tenth": found["parts"][-1]}
    if "overload" in found:
        named[f"{OVERLOAD} times capacity"] = found["overload"]
    rows = []
    for name, part in named.items():
        counts = [part["statuses"].get(status, 0) for status in ("200", "429")]
        times = [
            f"{part['times'][status][of]:,.0f}" if status in part["times"] else ""
            for status, of in (("200", "p50_ms"), ("200", "p99_ms"), ("429", "p99_ms"))
        ]
        again = sum(part["again"].values())
        row = [name, f"{part['requests_per_second']:,.0f}", *(f"{each:,}" for each in counts)]
        rows.append([*row, *times, f"{again:,}", f"{part['mib']:,.0f}"])
    return rows


def _finish(given: argparse.Namespace, title: str, found: Any, wrong: Sequence[str]) -> None:
    """Write and print what was found, and exit where something is not as it must be."""
    if given.out is not None:
        given.out.write_text(json.dumps({**found, **script.record()}))
    script.print_table(given, title, found, _HEADS, rows_of(found))
    if wrong:
        sys.exit("\n".join(wrong))


# --- beyond the capacity

MAX_SOAK_GROWTH: Final = 0.05
OVERLOAD: Final = 3
QUEUE_INPUTS: Final = 128
CONNECTIONS: Final = 400
"""More than the queue and the threads hold, so that requests do come at their rate."""
# The 99th percentile of what is taken, in times of the queue at the measured capacity.
MAX_QUEUES: Final = 3.0
MAX_REFUSAL_MS: Final = 500.0


def soak(model: str, requests: int, overload_seconds: float, capacity_requests: int) -> Any:
    """All three loads on one server, and what was measured."""
    with servers.classifier_of(model) as (source, directory, texts):
        side = servers.our_side(directory, "--queue-inputs", str(QUEUE_INPUTS))
        with servers.under_load(side, texts, capacity_requests) as (server, load, capacity):

            def at(share: float, count: int) -> dict[str, Any]:
                found = sent(load.at(share * capacity, max(1, count), CONNECTIONS))
                return {**found, "mib": script.memory_mib(server.process, "VmRSS")}

            parts = []
            for number in range(PARTS):
                parts.append(at(SHARE_OF_CAPACITY, requests // PARTS))
                script.note(f"part {number + 1} of {PARTS}: {parts[-1]['mib']:.0f} MiB")
            overload = at(OVERLOAD, round(OVERLOAD * capacity * overload_seconds))
    return {"data": source, "capacity": capacity, "parts": parts, "overload": overload}


def soak_failures(found: Mapping[str, Any]) -> list[str]:
    """What is not as it must be, a line each."""
    lines, overload = failures(found["parts"], MAX_SOAK_GROWTH), found["overload"]
    if set(overload["statuses"]) != {"200", "429"}:
        return [*lines, f"the overload has the statuses {overload['statuses']}, not 200 and 429"]
    longest = 1e3 * MAX_QUEUES * QUEUE_INPUTS / found["capacity"]
    taken, refused = (overload["times"][status]["p99_ms"] for status in ("200", "429"))
    if taken > longest:
        lines.append(f"p99 of what was taken is {taken:,.0f} ms, more than {longest:,.0f} ms")
    if refused > MAX_REFUSAL_MS:
        lines.append(f"p99 of the refusals is {refused:,.0f} ms, more than {MAX_REFUSAL_MS:,.0f}")
    return lines


def serving_soak(parser: argparse.ArgumentParser) -> None:
    """A long load on tidybert serve, and three times as many requests as it can answer.

    --requests come at 80% of the capacity, in ten parts: none may fail, and memory may grow by less
    than 5%.  Then three times the capacity comes for --overload-seconds: every request is answered
    or gets 429, and those that are taken wait no longer than the queue of 128 inputs allows.
    """
    script.add_number(parser, "requests", 100_000, "requests below capacity")
    script.add_number(parser, "capacity-requests", 1000, "to measure capacity")
    parser.add_argument(
        "--overload-seconds", type=float, default=60.0, help="seconds of three times capacity"
    )
    given = script.parse(parser, "model out")
    found = soak(given.model, given.requests, given.overload_seconds, given.capacity_requests)
    title = f"capacity: {found['capacity']:,.0f} requests/s of {found['data']}"
    _finish(given, title, found, soak_failures(found))


# --- workers that die, and clients that misbehave

MAX_TROUBLED_GROWTH: Final = 0.1
TROUBLED_CLIENTS: Final = 100
CAPACITY_REQUESTS: Final = 3000
TRIES: Final = 20
TICK_S: Final = 1.0
_SLOW_CLIENTS: Final = 30
SETTLED_S: Final = 90.0


@contextmanager
def trouble(server: servers.Running, whole: bytes, every_seconds: float) -> Iterator[Counter[str]]:
    """Within the block a thread makes trouble, which is counted; a kill each ``every_seconds``."""
    counts: Counter[str] = Counter()
    slow: deque[socket.socket] = deque()
    ended = Event()

    def make(what: str) -> None:
        if what == "workers killed":
            os.kill(random.choice(workers_of(server.process)), signal.SIGKILL)
        elif what == "reloads":
            os.kill(server.process, signal.SIGHUP)
        else:
            connection = socket.create_connection((HOST, server.port))
            slow.append(connection)
            if what == "clients that hung up":
                connection.sendall(whole)
                slow.pop().close()
            else:
                # It stops in the middle of its request.
                connection.sendall(whole[: len(whole) // 2])
            if len(slow) > _SLOW_CLIENTS:
                slow.popleft().close()
        counts[what] += 1

    def run() -> None:
        due = time.monotonic()
        rare = itertools.cycle(("workers killed", "reloads"))
        often = itertools.cycle(("slow clients", "clients that hung up"))
        while not ended.wait(TICK_S):
            with suppress(OSError, IndexError):
                make(next(often))
            if time.monotonic() > due:
                with suppress(OSError, IndexError):
                    make(next(rare))
                due += every_seconds / 2

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        ended.set()
        thread.join()
        for connection in slow:
            connection.close()


def workers_of(parent: int) -> list[int]:
    """The processes that ``parent`` has forked."""

    def command(process: int | str) -> bytes:
        with suppress(OSError):
            return Path(f"/proc/{process}/cmdline").read_bytes()
        return b""

    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(each) for each in children if command(each) == command(parent)]


def settled_mib(parent: int, num_workers: int) -> float:
    """Memory of a server and its workers once no worker is leaving, shared pages once, in MiB."""
    end = time.monotonic() + SETTLED_S
    while len(workers_of(parent)) != num_workers and time.monotonic() < end:
        time.sleep(0.2)
    kib = 0
    for process in (parent, *workers_of(parent)):
        # A worker may end meanwhile.
        with suppress(OSError):
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                # A page of N processes is counted as an N-th.
                if line.startswith("Pss:"):
                    kib += int(line.split()[1])
    return kib / 1024


def troubled(model: str, requests: int, num_workers: int, every_seconds: float) -> dict[str, Any]:
    """The parts of the load, and what was done meanwhile."""
    with servers.classifier_of(model) as (source, directory, texts):
        side = servers.our_side(directory, "--workers", str(num_workers))
        with servers.under_load(side, texts, CAPACITY_REQUESTS) as (server, load, capacity):
            load = load.at(
                SHARE_OF_CAPACITY * capacity, max(1, requests // PARTS), TROUBLED_CLIENTS, TRIES
            )
            body = json.dumps(side.body(texts[0])).encode()
            whole, parts = request(side.path, server.port, body), []
            with trouble(server, whole, every_seconds) as counts:
                for number in range(PARTS):
                    parts.append(sent(load))
                    parts[-1]["mib"] = settled_mib(server.process, num_workers)
                    said = {name: parts[-1][name] for name in ("statuses", "again", "times", "mib")}
                    script.note(f"part {number + 1} of {PARTS}: {said}")
    return {"data": source, "capacity": capacity, "workers": num_workers, "parts": parts,
            "trouble": dict(counts)}  # fmt: skip


def serving_trouble(parser: argparse.ArgumentParser) -> None:
    """A long load on tidybert serve while workers are killed, models reloaded, clients misbehave.

    --requests come at 80% of the capacity, in ten parts.  Each minute a worker is killed with -9
    and the models are opened again; each second a client sends half of a request and waits, or a
    whole one and hangs up.  A client that lost its connection, or gets 429 or 503, sends again.
    Each request must be answered in the end, and memory may not grow.  It needs Linux.
    """
    script.add_number(parser, "requests", 100_000, least=PARTS)
    script.add_number(parser, "workers", 2, "of the server", least=2)
    parser.add_argument(
        "--every-seconds", type=float, default=60.0, help="between two kills, and two reloads"
    )
    given = script.parse(parser, "model out")
    found = troubled(given.model, given.requests, given.workers, given.every_seconds)
    answered = sum(part["statuses"].get("200", 0) for part in found["parts"])
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(found["trouble"].items()))
    title = f"{answered:,} of {given.requests:,} requests answered; {done}"
    _finish(given, title, found, failures(found["parts"], MAX_TROUBLED_GROWTH))
