"""Long loads on tidybert serve: beyond its capacity, and while workers die and clients misbehave.

A classifier with random weights on MODEL answers one text a request.
"""

import argparse
import itertools
import json
import os
import random
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from benchmarks.harness import processes, script
from benchmarks.speed.http_load import HOST, request, sent
from benchmarks.speed.servers import Running, classifier_of, our_side, under_load

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
    with classifier_of(model) as (source, directory, texts):
        side = our_side(directory, "--queue-inputs", str(QUEUE_INPUTS))
        with under_load(side, texts, capacity_requests) as (server, load, capacity):

            def at(share: float, count: int) -> dict[str, Any]:
                found = sent(load.at(share * capacity, max(1, count), CONNECTIONS))
                return {**found, "mib": processes.memory_mib(server.process, "VmRSS")}

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

    First the script measures the capacity: requests a second of 32 clients that each wait for their
    answer.  Then it sends --requests at 80% of that, in ten parts: none may fail, and resident
    memory may grow by less than 5% from the end of the first part to the end of the last.  Then it
    sends three times the capacity for --overload-seconds: every request is answered or gets 429,
    and the requests that are taken wait no longer than the queue allows.  The queue is short, 128
    inputs.  A classifier with random weights on MODEL answers one text a request.
    """
    script.add_flags(parser, "model out")
    script.add_number(parser, "requests", 100_000, "requests below capacity")
    script.add_number(parser, "capacity-requests", 1000, "to measure capacity")
    parser.add_argument(
        "--overload-seconds", type=float, default=60.0, help="seconds of three times capacity"
    )
    given = parser.parse_args()
    found = soak(given.model, given.requests, given.overload_seconds, given.capacity_requests)
    title = f"capacity: {found['capacity']:,.0f} requests/s of {found['data']}"
    _finish(given, title, found, soak_failures(found))


# --- workers that die, and clients that misbehave

MAX_TROUBLED_GROWTH: Final = 0.1
CLIENTS: Final = 100
CAPACITY_REQUESTS: Final = 3000
TRIES: Final = 20
TICK_S: Final = 1.0
_SLOW_CLIENTS: Final = 30
SETTLED_S: Final = 90.0


class Trouble:
    """What is done to a server: ``counts`` has how often, by what."""

    def __init__(self, server: Running, request: bytes) -> None:
        self._server, self._request = server, request
        self._slow: deque[socket.socket] = deque()
        self.counts: Counter[str] = Counter()

    def kill_a_worker(self) -> None:
        """SIGKILL to one of the workers."""
        with suppress(ProcessLookupError, IndexError):
            os.kill(random.choice(workers_of(self._server.process)), signal.SIGKILL)
            self.counts["workers killed"] += 1

    def reload(self) -> None:
        """Have the parent open the models again."""
        os.kill(self._server.process, signal.SIGHUP)
        self.counts["reloads"] += 1

    def send_a_half(self) -> None:
        """A client that stops in the middle of its request; the oldest one hangs up."""
        connection = socket.create_connection((HOST, self._server.port))
        connection.sendall(self._request[: len(self._request) // 2])
        self._slow.append(connection)
        if len(self._slow) > _SLOW_CLIENTS:
            self._slow.popleft().close()
        self.counts["slow clients"] += 1

    def vanish(self) -> None:
        """A client that hangs up before its answer."""
        with socket.create_connection((HOST, self._server.port)) as connection:
            connection.sendall(self._request)
        self.counts["clients that hung up"] += 1

    @contextmanager
    def made(self, every_seconds: float) -> Iterator[None]:
        """Within the block a thread makes it: a kill and a reload each ``every_seconds``."""
        ended = Event()

        def make() -> None:
            due = time.monotonic()
            rare: Iterator[Callable[[], None]] = itertools.cycle((self.kill_a_worker, self.reload))
            often = itertools.cycle((self.send_a_half, self.vanish))
            while not ended.wait(TICK_S):
                with suppress(OSError):
                    next(often)()
                if time.monotonic() > due:
                    next(rare)()
                    due += every_seconds / 2

        thread = Thread(target=make, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            for connection in self._slow:
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
    with classifier_of(model) as (source, directory, texts):
        side = our_side(directory, "--workers", str(num_workers))
        with under_load(side, texts, CAPACITY_REQUESTS) as (server, load, capacity):
            load = load.at(SHARE_OF_CAPACITY * capacity, max(1, requests // PARTS), CLIENTS, TRIES)
            body = json.dumps(side.body(texts[0])).encode()
            trouble, parts = Trouble(server, request(side.path, server.port, body)), []
            with trouble.made(every_seconds):
                for number in range(PARTS):
                    parts.append(sent(load))
                    parts[-1]["mib"] = settled_mib(server.process, num_workers)
                    said = {name: parts[-1][name] for name in ("statuses", "again", "times", "mib")}
                    script.note(f"part {number + 1} of {PARTS}: {said}")
    return {"data": source, "capacity": capacity, "workers": num_workers, "parts": parts,
            "trouble": dict(trouble.counts)}  # fmt: skip


def serving_trouble(parser: argparse.ArgumentParser) -> None:
    """A long load on tidybert serve while workers are killed, models reloaded, clients misbehave.

    The script measures the capacity and sends --requests at 80% of it, in ten parts.  Meanwhile a
    worker is killed with -9 each minute, the models are opened again each minute, and each second a
    client sends half of a request and waits, or a whole one and hangs up.  A client whose
    connection is lost, or that gets 429 or 503, sends its request again, as programs do.  Each
    request must be answered in the end, and memory may not grow.  A classifier with random weights
    on MODEL answers one text a request.  It needs Linux.
    """
    script.add_flags(parser, "model out")
    script.add_number(parser, "requests", 100_000, least=PARTS)
    script.add_number(parser, "workers", 2, "of the server", least=2)
    parser.add_argument(
        "--every-seconds", type=float, default=60.0, help="between two kills, and two reloads"
    )
    given = parser.parse_args()
    found = troubled(given.model, given.requests, given.workers, given.every_seconds)
    answered = sum(part["statuses"].get("200", 0) for part in found["parts"])
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(found["trouble"].items()))
    title = f"{answered:,} of {given.requests:,} requests answered; {done}"
    _finish(given, title, found, failures(found["parts"], MAX_TROUBLED_GROWTH))
