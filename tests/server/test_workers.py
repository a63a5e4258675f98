"""Several processes behind one port: they share requests, come back, reload and end together."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
import torch

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import UsageError
from tidybert.export.onnx_export import export_onnx
from tidybert.inference import loading
from tidybert.inference.predictor import Predictor
from tidybert.server import process
from tidybert.server.settings import ServerSettings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="--workers needs Linux")


def children(process: int) -> set[int]:
    return set(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


class Load:
    """Clients that ask until the block ends, two of them on connections that they keep."""

    def __init__(self, address: str) -> None:
        self.answers: list[tuple[int, str]] = []
        self._address, self._is_over, self._errors = address, False, []
        self._clients = [threading.Thread(target=self._ask, args=[kept]) for kept in (0, 0, 1, 1)]

    def __enter__(self) -> Self:
        for each in self._clients:
            each.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over = True
        for each in self._clients:
            each.join(30)
        assert not self._errors
        assert {status for status, _ in self.answers} == {200}

    def workers(self, since: int = 0) -> set[str]:
        """The first part of each request's id, which differs from process to process."""
        return {worker for _, worker in self.answers[since:]}

    def _ask(self, is_kept: bool) -> None:
        headers = {} if is_kept else {"Connection": "close"}
        with httpx.Client(base_url=self._address, timeout=30, headers=headers) as client:
            try:
                while not self._is_over:
                    found = client.post("/v1/models/one/predict", json={"inputs": "a red cat"})
                    worker = found.headers["x-request-id"].partition("-")[0]
                    self.answers.append((found.status_code, worker))
            except httpx.TransportError as error:
                self._errors.append(error)


def number_of(figure: str, address: str) -> float:
    """A figure of the server, as a new connection to one of the workers has it."""
    text = httpx.get(f"{address}/metrics").text
    found = re.search(rf"^{re.escape(figure)} (\S+)$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


def two_workers(begin: Callable[..., Any], model: str | Path) -> tuple[Any, str, list[str], Any]:
    """A server that is ready, its address, the lines of its log, and the thread that reads them."""
    server = begin(
        *("serve", f"one={model}", "--port", "0", "--workers", "2", "--threads", "2"),
        stderr=subprocess.PIPE,
    )
    lines: list[str] = []
    # The log of each request would fill the pipe.
    reader = threading.Thread(target=lambda: lines.extend(server.stderr))
    reader.start()
    eventually(lambda: any(line.startswith("ready on") for line in lines))
    ready = next(line for line in lines if line.startswith("ready on"))
    assert ready.rstrip().endswith(", 2 workers")
    return server, ready.split()[2].rstrip(","), lines, reader


def test_workers_are_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "choose_device", lambda name: torch.device("cuda"))

    with pytest.raises(UsageError, match=r"workers.*device"):
        process.serve(ServerSettings(models={}, workers=2), print)


def test_workers_share_requests_come_back_reload_and_end_together(
    begin: Callable[..., Any], served: dict[str, str]
) -> None:
    server, address, lines, reader = two_workers(begin, served["colours"])
    processes = children(server.pid)
    assert len(processes) == 2

    with Load(address) as load:
        eventually(lambda: len(load.workers()) == 2)
    answers = [*load.answers]

    killed = min(processes)
    os.kill(killed, signal.SIGKILL)
    with Load(address) as load:
        ended = f"process {killed}, ended with status -9; another one begins"
        eventually(lambda: any(ended in line for line in lines))
        eventually(lambda: len(load.workers()) == 2)
        processes = children(server.pid)
        assert len(processes) == 2

        assert httpx.post(f"{address}/admin/reload").status_code == 202
        eventually(lambda: any("the models were opened again" in line for line in lines))
        eventually(lambda: not children(server.pid) & processes)
        since = len(load.answers)
        eventually(lambda: len(load.workers(since)) == 2)
        processes = children(server.pid)
        assert len(processes) == 2
    answers += load.answers

    # Whichever worker answers, it has the sum over all, those that ended included.
    inputs = [number_of("tidybert_inputs_total", address) for _ in range(6)]
    assert len({*inputs}) == 1
    assert len(answers) <= inputs[0] <= len(answers) + 4
    assert number_of('tidybert_queue{unit="inputs"}', address) == 0

    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    reader.join()
    assert not any(Path(f"/proc/{each}").exists() for each in processes)


def test_workers_answer_by_a_graph_as_by_the_network(
    begin: Callable[..., Any], served: dict[str, str], tmp_path: Path
) -> None:
    graph = export_onnx(ModelDirectory(served["colours"]), tmp_path / "graph").directory
    server, address, _, reader = two_workers(begin, graph)
    found: dict[str, Any] = {}

    def ask() -> bool:
        answer = httpx.post(f"{address}/v1/models/one/predict", json={"inputs": "a red cat"})
        found[answer.headers["x-request-id"].partition("-")[0]] = answer.json()
        return len(found) == 2

    eventually(ask)
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    reader.join()
    one, other = found.values()
    assert one == other
    expected = Predictor[Any](served["colours"]).predict("a red cat")
    assert one["label"] == expected["label"]
    assert one["score"] == pytest.approx(expected["score"], abs=1e-5)
