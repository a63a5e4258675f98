"""The process: a real server ends what it took, listens where it was told, and is patient once."""

import asyncio
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidybert.errors import UsageError
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.process import http_server, listening_on
from tidybert.server.settings import ServerSettings


def test_a_taken_port_is_an_error_that_names_the_flag() -> None:
    with listening_on(ServerSettings(models={}, port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(UsageError, match="port"):
            listening_on(ServerSettings(models={}, port=port))


def test_sigterm_finishes_what_was_taken_and_sighup_reloads(
    begin: Callable[..., Any], served: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    server = begin(
        *("serve", f"one={served['colours']}", "--unix-socket", path, "--threads", "1"),
        stderr=subprocess.PIPE,
    )
    lines = iter(server.stderr.readline, "")
    assert any("ready on" in line for line in lines)
    found = under_load(server, path)
    status = server.wait(30)
    logged = [json.loads(line) for line in lines]

    assert status == 0
    assert len(found) > 12
    assert {one["label"] for one in found} <= {"animal", "colour"}
    assert "the models were opened again" in [each["message"] for each in logged]
    # Each request that the server read has its answer at the client.
    assert [each["status"] for each in logged if "status" in each] == [200] * len(found)


def under_load(server: Any, path: Path) -> list[Any]:
    """Answers that four clients got until the server ended; none fails while it works."""
    answers: list[Any] = []

    def client(number: int) -> None:
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://server", timeout=30) as opened:
            while True:
                try:
                    found = opened.post(
                        "/v1/models/one/predict",
                        json={"inputs": ["a red cat"] * 2},
                        headers={"Connection": "close"},
                    )
                except httpx.TransportError:
                    # It came after the signal; the server's log shows that it was not taken.
                    return
                assert found.status_code == 200, found.text
                answers.extend(found.json()[:1])

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for each in clients:
        each.start()
    while len(answers) < 4:
        time.sleep(0.01)
    server.send_signal(signal.SIGHUP)
    count = len(answers)
    while len(answers) < count + 8:
        time.sleep(0.01)
    server.send_signal(signal.SIGTERM)
    for each in clients:
        each.join(30)
        assert not each.is_alive()
    return answers


def test_what_waits_when_a_server_ends_is_answered(served: dict[str, str]) -> None:
    engine = Engine(ServerSettings(models={"one": served["colours"]}, device="cpu", port=0))
    engine.open()
    engine.start()
    bound = listening_on(engine.settings)
    address = bound.getsockname()
    body = b'{"inputs": "a red cat"}'
    head = (
        "POST /v1/models/one/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    )
    request = f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def live_and_end() -> list[socket.socket]:
        server = http_server(make_app(engine), engine.settings)
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup([bound])
        # The event loop does nothing meanwhile, so that they wait to be accepted.
        clients = [socket.create_connection(address, timeout=20) for _ in range(8)]
        for each in clients:
            each.sendall(request)
        await server.shutdown([bound])
        return clients

    try:
        for client in asyncio.run(live_and_end()):
            with client:
                answer = b"".join(iter(partial(client.recv, 65_536), b""))
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in answer.lower()
    finally:
        engine.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=20)
