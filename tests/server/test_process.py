"""The process: a real server ends what it took, listens where it was told, and is patient once."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidybert.errors import UsageError
from tidybert.server.process import listening_on
from tidybert.server.settings import ServerSettings


def test_a_taken_port_is_an_error_that_names_the_flag() -> None:
    with listening_on(ServerSettings(models={}, port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(UsageError, match="port"):
            listening_on(ServerSettings(models={}, port=port))


def test_sigterm_finishes_what_was_taken_and_sighup_reloads(
    served: dict[str, str], tmp_path: Path
) -> None:
    """One process for all of it: it loads PyTorch."""
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "tidybert", "serve", f"one={served['colours']}"]
    command += ["--unix-socket", str(path), "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr.readline, "")
            assert any("ready on" in line for line in lines)
            found = under_load(server, path)
            status = server.wait(30)
            logged = [json.loads(line) for line in lines]
        finally:
            server.kill()

    assert status == 0
    assert len(found) > 20
    assert {one["label"] for one in found} <= {"animal", "colour"}
    messages = [each["message"] for each in logged]
    assert "the models were opened again" in messages
    assert messages.count("request") == len(found)


def under_load(server: "subprocess.Popen[str]", path: Path) -> list[Any]:
    """Answers that four clients got until the server ended; no request that it took fails."""
    answers: list[Any] = []

    def client(number: int) -> None:
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://server", timeout=30) as opened:
            while True:
                try:
                    found = opened.post(
                        "/v1/models/one/predict",
                        json={"inputs": ["a red cat"] * 8},
                        headers={"Connection": "close"},
                    )
                except httpx.ConnectError:
                    return
                assert found.status_code == 200, found.text
                answers.extend(found.json()[:1])

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for each in clients:
        each.start()
    while len(answers) < 10:
        time.sleep(0.01)
    server.send_signal(signal.SIGHUP)
    count = len(answers)
    while len(answers) < count + 20:
        time.sleep(0.01)
    server.send_signal(signal.SIGTERM)
    for each in clients:
        each.join(30)
        assert not each.is_alive()
    return answers
