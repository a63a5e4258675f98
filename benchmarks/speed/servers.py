"""The servers that are timed, and the load on them, each in a process of its own.

A client sends its next request when its answer is there.  With ``rate`` requests are due at fixed
times, and a time counts from when its request was due.  All goes to this machine only.
"""

import asyncio
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from benchmarks import ENVIRONMENT
from benchmarks.harness import datasets, script
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.system.cores import WAITING
from tidybert.tokenization import BertTokenizer

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
        reader, writer = await self.connect()
        writer.write(request(self._load.path, self._load.port, body))
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:] if line)
        content = await reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection") == b"close":
            self.close()
        return int(lines[0].split()[1]), content


def run_load(_side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Send the requests of a Load, and tell answers, statuses and the times of _TIMES."""
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
        "seconds": seconds, "requests_per_second": load.requests / seconds,
        "statuses": {str(each): len(found) for each, found in sorted(sending.seconds.items())},
        "times": times, "answers": [sending.answers[number] for number in sorted(sending.answers)],
        "again": {str(status): count for status, count in sorted(sending.again.items())},
        "share_of_a_core": busy / seconds,
    }  # fmt: skip


def request(path: str, port: int, body: bytes) -> bytes:
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


# --- the servers: how to start, ask and read each of them

TRANSFORMERS: Final = "transformers"
INFINITY: Final = "infinity"
OTHERS: Final = (TRANSFORMERS, BATCHING, INFINITY)
_START_S: Final = 120.0
_STOP_S: Final = 20.0


@dataclass(frozen=True)
class Side:
    """One server: a command with ``{port}`` in it, a route, a body a text, and its answer."""

    name: str
    command: Sequence[str]
    path: str
    body: Callable[[str], dict[str, Any]]
    read: Callable[[Any], list[float]]
    """From an answer to its numbers: the same text gives the same ones on every side."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """A server that has answered."""

    process: int
    port: int
    seconds_to_first_answer: float

    def cpu_seconds(self) -> float:
        """The processor time of the server so far (Linux)."""
        words = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        # utime and stime of proc(5).
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def our_side(directory: str, *flags: str, embeds: bool = False) -> Side:
    """``tidybert serve`` with flags: predict, or OpenAI's route for embeddings."""
    command = [sys.executable, "-m", "tidybert", "serve", f"bench={directory}", "--port", "{port}"]
    command += flags
    if embeds:
        return Side("ours", command, "/v1/embeddings", *_EMBEDDING)
    path = "/v1/models/bench/predict"
    return Side("ours", command, path, lambda text: {"inputs": text}, _probability)


def other_side(name: str, directory: str, command: str = "infinity_emb") -> Side:
    """A side of OTHERS; raises UsageError where it is not installed."""
    if name == INFINITY:
        if shutil.which(command) is None:
            raise UsageError(
                f"{param('infinity', command)}: no such program; install the package infinity-emb "
                "in an environment of its own, and name its command infinity_emb"
            )
        words = [command, "v2", "--model-id", directory, "--served-model-name", "bench"]
        words += ["--engine", "torch", "--device", "cpu", "--dtype", "float32"]
        # A cache of answers would be timed where a text comes again.
        words += ["--no-vector-disk-cache", "--host", HOST, "--port", "{port}"]
        quiet = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", **WAITING}
        return Side(name, words, "/embeddings", *_EMBEDDING, quiet)
    script.need(name, TRANSFORMERS)
    work = json.dumps({"directory": directory, "port": "PORT"}).replace('"PORT"', "{port}")
    words = [sys.executable, "-m", "benchmarks.speed.servers", name, work]
    # With PyTorch's own way of waiting it takes three times as long beside its clients.
    return Side(
        name, words, "/", lambda text: {"text": text}, lambda found: _probability(found[0]), WAITING
    )


def _vector(found: Any) -> list[float]:
    """The embedding at length 1, to which servers may scale it or not."""
    vector: list[float] = found["data"][0]["embedding"]
    length = math.hypot(*vector)
    return [each / length for each in vector]


_EMBEDDING: Final = (lambda text: {"model": "bench", "input": text}, _vector)


def _probability(found: Mapping[str, Any]) -> list[float]:
    """The probability of the label "1", of two."""
    score = float(found["score"])
    return [score if found["label"] == "1" else 1 - score]


@contextmanager
def running(side: Side, text: str, threads: int | None) -> Iterator[Running]:
    """Start a server, wait for its first answer at most two minutes; stop it after the block."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
    environment = {**ENVIRONMENT, **side.environment}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryFile("w+") as log:
        begin = time.perf_counter()
        command = [word.replace("{port}", str(port)) for word in side.command]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            body = json.dumps(side.body(text))
            why = "did not start"
            while not _answers(port, side.path, body):
                late = time.perf_counter() - begin > _START_S
                if process.poll() is not None or late:
                    break
                time.sleep(0.01)
            else:
                yield Running(process.pid, port, time.perf_counter() - begin)
                why = "" if process.poll() is None else "ended by itself"
            if why:
                log.seek(0)
                raise TidyBertError(f"the {side.name} side {why}:\n{log.read()[-2000:]}")
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            process.kill()
            process.wait()


def _answers(port: int, path: str, body: str) -> bool:
    connection = HTTPConnection(HOST, port, timeout=_START_S)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    if 400 <= answer.status < 500:
        raise TidyBertError(f"{path} answered {answer.status}: {content[:500]!r}")
    return answer.status == OK


# --- what is sent
def write_bodies(side: Side, texts: Sequence[str], path: Path) -> str:
    """Write a side's request for each text, a line each; returns the path."""
    path.write_text("".join(f"{json.dumps(side.body(text))}\n" for text in texts))
    return str(path)


def cut_text(text: str, tokenizer: BertTokenizer, max_seq_length: int) -> str:
    """The text's first words that fit."""
    encoding = tokenizer.encode(text, max_seq_length=max_seq_length)
    if not encoding.truncated:
        return text
    # The last token kept may be the beginning of a word, which alone may be other tokens.
    end = encoding.offset_mapping[-2][1]
    return text[:end] if text[end : end + 1].isspace() else text[:end].rpartition(" ")[0]


def asked(side: Side, load: Load) -> dict[str, Any]:
    """What a load finds; raises TidyBertError where the server refuses a request."""
    found = sent(load, f"load on {side.name}")
    if set(found["statuses"]) != {str(OK)}:
        raise TidyBertError(
            f"the {side.name} side with {load.clients} clients answered with the statuses "
            f"{found['statuses']} (0: it closed the connection): expected only {OK}"
        )
    return found


@contextmanager
def classifier_of(model: str) -> Iterator[tuple[str, str, list[str]]]:
    """(source, directory, texts): a classifier with random weights on MODEL, and texts for it."""
    # The other side's process, which imports this module too, needs none of it.
    from benchmarks.speed.infer import save_classifier
    from benchmarks.speed.training import max_seq_length_for

    source, texts = datasets.mixed_texts()
    length, tokenizer = max_seq_length_for(model), BertTokenizer.from_pretrained(model)
    with tempfile.TemporaryDirectory() as folder:
        save_classifier(model, Path(folder) / "model", length)
        yield source, f"{folder}/model", [cut_text(text, tokenizer, length) for text in texts]


@contextmanager
def under_load(
    side: Side, texts: Sequence[str], requests: int, threads: int | None = None
) -> Iterator[tuple[Running, Load, float]]:
    """A server, so many requests of 32 clients, and how many it answers a second of these."""
    with tempfile.TemporaryDirectory() as folder, running(side, texts[0], threads) as server:
        bodies = write_bodies(side, texts, Path(folder) / "bodies")
        load = Load(server.port, side.path, bodies, requests, 32)
        asked(side, load)
        yield server, load, asked(side, load)["requests_per_second"]
