"""A protocol is served as its Protocol says: routes, errors, names of models, what is open."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter

from tidybert.server import app
from tidybert.server.answers import JsonAnswer, Refusal
from tidybert.server.engine import Engine
from tidybert.server.protocols import protocols
from tidybert.server.protocols.protocol import ByPath, Protocol

KEY = {"Authorization": "Bearer a-long-key"}


def shape(refusal: Refusal) -> tuple[int, Any]:
    return 418, {"why": refusal.message}


@pytest.mark.anyio
async def test_the_app_serves_what_a_protocol_declares(
    make_engine: Callable[..., Engine],
    make_client: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = APIRouter()

    @router.get("/named")
    async def named(asked: ByPath) -> JsonAnswer:
        return JsonAnswer(asked.model.name)

    own = Protocol(
        router=router,
        shape=shape,
        by_name=True,
        is_open=lambda method, path: path == "/named",
    )
    monkeypatch.setattr(app, "protocols", lambda **_: (*protocols(), own))
    engine = make_engine("colours", "base", keys=("a-long-key",))
    async with make_client(engine) as client:
        first = await client.get("/named")
        closed = await client.get("/models/base/named")
        other = await client.get("/models/base/named", headers=KEY)
        absent = await client.get("/models/cow/named", headers=KEY)

    assert (first.json(), other.json()) == ("colours", "base")
    assert closed.status_code == absent.status_code == 418
    assert "API key" in closed.json()["why"]
    assert "no model is named 'cow'" in absent.json()["why"]
