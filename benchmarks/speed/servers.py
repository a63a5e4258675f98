"""The servers that are timed: how to start, ask and read each of them."""

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
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from benchmarks import ENVIRONMENT
from benchmarks.harness import datasets, script
from benchmarks.speed.http_load import BATCHING, HOST, OK, Load, sent
from benchmarks.speed.infer import save_classifier
from benchmarks.speed.training import max_seq_length_for
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.system.cores import WAITING
from tidybert.tokenization import BertTokenizer

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
    words = [sys.executable, "-m", "benchmarks.speed.http_load", name, work]
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
    """Start a server, wait for its first answer to ``text``, and stop it after the block.

    Raises TidyBertError where it ends or does not answer within two minutes.
    """
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
