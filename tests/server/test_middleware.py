"""The middleware: keys, sizes, clients that leave, and errors that nobody expected."""

import asyncio
import gc
import logging
import signal
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from tests.conftest import server_on_a_thread

from tidybert.server import engine as engine_module
from tidybert.server.answers import Refusal
from tidybert.server.app import make_app
from tidybert.server.engine import AskedModel, Engine

Make = Callable[..., Engine]
PREDICT = "/v1/models/colours/predict"
KEY = "a-key-of-somebody"


def run(client: Any, work: Callable[[Any], Any]) -> Any:
    async def inside() -> Any:
        async with client as opened:
            return await work(opened)

    return asyncio.run(inside())


def test_without_a_key_nobody_comes_in_but_health(
    make_engine: Make, make_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    engine = make_engine("colours", keys=(KEY, "another-key"))

    async def ask(client: Any) -> list[int]:
        given = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}]
        given.append({"Authorization": f"Bearer {KEY}"})
        found = [await client.get("/v1/models", headers=each) for each in given]
        found.append(await client.get("/health/ready"))
        assert found[0].headers["www-authenticate"] == "Bearer"
        return [each.status_code for each in found]

    assert run(make_client(engine), ask) == [401, 401, 401, 200, 200]
    assert KEY not in caplog.text


def test_head_is_get_without_a_body(served: dict[str, str]) -> None:
    with (
        server_on_a_thread(models={"one": served["colours"]}, device="cpu") as (address, _),
        httpx.Client(base_url=f"http://{address}") as client,
    ):
        for path in ("/", "/health/live", "/health/ready", "/v1/models"):
            got, head = client.get(path), client.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == got.headers["content-length"] != "0"


