"""A long load on tidybert serve, and three times as many requests as it can answer.

    python benchmarks/serving_soak.py --requests 100000 --out soak.json

First the script measures the capacity: requests a second of 32 clients that each wait for their
answer.  Then it sends --requests at 80% of that, in ten parts: none may fail, and resident memory
may grow by less than 5% from the end of the first part to the end of the last.  At last it sends
three times the capacity for --overload-seconds: every request is answered or gets 429, and the
requests that are taken wait no longer than the queue allows.  The queue is short, 128 inputs.
A classifier with random weights on MODEL answers one text a request.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from tidybert.system.machine import machine
from tidybert.timing.http_load import Load
from tidybert.timing.inference_speed import save_classifier
from tidybert.timing.measuring import run_apart
from tidybert.timing.serving_sides import our_side, running
from tidybert.timing.serving_speed import cut_texts
from tidybert.timing.setting import mixed_texts

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


def resident_mib(process: int) -> float:
    """The resident memory of a process now, in MiB (Linux)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def ask(load: Load) -> dict[str, Any]:
    """What the load generator reports of a load."""
    found: dict[str, Any] = run_apart("tidybert.timing.http_load", "load", asdict(load), 1)
    return found


def soak(model: str, requests: int, overload_seconds: float, capacity_requests: int) -> Any:
    """All three loads on one server, and what was measured."""
    source, texts = mixed_texts()
    with tempfile.TemporaryDirectory() as folder:
        directory = str(Path(folder) / "model")
        save_classifier(model, Path(directory), 128)
        side = our_side(directory, embeds=False)
        limits = ["--queue-inputs", str(QUEUE_INPUTS)]
        side = replace(side, command=[*side.command, *limits])
        sent = cut_texts(model, texts, 128)
        bodies = Path(folder) / "bodies"
        bodies.write_text("".join(f"{json.dumps(side.body(text))}\n" for text in sent))
        with running(side, sent[0], None) as server:
            load = Load(server.port, side.path, str(bodies), capacity_requests, 32)
            ask(load)
            capacity = ask(load)["requests_per_second"]
            parts = []
            for number in range(PARTS):
                rate = SHARE_OF_CAPACITY * capacity
                count = max(1, requests // PARTS)
                limit = 10 * count / rate + 60
                found = ask(
                    replace(load, requests=count, clients=CONNECTIONS, rate=rate, limit_s=limit)
                )
                parts.append({**found, "resident_mib": resident_mib(server.process)})
                print(f"part {number + 1} of {PARTS}: {parts[-1]['resident_mib']:.0f} MiB")
            rate = OVERLOAD * capacity
            count = max(1, round(rate * overload_seconds))
            limit = 10 * overload_seconds + 60
            overload = ask(
                replace(load, requests=count, clients=CONNECTIONS, rate=rate, limit_s=limit)
            )
            overload["resident_mib"] = resident_mib(server.process)
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
    rows = ["| load | requests/s | 200 | 429 | p50 ms | p99 ms | p99 ms of 429 | MiB |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    named = {"first tenth": found["parts"][0], "last tenth": found["parts"][-1]}
    for name, part in {**named, f"{OVERLOAD} times capacity": found["overload"]}.items():
        statuses, times = part["statuses"], part["times"]
        taken, refused = times.get("200"), times.get("429")
        cells = [
            f"{part['requests_per_second']:,.0f}",
            f"{statuses.get('200', 0):,}",
            f"{statuses.get('429', 0):,}",
            f"{taken['p50_ms']:,.0f}" if taken else "",
            f"{taken['p99_ms']:,.0f}" if taken else "",
            f"{refused['p99_ms']:,.0f}" if refused else "",
            f"{part['resident_mib']:,.0f}",
        ]
        rows.append(f"| {' | '.join([name, *cells])} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
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
        given.out.write_text(json.dumps({**found, "machine": machine()}))
    print(f"capacity: {found['capacity']:,.0f} requests/s of {found['data']}")
    print("\n".join(table(found)))
    if wrong := failures(found):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
