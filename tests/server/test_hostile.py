"""Input that nobody should send: each gets its status and a message, and the server goes on."""

import contextlib
import json
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from pydantic import ValidationError
from tests.conftest import server_on_a_thread

from tidybert.cli.main import run
from tidybert.errors import UsageError
from tidybert.server import process
from tidybert.server.engine import Engine
from tidybert.server.protocols.native import (
    EmbedBody,
    FillMaskBody,
    NextSentenceBody,
    PredictBody,
)
from tidybert.server.protocols.pipeline_routes import PipelineRequest
from tidybert.server.settings import ServerSettings

PREDICT = "/v1/models/colours/predict"


@pytest.fixture
def server(
    served: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, int, Engine]]:
    """A real server on a thread: its host, its port and its engine."""
    monkeypatch.setattr(process, "HEAD_SECONDS", 1)
    monkeypatch.setattr("tidybert.server.middleware._BODY_SECONDS", 1.0)
    models = {name: served[name] for name in ("colours", "questions", "base")}
    limits = {"max_body": 100_000, "max_inputs": 64}
    with server_on_a_thread(models=models, device="cpu", **limits) as (address, engine):
        host, _, port = address.partition(":")
        yield host, int(port), engine


def descriptors() -> int:
    """How many files and connections this process has open; 0 where nobody can tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def is_well(host: str, port: int) -> bool:
    found = httpx.post(f"http://{host}:{port}{PREDICT}", json={"inputs": "a cat"}, timeout=20)
    return found.status_code == 200


COUNTED: list[tuple[str, Any, int, str | None, str]] = [
    ("/v1/models/colours/predict", {"inputs": [1] * 9000}, 422, "inputs", "9,000 inputs"),
    ("/v1/models/base/embed", {"inputs": [1] * 9000}, 422, "inputs", "9,000 inputs"),
    ("/v1/models/base/fill-mask", {"inputs": [[]] * 9000}, 422, "inputs", "9,000 inputs"),
    ("/v1/models/base/fill-mask", {"inputs": "a", "among": [1] * 9000}, 422, "among", "9,000"),
    ("/v1/models/base/next-sentence", {"inputs": [None] * 9000}, 422, "inputs", "9,000 inputs"),
    ("/v1/models/base/tokenize", {"inputs": [0.5] * 9000}, 422, "inputs", "9,000 inputs"),
    ("/search", {"inputs": [True] * 9000}, 422, "inputs", "9,000 inputs"),
    ("/page/word-map", {"model": "base", "words": [1] * 9000}, 422, "words", "9,000 items"),
    ("/embed", {"inputs": [[1]] * 9000}, 413, None, "9,000 inputs"),
    ("/rerank", {"query": "a", "texts": [1] * 9000}, 413, None, "9,000 items of texts"),
    ("/decode", {"ids": [1] * 40_000}, 422, None, "40,000 ids"),
    ("/v1/embeddings", {"input": [None] * 9000}, 413, None, "9,000 items of input"),
    ("/", {"inputs": [{}] * 9000}, 413, None, "9,000 inputs"),
    ("/v1/models/colours/predict", {str(n): 1 for n in range(9000)}, 422, None, "9,000 fields"),
    ("/v1/models/colours/predict", {"inputs": [[]] * 17_000}, 400, None, "17,002 lists"),
    ("/page/tokens", {"model": "base", "x": {str(n): 1 for n in range(99)}}, 422, "x", "99 fields"),
]


def test_a_body_is_counted_before_its_types_are_looked_at(server: tuple[str, int, Engine]) -> None:
    host, port, _engine = server
    with httpx.Client(base_url=f"http://{host}:{port}", timeout=30) as client:
        for path, body, status, field, message in COUNTED:
            found = client.post(path, json=body)
            error = found.json()["error"]
            said = error if isinstance(error, str) else error["message"]
            assert (found.status_code, message in said) == (status, True), (path, found.text)
            if field is not None:
                assert error["field"] == field


def test_the_first_wrong_item_ends_the_check() -> None:
    for body in (PredictBody, EmbedBody, FillMaskBody, NextSentenceBody, PipelineRequest):
        with pytest.raises(ValidationError) as caught:
            body(inputs=[1] * 1000)
        assert caught.value.error_count() < 16, body


def test_the_type_of_a_body_has_no_case(server: tuple[str, int, Engine]) -> None:
    host, port, _engine = server
    headers = {"Content-Type": "Application/JSON"}
    for inputs, status in (("a cat", 200), ([1] * 9000, 422)):
        content = json.dumps({"inputs": inputs})
        found = httpx.post(f"http://{host}:{port}{PREDICT}", content=content, headers=headers)
        assert found.status_code == status, found.text
    assert "9,000 inputs" in found.text


def test_lists_within_texts_are_no_lists(server: tuple[str, int, Engine]) -> None:
    host, port, _engine = server
    for text in ('[{":' * 17_000, '\\"[' * 17_000, "\\\\[" * 17_000, '"' * 9 + "[" * 17_000):
        body = {"inputs": text, "truncate": True}
        found = httpx.post(f"http://{host}:{port}{PREDICT}", json=body, timeout=30)
        assert found.status_code == 200, found.text


def test_a_wrong_item_is_named_by_its_place(server: tuple[str, int, Engine]) -> None:
    host, port, _engine = server
    wrong = [
        ("colours/predict", ["a", 1], "inputs.1"),
        ("questions/predict", [{"question": "a", "context": "b"}, {"question": "a"}], "inputs.1"),
        ("base/next-sentence", [{"text": "a", "text_pair": 5}], "inputs.0.text_pair"),
        ("base/embed", [[5], ["a"]], "inputs.1"),
        ("base/embed", [[5], [5, "a"]], "inputs.1"),
        ("base/tokenize", {"a": 1}, "inputs"),
    ]
    for path, inputs, field in wrong:
        address = f"http://{host}:{port}/v1/models/{path}"
        found = httpx.post(address, json={"inputs": inputs})
        assert found.status_code == 422
        assert found.json()["error"]["field"].startswith(field), found.text


def sent(host: str, port: int, *parts: bytes) -> bytes:
    """All that a server answers until it closes the connection."""
    answer = b""
    with socket.create_connection((host, port), timeout=20) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                answer += part
    return answer


HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def test_the_head_of_a_request_is_limited_before_a_key_is_asked(served: dict[str, str]) -> None:
    line = b"X: " + b"a" * 1000 + b"\r\n"
    given = {"models": {"colours": served["colours"]}, "device": "cpu", "keys": ("a-long-key",)}
    with server_on_a_thread(**given) as (address, _engine):
        host, _, number = address.partition(":")
        ask = partial(sent, host, int(number))
        for parts in (
            [HEAD, *[line] * 200],
            [HEAD + b"X: ", b"a" * 200_000],
            [b"GET /" + b"a" * 200_000],
            [b"\r\n" * 100_000],
        ):
            assert ask(*parts).startswith(b"HTTP/1.1 431 "), parts[0]
        # Half as much is a request, which then lacks a key.
        small = ask(HEAD, *[line] * 30, b"Connection: close\r\nContent-Length: 0\r\n\r\n")
        assert small.startswith(b"HTTP/1.1 401 ")


def test_trailers_are_limited_and_read_by_nobody(server: tuple[str, int, Engine]) -> None:
    host, port, _engine = server
    body = b'e\r\n{"inputs":"a"}\r\n0\r\n'
    line = b"X: " + b"a" * 1000 + b"\r\n"
    assert sent(host, port, CHUNKED, body, *[line] * 200).startswith(b"HTTP/1.1 431 ")
    assert sent(host, port, CHUNKED, b"e;a=" + b"a" * 200_000).startswith(b"HTTP/1.1 431 ")
    few = sent(
        host,
        port,
        CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        body + line + b"\r\n",
    )
    assert few.startswith(b"HTTP/1.1 200 ")
    # A body in small chunks has more signs around it than the head may have.
    many = b"1\r\n \r\n" * 30_000 + body + b"\r\n"
    found = sent(host, port, CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), many)
    assert found.startswith(b"HTTP/1.1 200 ")
    assert is_well(host, port)


def test_an_input_whose_every_token_has_a_place_is_measured_first(
    server: tuple[str, int, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port, _engine = server
    monkeypatch.setattr("tidybert.server.engine.MOST_CHARACTERS", 1000)
    long = "red " * 251
    for path, body, field in (
        ("questions/predict", {"inputs": {"question": "red", "context": long}}, "inputs.0"),
        ("base/fill-mask", {"inputs": ["a [MASK]", long]}, "inputs.1"),
        ("base/fill-mask", {"inputs": "a [MASK]", "among": ["red", long]}, "among.1"),
        ("base/tokenize", {"inputs": ["red", long]}, "inputs.1"),
    ):
        found = httpx.post(f"http://{host}:{port}/v1/models/{path}", json=body)
        error = found.json()["error"]
        assert (found.status_code, error["field"]) == (422, field), error
        assert "characters; at most 1,000 are taken" in error["message"]
    # What is cut is quick, however long it is.
    body = {"inputs": long, "truncate": True}
    assert httpx.post(f"http://{host}:{port}{PREDICT}", json=body).status_code == 200


def test_tokens_are_counted_before_they_are_shown(
    server: tuple[str, int, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port, _engine = server
    monkeypatch.setattr("tidybert.server.engine.MOST_SHOWN", 100)
    for path, size, status in (
        ("/tokenize", 99, 422),
        ("/v1/models/base/tokenize", 99, 422),
        ("/tokenize", 98, 200),
    ):
        body = {"inputs": "cat " * size}
        found = httpx.post(f"http://{host}:{port}{path}", json=body)
        assert found.status_code == status
        assert ("101 tokens" in found.text) == (status == 422)


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
    ("nesting", b'{"inputs": ' + b"[" * 90_000, 400, None),
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
    length = b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
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


@pytest.mark.parametrize("number", [1, 2])
def test_sigkill_under_load_leaves_the_address_to_the_next_server(
    number: int, begin: Callable[..., Any], served: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    where = ServerSettings(models={}, unix_socket=path)
    transport = httpx.HTTPTransport(uds=str(path))
    if number == 2:
        with process.listening_on(ServerSettings(models={}, port=0)) as free:
            where = ServerSettings(models={}, port=free.getsockname()[1])
        transport = httpx.HTTPTransport()
    address = ("--port", where.port) if number == 2 else ("--unix-socket", path)
    server = begin(
        *("serve", served["colours"], *address, "--workers", number, "--threads", "2"),
        stderr=subprocess.PIPE,
    )
    assert any("ready on" in line for line in iter(server.stderr.readline, ""))
    answers: list[int] = []

    def ask() -> None:
        with httpx.Client(
            transport=transport, base_url=f"http://127.0.0.1:{where.port}", timeout=20
        ) as client:
            while True:
                answers.append(client.post(PREDICT, json={"inputs": ["a cat"] * 8}).status_code)

    def until_killed() -> None:
        with contextlib.suppress(httpx.TransportError):
            ask()

    clients = [threading.Thread(target=until_killed) for _ in range(3)]
    for each in clients:
        each.start()
    while len(answers) < 10:
        time.sleep(0.01)
    with pytest.raises(UsageError, match="port" if number == 2 else "unix_socket"):
        process.listening_on(where)
    server.kill()
    server.wait(20)
    for each in clients:
        each.join(20)

    assert set(answers) == {200}
    until = time.monotonic() + 10
    while True:
        # Workers see that their parent is gone, and end.
        try:
            process.listening_on(where).close()
            break
        except UsageError:
            assert number == 2
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
def test_a_run_that_was_changed_is_refused_by_the_name_of_its_file(
    name: str,
    own_copy: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "log_as_json", lambda **_given: None)
    file = own_copy("colours") / name
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)

    threads = torch.get_num_threads()
    try:
        assert run(["serve", str(file.parent), "--port", "0", "--workers", "2"]) == 1
    finally:
        torch.set_num_threads(threads)

    message = capsys.readouterr().err
    assert f"{file.parent}: changed since the model was saved: {name}" in message


def test_clients_that_leave_in_mid_batch_take_nothing_with_them(
    server: tuple[str, int, Engine],
) -> None:
    host, port, engine = server
    body = json.dumps({"inputs": ["a red cat"] * 64}).encode()
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(20):
        with socket.create_connection((host, port), timeout=10) as connection:
            connection.sendall(request)

    assert is_well(host, port)
    until = time.monotonic() + 10
    while engine.queue.inputs and time.monotonic() < until:
        time.sleep(0.01)
    assert (engine.queue.inputs, engine.queue.tokens) == (0, 0)


def test_many_idle_connections_do_not_hold_up_others(
    server: tuple[str, int, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "HEAD_SECONDS", 60)
    host, port, _engine = server
    before = descriptors()
    # Each takes a descriptor of this process at both ends.
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - before - 100
    number = min(1000, room // 2)
    with contextlib.ExitStack() as opened:
        client = opened.enter_context(httpx.Client(base_url=f"http://{host}:{port}", timeout=20))
        for each in range(number):
            opened.enter_context(socket.create_connection((host, port), timeout=10))
            if each % 100 == 0:
                assert client.post(PREDICT, json={"inputs": "a cat"}).status_code == 200
        assert is_well(host, port)
        assert descriptors() >= before + 2 * number
    until = time.monotonic() + 10
    while descriptors() > before + 20 and time.monotonic() < until:
        time.sleep(0.05)
    assert descriptors() <= before + 20
    assert is_well(host, port)