def test_two_keys_are_two_clients(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("colours", keys=(KEY, "another-key"))
    seen: list[str] = []
    admit = engine.queue.admit
    engine.queue.admit = lambda client: (seen.append(client), admit(client))[1]  # type: ignore

    async def ask(client: Any) -> None:
        for key in (KEY, "another-key", KEY):
            headers = {"Authorization": f"Bearer {key}"}
            assert (await client.post(PREDICT, json={"inputs": "cat"}, headers=headers)).is_success

    run(make_client(engine), ask)

    assert seen[0] == seen[2] != seen[1]
    assert KEY not in seen


def test_a_body_is_counted_as_it_comes(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("colours", max_body=1000)
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 100
            yield b" " * 100

    async def ask(client: Any) -> list[Any]:
        return [
            await client.post(PREDICT, content=b" " * 1001),
            await client.post(PREDICT, content=chunks()),
            await client.post(PREDICT, json={"inputs": "cat"}),
        ]

    declared, chunked, small = run(make_client(engine), ask)

    assert (declared.status_code, chunked.status_code, small.status_code) == (413, 413, 200)
    assert sent < 2000


def test_a_full_server_says_when_to_come_back(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("colours")

    def admit(client: str) -> None:
        raise Refusal(429, "the server is busy", retry_after=7)

    engine.queue.admit = admit  # type: ignore[method-assign]
    found = run(make_client(engine), lambda client: client.post(PREDICT, json={"inputs": "cat"}))

    assert (found.status_code, found.headers["retry-after"]) == (429, "7")
    assert found.json()["error"]["type"] == "overloaded"


def test_a_client_that_leaves_ends_its_work(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("colours")
    begun, ended = asyncio.Event(), asyncio.Event()

    async def predict(*_given: Any, **_named: Any) -> Any:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    monkeypatch.setattr(AskedModel, "answered", predict)
    app = make_app(engine)
    scope = {
        "type": "http",
        "method": "POST",
        "path": PREDICT,
        "raw_path": PREDICT.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": ("10.0.0.1", 1),
    }

    coming = iter([{"type": "http.request", "body": b'{"inputs": "cat"}'}])
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        for message in coming:
            return message
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)

    async def ask() -> None:
        await asyncio.wait_for(app(scope, receive, send), 5)

    asyncio.run(ask())

    assert ended.is_set()
    assert messages == []
    assert 'status="499"' in engine.meters.text().decode()


def test_a_mistake_of_ours_shows_nothing_of_itself(
    make_engine: Make,
    make_client: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = make_engine("colours")

    async def predict(*_given: Any, **_named: Any) -> Any:
        raise RuntimeError("secret /home/me")

    monkeypatch.setattr(AskedModel, "answered", predict)
    found = run(make_client(engine), lambda client: client.post(PREDICT, json={"inputs": "cat"}))

    error = found.json()["error"]
    assert found.status_code == 500
    assert found.headers["x-request-id"] in error["message"]
    assert "secret" not in found.text
    assert found.headers["x-request-id"] in caplog.text


@pytest.mark.parametrize(
    ("address", "keys", "status"),
    [("127.0.0.1", (), 200), ("10.0.0.1", (), 403), ("10.0.0.1", (KEY,), 200)],
)
def test_reloading_is_for_this_machine_or_for_a_key(
    make_engine: Make, make_client: Any, address: str, keys: tuple[str, ...], status: int
) -> None:
    engine = make_engine("colours", keys=keys)
    before = engine.model("colours")
    headers = {"Authorization": f"Bearer {KEY}"}

    found = run(
        make_client(engine, address), lambda client: client.post("/admin/reload", headers=headers)
    )

    assert found.status_code == status
    assert (engine.model("colours") is before) == (status == 403)


def test_one_reload_at_a_time_and_the_old_models_go(make_engine: Make, make_client: Any) -> None:
    engine = make_engine("colours", "base", "poem")
    old = [weakref.ref(each.encoder) for each in engine.models.values()]

    async def ask(client: Any) -> list[Any]:
        # The page holds models of its own.
        await client.post("/page/tokens", json={"model": "colours", "text": "a cat"})
        asked = [client.post("/admin/reload") for _ in range(5)]
        answers = await asyncio.gather(*asked)
        return [*answers, await client.post("/admin/reload")]

    gc.disable()
    try:
        found = run(make_client(engine), ask)
        assert [each() for each in old] == [None] * 3
    finally:
        gc.enable()

    assert sorted(each.status_code for each in found) == [200, 200, 409, 409, 409, 409]
    refused = next(each for each in found if each.status_code == 409)
    assert "opened already" in refused.json()["error"]["message"]
    assert refused.headers["retry-after"] == "1"


def test_words_to_choose_among_are_no_inputs(make_engine: Make, make_client: Any) -> None:
    engine, path = make_engine("base", max_inputs=1), "/v1/models/base/fill-mask"
    for words, status, message in (
        (["red", "cat"], 200, '"cat"'),
        (["red"] * 1001, 422, "1,001 items of among in one request; at most 1,000 are taken"),
    ):
        body = {"inputs": "a [MASK]", "among": words}
        found = run(make_client(engine), lambda client, body=body: client.post(path, json=body))
        assert (found.status_code, message in found.text) == (status, True), found.text


def test_models_that_are_being_opened_are_not_opened_again(
    make_engine: Make, make_client: Any
) -> None:
    engine = make_engine("colours")
    engine.models, engine.is_ready = {}, False
    found = run(make_client(engine), lambda client: client.post("/admin/reload"))
    assert found.status_code == 409


def test_a_worker_asks_its_parent_for_one_reload(
    make_engine: Make, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("colours")
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda *given: signals.append(given))
    # Each worker has an engine of its own, and all share a byte.
    shared = bytearray(1)
    workers = [Engine(engine.settings, 7, shared) for _ in range(2)]
    for each in workers:
        each.models = engine.models
    found = [
        run(make_client(each), lambda client: client.post("/admin/reload"))
        for each in (*workers, *workers)
    ]

    assert [each.status_code for each in found] == [202, 409, 409, 409]
    assert signals == [(7, signal.SIGHUP)]


def test_a_reload_goes_on_without_its_client_and_beyond_the_deadline(
    make_engine: Make, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("colours", deadline=1.0)
    before, may_go = engine.model("colours"), threading.Event()
    opening = engine_module.open_models

    def slow(settings: Any) -> Any:
        assert may_go.wait(10)
        return opening(settings)

    monkeypatch.setattr(engine_module, "open_models", slow)

    async def ask(client: Any) -> list[int]:
        late = await client.post("/admin/reload")
        second = await client.post("/admin/reload")
        may_go.set()
        while engine.model("colours") is before:
            await asyncio.sleep(0.01)
        return [late.status_code, second.status_code]

    assert run(make_client(engine), ask) == [202, 409]


def test_every_route_has_the_deadline_and_what_waits_is_not_begun(
    make_engine: Make, make_client: Any
) -> None:
    engine = make_engine("colours", deadline=0.3)
    tokenizer = engine.model("colours").tokenizer
    begun, may_go = [], threading.Event()

    def encode_batch(texts: Any, *given: Any) -> Any:
        begun.append(texts)
        assert may_go.wait(10)
        return [[0]]

    tokenizer.encode_batch = encode_batch  # type: ignore[method-assign]
    long = {"inputs": "cat " * 5000}

    async def ask(client: Any) -> list[Any]:
        paths = ["/tokenize", "/v1/models/colours/tokenize", "/tokenize", "/tokenize"]
        answers = await asyncio.gather(*(client.post(each, json=long) for each in paths))
        may_go.set()
        return answers

    found = run(make_client(engine), ask)

    assert [each.status_code for each in found] == [504] * 4
    assert found[0].json()["error_type"] == "deadline_exceeded"
    assert int(found[0].headers["retry-after"]) >= 1
    # The thread has ended the first; the others were gone from its queue.
    assert len(begun) == 1
