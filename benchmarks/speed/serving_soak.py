"""A long load on tidybert serve, and three times as many requests as it can answer.

First the script measures the capacity: requests a second of 32 clients that each wait for their
answer.  Then it sends --requests at 80% of that, in ten parts: none may fail, and resident memory
may grow by less than 5% from the end of the first part to the end of the last.  Then it sends
three times the capacity for --overload-seconds: every request is answered or gets 429, and the
requests that are taken wait no longer than the queue allows.  The queue is short, 128 inputs.
A classifier with random weights on MODEL answers one text a request.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.datasets import mixed_texts
from benchmarks.harness.processes import memory_mib
from benchmarks.harness.rounds import note, record, script_parser
from benchmarks.harness.tables import markdown
from benchmarks.speed.http_load import Load, sent
from benchmarks.speed.infer import max_seq_length_for, save_classifier
from benchmarks.speed.serve import cut_texts, write_bodies
from benchmarks.speed.serving_sides import our_side, running

PARTS: Final = 10
MAX_GROWTH: Final = 0.05
SHARE_OF_CAPACITY: Final = 0.8
OVERLOAD: Final = 3
QUEUE_INPUTS: Final = 128
CONNECTIONS: Final = 400
"""More than the queue and the threads hold, so that requests do come at their rate."""
# The 99th percentile of what is taken, in times of the queue at the measured capacity.
MAX_QUEUES: Final = 3.0
MAX_REFUSAL_MS: Final = 500.0


def soak(model: str, requests: int, overload_seconds: float, capacity_requests: int) -> Any:
    """All three loads on one server, and what was measured."""
    source, texts = mixed_texts()
    length = max_seq_length_for(model)
    cut = cut_texts(model, texts, length)
    with tempfile.TemporaryDirectory() as folder:
        directory = str(Path(folder) / "model")
        save_classifier(model, Path(directory), length)
        side = our_side(directory, embeds=False)
        side = replace(side, command=[*side.command, "--queue-inputs", str(QUEUE_INPUTS)])
        bodies = write_bodies(side, cut, Path(folder) / "bodies")
        with running(side, cut[0], None) as server:
            load = Load(server.port, side.path, bodies, capacity_requests, 32)
            sent(load)
            capacity = sent(load)["requests_per_second"]

            def at(rate: float, count: int) -> dict[str, Any]:
                limit = 10 * count / rate + 60
                more = replace(load, requests=count, clients=CONNECTIONS, rate=rate, limit_s=limit)
                found = sent(more)
                return {**found, "resident_mib": memory_mib(server.process, "VmRSS")}

            parts = []
            for number in range(PARTS):
                parts.append(at(SHARE_OF_CAPACITY * capacity, max(1, requests // PARTS)))
                note(f"part {number + 1} of {PARTS}: {parts[-1]['resident_mib']:.0f} MiB")
            rate = OVERLOAD * capacity
            overload = at(rate, max(1, round(rate * overload_seconds)))
    return {"data": source, "capacity": capacity, "parts": parts, "overload": overload}


def failures(found: Mapping[str, Any]) -> list[str]:
    """What is not as it must be, a line each."""
    lines = []
    first, last = (found["parts"][place]["resident_mib"] for place in (0, -1))
    if last >= (1 + MAX_GROWTH) * first:
        lines.append(f"memory grew from {first:.0f} to {last:.0f} MiB")
    for number, part in enumerate(found["parts"], 1):
        if set(part["statuses"]) != {"200"}:
            lines.append(f"part {number} has the statuses {part['statuses']}")
    overload = found["overload"]
    if set(overload["statuses"]) != {"200", "429"}:
        lines.append(f"the overload has the statuses {overload['statuses']}, not 200 and 429")
        return lines
    longest = 1e3 * MAX_QUEUES * QUEUE_INPUTS / found["capacity"]
    taken, refused = (overload["times"][status]["p99_ms"] for status in ("200", "429"))
    if taken > longest:
        lines.append(f"p99 of what was taken is {taken:,.0f} ms, more than {longest:,.0f} ms")
    if refused > MAX_REFUSAL_MS:
        lines.append(f"p99 of the refusals is {refused:,.0f} ms, more than {MAX_REFUSAL_MS:,.0f}")
    return lines


def table(found: Mapping[str, Any]) -> list[str]:
    """Markdown rows of the loads."""
    named = {"first tenth": found["parts"][0], "last tenth": found["parts"][-1]}
    rows = []
    for name, part in {**named, f"{OVERLOAD} times capacity": found["overload"]}.items():
        statuses, times = part["statuses"], part["times"]

        def ms(status: str, quantile: str, times: Any = times) -> str:
            return f"{times[status][quantile]:,.0f}" if status in times else ""

        rows.append(
            [
                name,
                f"{part['requests_per_second']:,.0f}",
                f"{statuses.get('200', 0):,}",
                f"{statuses.get('429', 0):,}",
                *(ms("200", "p50_ms"), ms("200", "p99_ms"), ms("429", "p99_ms")),
                f"{part['resident_mib']:,.0f}",
            ]
        )
    heads = ["load", "requests/s", "200", "429", "p50 ms", "p99 ms", "p99 ms of 429", "MiB"]
    return markdown(heads, rows)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="minilm", help="MODEL that the classifier is on")
    parser.add_argument("--requests", type=int, default=100_000, help="requests below capacity")
    parser.add_argument("--capacity-requests", type=int, default=1000, help="to measure capacity")
    parser.add_argument(
        "--overload-seconds", type=float, default=60.0, help="seconds of three times capacity"
    )
    parser.add_argument("--out", type=Path, help="file for all figures, as JSON")
    given = parser.parse_args()
    found = soak(given.model, given.requests, given.overload_seconds, given.capacity_requests)
    if given.out:
        given.out.write_text(json.dumps({**found, **record()}))
    print(f"capacity: {found['capacity']:,.0f} requests/s of {found['data']}")
    print("\n".join(table(found)))
    if wrong := failures(found):
        sys.exit("\n".join(wrong))
