"""Load over HTTP: clients that send one request at a time, from a process of its own.

A client sends its next request when its answer is there.  With ``rate`` requests are due at fixed
times instead, whether or not earlier ones were answered, and a time counts from when its request
was due.  The requests are bounded in number and time, and go to this machine only.
"""

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import processes
from tidybert.errors import TidyBertError

HOST: Final = "127.0.0.1"
OK: Final = 200
_LOST: Final = 0
"""In place of a status: the connection ended before the answer."""
_LATER: Final = (_LOST, 429, 503)
"""What a client sends again, where it may."""
_PAUSE_S: Final = 0.5
_TIMES: Final = {"p50_ms": 0.50, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}


@dataclass(frozen=True)
class Load:
    """What is sent, how often, and by how many clients."""

    port: int
    path: str
    bodies: str
    """A file with a JSON body a line; from the last on, the first one follows."""
    requests: int
    clients: int
    rate: float | None = None
    """Requests a second; None: each client sends again when its answer is there."""
    kept: int = 0
    """Return the answers to this many requests, from the first on."""
    limit_s: float = 300.0
    """Fail after this many seconds."""
    tries: int = 1
    """How often a request is sent at most where it is lost, or the server has no room for it."""

    def at(self, rate: float, requests: int, clients: int, tries: int = 1) -> "Load":
        """The same bodies at a rate, with time enough."""
        limit = 10 * requests / rate + 60
        return Load(self.port, self.path, self.bodies, requests, clients, rate, 0, limit, tries)


@dataclass
class _Seen:
    """What came back: seconds by status, the answers that are kept, and what was sent again."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    again: Counter[int] = field(default_factory=Counter)
    answers: dict[int, Any] = field(default_factory=dict)


def run_load(load: Load) -> dict[str, Any]:
    """Send the requests; raises TidyBertError where they take longer than ``limit_s``.

    Returns {"seconds" (from the first request to the last answer), "requests_per_second",
    "statuses" (how many answers of each), "times" (by status: p50_ms, p95_ms, p99_ms, max_ms),
    "answers" (parsed, of the first ``kept`` requests), "again" (requests that were sent again, by
    the status before), "share_of_a_core" (the generator's own processor time a second)}.
    """
    bodies = [line.encode() for line in Path(load.bodies).read_text("utf-8").splitlines()]
    seen = _Seen()
    try:
        seconds, busy = asyncio.run(_send_all(load, bodies, seen))
    except TimeoutError:
        done = sum(map(len, seen.seconds.values()))
        raise TidyBertError(
            f"{done:,} of {load.requests:,} requests were answered within {load.limit_s:g} seconds"
        ) from None
    by_status = {str(status): times for status, times in sorted(seen.seconds.items())}
    return {
        "seconds": seconds,
        "requests_per_second": load.requests / seconds,
        "statuses": {status: len(times) for status, times in by_status.items()},
        "times": {status: _quantiles(times) for status, times in by_status.items()},
        "answers": [seen.answers[number] for number in sorted(seen.answers)],
        "again": {str(status): count for status, count in sorted(seen.again.items())},
        "share_of_a_core": busy / seconds,
    }


def request(path: str, port: int, body: bytes) -> bytes:
    """A whole request."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
    return b"%sContent-Length: %d\r\n\r\n%s" % (head.encode(), len(body), body)


def _quantiles(times: Sequence[float]) -> dict[str, float]:
    """The smallest time that this share of the requests did not exceed, in milliseconds."""
    ordered = sorted(times)
    last = len(ordered)
    return {name: 1e3 * ordered[math.ceil(share * last) - 1] for name, share in _TIMES.items()}


async def _send_all(load: Load, bodies: Sequence[bytes], seen: _Seen) -> tuple[float, float]:
    async with asyncio.timeout(load.limit_s):
        clients = [_Client(load, bodies, seen) for _ in range(load.clients)]
        await asyncio.gather(*(client.connect() for client in clients))
        numbers = iter(range(load.requests))
        begin, busy = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client.send(numbers, begin) for client in clients))
        ended = time.perf_counter() - begin, time.process_time() - busy
        for client in clients:
            client.close()
    return ended


class _Client:
    """One connection, which is opened again where it was lost."""

    def __init__(self, load: Load, bodies: Sequence[bytes], seen: _Seen) -> None:
        self._load, self._bodies, self._seen = load, bodies, seen
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # A server may close a connection that was not used for a while.
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._load.port)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def send(self, numbers: Iterator[int], begin: float) -> None:
        """Send requests from ``numbers``, which the clients share, until none is left."""
        for number in numbers:
            start = time.perf_counter()
            if self._load.rate is not None:
                due = begin + number / self._load.rate
                await asyncio.sleep(due - start)
                start = due
            for left in reversed(range(self._load.tries)):
                try:
                    status, body = await self._ask(self._bodies[number % len(self._bodies)])
                except (OSError, asyncio.IncompleteReadError):
                    status, body = _LOST, b""
                    self.close()
                if not left or status not in _LATER:
                    break
                self._seen.again[status] += 1
                await asyncio.sleep(_PAUSE_S)
            self._seen.seconds.setdefault(status, []).append(time.perf_counter() - start)
            if number < self._load.kept:
                self._seen.answers[number] = json.loads(body or b"null")

    async def _ask(self, body: bytes) -> tuple[int, bytes]:
        reader, writer = await self.connect()
        writer.write(request(self._load.path, self._load.port, body))
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:] if line)
        content = await reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection") == b"close":
            self.close()
        return int(lines[0].split()[1]), content


def sent(load: Load, name: str = "load") -> dict[str, Any]:
    """What ``run_load`` returns in a process of its own."""
    return processes.run_apart(_run_here, name, asdict(load), 1)


def _run_here(_side: str, load: dict[str, Any]) -> dict[str, Any]:
    return run_load(Load(**load))
