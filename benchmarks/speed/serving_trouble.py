"""A long load on tidybert serve while workers are killed, models reloaded, and clients misbehave.

The script measures the capacity and sends --requests at 80% of it, in ten parts.  Meanwhile a
worker is killed with -9 each minute, the models are opened again each minute, and each second a
client sends half of a request and waits, or a whole one and hangs up.  A client whose connection
is lost, or that gets 429 or 503, sends its request again, as programs do.  Each request must be
answered in the end, and memory may not grow.  A classifier with random weights on MODEL answers one
text a request.  It needs Linux.
"""

import itertools
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from benchmarks.harness.datasets import mixed_texts
from benchmarks.harness.rounds import at_least, note, record, script_parser
from benchmarks.harness.tables import markdown
from benchmarks.speed.http_load import HOST, Load, sent
from benchmarks.speed.infer import max_seq_length_for, save_classifier
from benchmarks.speed.serve import cut_texts, write_bodies
from benchmarks.speed.serving_sides import Running, our_side, running

PARTS: Final = 10
MAX_GROWTH: Final = 0.1
SHARE_OF_CAPACITY: Final = 0.8
CLIENTS: Final = 100
CAPACITY_REQUESTS: Final = 3000
TRIES: Final = 20
TICK_S: Final = 1.0
_SLOW_CLIENTS: Final = 30
_SETTLED_S: Final = 90.0


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

    def close(self) -> None:
        for connection in self._slow:
            connection.close()


def workers_of(parent: int) -> list[int]:
    """The processes that ``parent`` has forked."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(each) for each in children if _line(each) == _line(parent)]


def _line(process: int | str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def settled_mib(parent: int, num_workers: int) -> float:
    """Memory of a server and its workers once no worker is leaving, shared pages once, in MiB."""
    end = time.monotonic() + _SETTLED_S
    while len(workers_of(parent)) != num_workers and time.monotonic() < end:
        time.sleep(0.2)
    return sum(map(_shared_once, (parent, *workers_of(parent)))) / 1024


def _shared_once(process: int) -> int:
    """KiB of a process, a page of N processes counted as an N-th."""
    # A worker may end meanwhile.
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


@contextmanager
def troubled(server: Running, request: bytes, every_seconds: float) -> Iterator[Trouble]:
    """Within the block a thread makes trouble: a kill and a reload each ``every_seconds``."""
    ended, trouble = Event(), Trouble(server, request)

    def make() -> None:
        due = time.monotonic()
        rare: Iterator[Callable[[], None]] = itertools.cycle(
            (trouble.kill_a_worker, trouble.reload)
        )
        often = itertools.cycle((trouble.send_a_half, trouble.vanish))
        while not ended.wait(TICK_S):
            with suppress(OSError):
                next(often)()
            if time.monotonic() > due:
                next(rare)()
                due += every_seconds / 2

    thread = Thread(target=make, daemon=True)
    thread.start()
    try:
        yield trouble
    finally:
        ended.set()
        thread.join()
        trouble.close()


def measure(model: str, requests: int, num_workers: int, every_seconds: float) -> dict[str, Any]:
    """The parts of the load, and what was done meanwhile."""
    source, texts = mixed_texts()
    length = max_seq_length_for(model)
    cut = cut_texts(model, texts, length)
    with tempfile.TemporaryDirectory() as folder:
        directory = str(Path(folder) / "model")
        save_classifier(model, Path(directory), length)
        side = our_side(directory, embeds=False)
        side = replace(side, command=[*side.command, "--workers", str(num_workers)])
        bodies = write_bodies(side, cut, Path(folder) / "bodies")
        with running(side, cut[0], None) as server:
            load = Load(server.port, side.path, bodies, CAPACITY_REQUESTS, 32)
            sent(load)
            capacity = sent(load)["requests_per_second"]
            rate, count = SHARE_OF_CAPACITY * capacity, max(1, requests // PARTS)
            limit = 10 * count / rate + 60
            load = replace(
                load, requests=count, clients=CLIENTS, rate=rate, limit_s=limit, tries=TRIES
            )
            body = json.dumps(side.body(cut[0])).encode()
            head = f"POST {side.path} HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            parts = []
            with troubled(server, head.encode() + body, every_seconds) as trouble:
                for number in range(PARTS):
                    part = sent(load)
                    part["mib"] = settled_mib(server.process, num_workers)
                    parts.append(part)
                    times = part["times"].get("200", {})
                    note(
                        f"part {number + 1} of {PARTS}: {part['statuses']}, again {part['again']}, "
                        f"p99 {times.get('p99_ms', 0):,.0f} ms, {part['mib']:.0f} MiB"
                    )
    return {
        "data": source,
        "capacity": capacity,
        "workers": num_workers,
        "parts": parts,
        "trouble": dict(trouble.counts),
    }


def failures(found: Mapping[str, Any]) -> list[str]:
    """What is not as it must be, a line each."""
    lines = [
        f"part {number} has the statuses {part['statuses']}"
        for number, part in enumerate(found["parts"], 1)
        if set(part["statuses"]) != {"200"}
    ]
    first, last = (found["parts"][place]["mib"] for place in (0, -1))
    if last >= (1 + MAX_GROWTH) * first:
        lines.append(f"memory grew from {first:.0f} to {last:.0f} MiB")
    return lines


def table(found: Mapping[str, Any]) -> list[str]:
    """Markdown rows of the first and the last part, and of all."""
    parts = found["parts"]
    rows = []
    for name, part in (("first tenth", parts[0]), ("last tenth", parts[-1])):
        times = part["times"].get("200", {"p50_ms": 0, "p99_ms": 0})
        again = sum(part["again"].values())
        figures = (part["requests_per_second"], times["p50_ms"], times["p99_ms"], again)
        rows.append([name, *(f"{each:,.0f}" for each in (*figures, part["mib"]))])
    return markdown(["load", "requests/s", "p50 ms", "p99 ms", "sent again", "MiB"], rows)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="minilm", help="MODEL that the classifier is on")
    parser.add_argument("--requests", type=at_least(PARTS), default=100_000)
    parser.add_argument("--workers", type=at_least(2), default=2, help="of the server")
    parser.add_argument(
        "--every-seconds", type=float, default=60.0, help="between two kills, and two reloads"
    )
    parser.add_argument("--out", type=Path, help="file for all figures, as JSON")
    given = parser.parse_args()
    found = measure(given.model, given.requests, given.workers, given.every_seconds)
    if given.out:
        given.out.write_text(json.dumps({**found, **record()}))
    answered = sum(part["statuses"].get("200", 0) for part in found["parts"])
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(found["trouble"].items()))
    print(f"{answered:,} of {given.requests:,} requests answered; {done}")
    print("\n".join(table(found)))
    if wrong := failures(found):
        sys.exit("\n".join(wrong))
