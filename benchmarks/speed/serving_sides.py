"""The servers that ``serve`` compares: how to start, ask and read each of them."""

import importlib.util
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, Any, Final

from benchmarks import ENVIRONMENT
from benchmarks.harness.processes import memory_mib
from benchmarks.speed.http_load import HOST, OK
from benchmarks.speed.pipeline_handler import BATCHING
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.system.cores import WAITING

TRANSFORMERS: Final = "transformers"
INFINITY: Final = "infinity"
OTHERS: Final = (TRANSFORMERS, BATCHING, INFINITY)
"""Sides that ``--against`` names."""
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
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Running:
    """A server that has answered."""

    process: int
    port: int
    seconds_to_first_answer: float

    def peak_mib(self) -> float:
        """The server's largest resident memory so far, in MiB (Linux)."""
        return memory_mib(self.process)

    def cpu_seconds(self) -> float:
        """The processor time of the server so far (Linux)."""
        words = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        # utime and stime of proc(5).
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def our_side(directory: str, *, embeds: bool) -> Side:
    """``tidybert serve``: predict, or OpenAI's route for embeddings."""
    name = "bench"
    command = [sys.executable, "-m", "tidybert", "serve", f"{name}={directory}", "--port", "{port}"]
    if embeds:
        return Side("ours", command, "/v1/embeddings", _embedding_body(name), _vector, {})
    return Side(
        "ours",
        command,
        f"/v1/models/{name}/predict",
        lambda text: {"inputs": text},
        _probability,
        {},
    )


def other_side(name: str, directory: str, command: str = "infinity_emb") -> Side:
    """A side of OTHERS; raises UsageError where ``name`` is unknown or not installed."""
    if name not in OTHERS:
        raise UsageError(f"{param('against', name)}: expected {', '.join(OTHERS)}")
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
        return Side(name, words, "/embeddings", _embedding_body("bench"), _vector, quiet)
    if importlib.util.find_spec(TRANSFORMERS) is None:
        raise UsageError(
            f"{param('against', name)} needs transformers, which is not installed: "
            "pip install '.[dev]'"
        )
    work = json.dumps({"directory": directory, "port": "PORT"}).replace('"PORT"', "{port}")
    words = [sys.executable, "-m", "benchmarks.speed.pipeline_handler", name, work]
    # With PyTorch's own way of waiting it takes three times as long beside its clients.
    return Side(
        name, words, "/", lambda text: {"text": text}, lambda found: _probability(found[0]), WAITING
    )


def _embedding_body(model: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {"model": model, "input": text}


def _vector(found: Any) -> list[float]:
    """The embedding at length 1, to which servers may scale it or not."""
    vector: list[float] = found["data"][0]["embedding"]
    length = math.hypot(*vector)
    return [each / length for each in vector]


def _probability(found: Mapping[str, Any]) -> list[float]:
    """The probability of the label "1", of two."""
    score = float(found["score"])
    return [score if found["label"] == "1" else 1 - score]


@contextmanager
def running(side: Side, text: str, threads: int | None) -> Iterator[Running]:
    """Start a server, wait for its first answer to ``text``, and stop it after the block.

    Raises TidyBertError with the end of what the server printed where it ends or does not answer
    within two minutes.
    """
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
    environment = {**ENVIRONMENT, **side.environment}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryFile("w+") as log:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [word.replace("{port}", str(port)) for word in side.command],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            body = json.dumps(side.body(text))
            while not _answers(port, side.path, body):
                late = time.perf_counter() - begin > _START_S
                if process.poll() is not None or late:
                    raise TidyBertError(f"the {side.name} side did not start:\n{_end(log)}")
                time.sleep(0.01)
            yield Running(process.pid, port, time.perf_counter() - begin)
            if process.poll() is not None:
                raise TidyBertError(f"the {side.name} side ended by itself:\n{_end(log)}")
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


def _end(log: IO[str]) -> str:
    log.seek(0)
    return log.read()[-2000:]
