"""Input that nobody should send: each gets its status and a message, and the server goes on."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tidybert.server import process
from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.settings import ServerSettings

PREDICT = "/v1/models/colours/predict"


@pytest.fixture
def server(
    make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, int, Engine]]:
    """A real server on a thread: its host, its port and its engine."""
    monkeypatch.setattr(process, "HEAD_SECONDS", 1)
    monkeypatch.setattr("tidybert.server.door._BODY_SECONDS", 1.0)
    engine = make_engine("colours", "questions", "base", max_body=100_000, max_inputs=64)
    bound = process.listening_on(ServerSettings(models={}, port=0))
    running = process.http_server(make_app(engine), engine.settings)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve([bound])))
    thread.start()
    host, port = bound.getsockname()
    yield host, port, engine
    running.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def descriptors() -> int:
    """How many files and connections this process has open; 0 where nobody can tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def is_well(host: str, port: int) -> bool:
    found = httpx.post(f"http://{host}:{port}{PREDICT}", json={"inputs": "a cat"}, timeout=20)
    return found.status_code == 200


BODIES: list[tuple[str, bytes, int, str | None]] = [
    ("not JSON", b'{"inputs": ', 400, None),
    ("an empty body", b"", 422, None),
    ("a list", b"[]", 422, None),
    ("not UTF-8", b'{"inputs": "\xff\xfe"}', 400, None),
    ("half a surrogate", b'{"inputs": "a \\ud800 b"}', 422, "inputs"),
    ("a number", b'{"inputs": 7}', 422, "inputs"),
    ("null", b'{"inputs": null}', 422, "inputs"),
    ("no inputs", b'{"inputs": []}', 422, "inputs"),
    ("a list within", b'{"inputs": [["a"]]}', 422, "inputs"),
    ("too many", json.dumps({"inputs": ["a"] * 65}).encode(), 422, "inputs"),
    ("10,000 inputs", json.dumps({"inputs": ["a"] * 10_000}).encode(), 422, "inputs"),
    ("too large", b'{"inputs": "' + b"a" * 10_000_000 + b'"}', 413, None),
    ("too long", b'{"inputs": "' + b"red " * 9000 + b'"}', 422, "inputs.0"),
    ("one word without end", b'{"inputs": "' + b"\xf0\x9f\x98\x80" * 20_000 + b'"}', 200, None),
    ("NUL", b'{"inputs": "a \\u0000 cat"}', 200, None),
    ("NaN", b'{"inputs": "a", "top_k": NaN}', 422, "top_k"),
    ("a huge number", b'{"inputs": "a", "top_k": 1e400}', 422, "top_k"),
    ("nesting", b'{"inputs": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", 400, None),
]


def test_bodies_get_their_status_and_the_field(server: tuple[str, int, Engine]) -> None:
    host, port, _engine = server
    headers = {"Content-Type": "application/json"}
    with httpx.Client(base_url=f"http://{host}:{port}", timeout=30) as client:
        for name, body, status, field in BODIES:
            try:
                found = client.post(PREDICT, content=body, headers=headers)
            except httpx.WriteError:
                # The server closed the connection before it read all of the body.
                assert status == 413, name
                continue
            assert found.status_code == status, (name, found.text)
            if status != 200:
                error = found.json()["error"]
                where = error["field"]
                assert (where or "").split(".")[0] == (field or "").split(".")[0], (name, error)
                assert error["message"], name
                assert "/" not in error["message"], (name, error)
                assert "Traceback" not in found.text, name


def test_connections_that_stop_half_way_are_closed(server: tuple[str, int, Engine]) -> None:
    host, port, engine = server
    length = b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nHost: a\r\n"
    length += b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n"
    halves = {
        b"": b"",
        b"POST /v1/mod": b"",
        length + b'{"inputs"': b"408",
        b"\x16\x03\x01\x02\x00\x01\x00": b"400",
        b"GET / HTTP/9.9\r\n\r\n": b"",
    }
    opened = []
    for half in halves:
        connection = socket.create_connection((host, port), timeout=10)
        connection.sendall(half)
        opened.append(connection)
    for connection, (half, expected) in zip(opened, halves.items(), strict=True):
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(4096):
                answer += part
        assert expected in answer, (half, answer)
        connection.close()
    assert is_well(host, port)
    assert engine.queue.inputs == 0


def test_clients_that_leave_in_mid_batch_take_nothing_with_them(
    server: tuple[str, int, Engine],
) -> None:
    host, port, engine = server
    body = json.dumps({"inputs": ["a red cat"] * 64}).encode()
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(20):
        with socket.create_connection((host, port), timeout=10) as connection:
            connection.sendall(request)

    assert is_well(host, port)
    until = time.monotonic() + 10
    while engine.queue.inputs and time.monotonic() < until:
        time.sleep(0.01)
    assert (engine.queue.inputs, engine.queue.tokens) == (0, 0)


def test_many_idle_connections_do_not_hold_up_others(server: tuple[str, int, Engine]) -> None:
    host, port, _engine = server
    before = descriptors()
    with contextlib.ExitStack() as opened:
        # Each takes a descriptor of this process at both ends.
        for _ in range(400):
            opened.enter_context(socket.create_connection((host, port), timeout=10))
        assert is_well(host, port)
    until = time.monotonic() + 10
    while descriptors() > before + 20 and time.monotonic() < until:
        time.sleep(0.05)
    assert descriptors() <= before + 20
    assert is_well(host, port)
