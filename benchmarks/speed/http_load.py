"""Load over HTTP, and the server of the other side, each in a process of its own.

A client sends its next request when its answer is there.  With ``rate`` requests are due at fixed
times instead, whether or not earlier ones were answered, and a time counts from when its request
was due.  The requests are bounded in number and time, and go to this machine only.
"""

import asyncio
import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import script
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


class _Sending:
    """A load that is sent: seconds by status, the answers that are kept, what was sent again."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.bodies = [line.encode() for line in Path(load.bodies).read_text("utf-8").splitlines()]
        self.seconds: dict[int, list[float]] = defaultdict(list)
        self.again: Counter[int] = Counter()
        self.answers: dict[int, Any] = {}

    async def run(self) -> tuple[float, float]:
        """Send all; the seconds by the clock and those of this process."""
        async with asyncio.timeout(self.load.limit_s):
            clients = [_Client(self.load) for _ in range(self.load.clients)]
            await asyncio.gather(*(client.connect() for client in clients))
            numbers = iter(range(self.load.requests))
            begin, busy = time.perf_counter(), time.process_time()
            await asyncio.gather(*(self.send(client, numbers, begin) for client in clients))
            ended = time.perf_counter() - begin, time.process_time() - busy
            for client in clients:
                client.close()
        return ended

    async def send(self, client: "_Client", numbers: Iterator[int], begin: float) -> None:
        """Send requests from ``numbers``, which the clients share, until none is left."""
        for number in numbers:
            start = time.perf_counter()
            if self.load.rate is not None:
                due = begin + number / self.load.rate
                await asyncio.sleep(due - start)
                start = due
            for left in reversed(range(self.load.tries)):
                try:
                    status, body = await client.ask(self.bodies[number % len(self.bodies)])
                except (OSError, asyncio.IncompleteReadError):
                    status, body = _LOST, b""
                    client.close()
                if not left or status not in _LATER:
                    break
                self.again[status] += 1
                await asyncio.sleep(_PAUSE_S)
            self.seconds[status].append(time.perf_counter() - start)
            if number < self.load.kept:
                self.answers[number] = json.loads(body or b"null")


class _Client:
    """One connection, which is opened again where it was lost."""

    def __init__(self, load: Load) -> None:
        self._load = load
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

    async def ask(self, body: bytes) -> tuple[int, bytes]:
        """The status and the content of an answer."""
        reader, writer = await self.connect()
        writer.write(request(self._load.path, self._load.port, body))
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:] if line)
        content = await reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection") == b"close":
            self.close()
        return int(lines[0].split()[1]), content


def run_load(_side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Send the requests of a Load; raises TidyBertError where they take longer than ``limit_s``.

    "times" are those that a share of the requests did not exceed, "again" counts what was sent
    again by the status before, "share_of_a_core" is this process's own.
    """
    load = Load(**given)
    sending = _Sending(load)
    try:
        seconds, busy = asyncio.run(sending.run())
    except TimeoutError:
        done = sum(map(len, sending.seconds.values()))
        raise TidyBertError(
            f"{done:,} of {load.requests:,} requests were answered within {load.limit_s:g} seconds"
        ) from None
    times = {}
    for status, each in sorted(sending.seconds.items()):
        places = {name: math.ceil(share * len(each)) - 1 for name, share in _TIMES.items()}
        times[str(status)] = {name: 1e3 * sorted(each)[place] for name, place in places.items()}
    return {
        "seconds": seconds,
        "requests_per_second": load.requests / seconds,
        "statuses": {str(each): len(found) for each, found in sorted(sending.seconds.items())},
        "times": times,
        "answers": [sending.answers[number] for number in sorted(sending.answers)],
        "again": {str(status): count for status, count in sorted(sending.again.items())},
        "share_of_a_core": busy / seconds,
    }


def request(path: str, port: int, body: bytes) -> bytes:
    """A whole request."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
    return b"%sContent-Length: %d\r\n\r\n%s" % (head.encode(), len(body), body)


def sent(load: Load, name: str = "load") -> dict[str, Any]:
    """What ``run_load`` returns in a process of its own."""
    return script.run_apart(run_load, name, asdict(load), 1)


# --- FastAPI around transformers' pipeline, as transformers' guide "Web server inference" has it

BATCHING: Final = "transformers-batching"
_WAIT_S: Final = 0.001

Asked = asyncio.Queue[tuple[str, asyncio.Future[Any]]]


async def run_singly(pipe: Any, asked: Asked) -> None:
    """Answer a text at a time."""
    while True:
        text, answer = await asked.get()
        answer.set_result(pipe(text))


async def run_in_batches(pipe: Any, asked: Asked) -> None:
    """Answer together the texts that come within a millisecond of one another."""
    while True:
        taken = [await asked.get()]
        while True:
            try:
                taken.append(await asyncio.wait_for(asked.get(), _WAIT_S))
            except TimeoutError:
                break
        found = pipe([text for text, _ in taken], batch_size=len(taken))
        for (_, answer), one in zip(taken, found, strict=True):
            answer.set_result([one])


def serve(side: str, directory: str, port: int) -> None:
    """Serve ``POST /``: it takes {"text": …} and answers as the pipeline does, until a signal."""
    import uvicorn
    from fastapi import FastAPI, Request

    transformers = script.quiet_transformers()
    asked: Asked = asyncio.Queue()

    @asynccontextmanager
    async def run(_app: FastAPI) -> AsyncIterator[None]:
        pipe = transformers.pipeline("text-classification", model=directory)
        loop = run_in_batches if side == BATCHING else run_singly
        task = asyncio.create_task(loop(pipe, asked))
        yield
        task.cancel()

    app = FastAPI(lifespan=run)

    @app.post("/")
    async def classify(request: Request) -> Any:
        given = await request.json()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await asked.put((given["text"], answer))
        return await answer

    uvicorn.run(app, host=HOST, port=port, log_level="warning")


if __name__ == "__main__":
    serve(sys.argv[1], **json.loads(sys.argv[2]))
