"""Health, metrics, the list of models, and reloading."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from tidybert.server.answers import JsonAnswer, Refusal
from tidybert.server.middleware import engine_of
from tidybert.server.protocols.native import described
from tidybert.server.protocols.protocol import Protocol
from tidybert.server.settings import LOOPBACK

router = APIRouter(tags=["server"])
PROTOCOL: Final = Protocol(router=router, is_open=lambda method, path: path.startswith("/health"))


@router.get("/v1/models", summary="List the models")
async def models(request: Request) -> JsonAnswer:
    """The models by name, in a shape that OpenAI's client reads too."""
    found = [described(each) for each in engine_of(request).models.values()]
    return JsonAnswer({"object": "list", "data": found})


@router.get("/health/live", summary="Whether the process works")
async def live() -> JsonAnswer:
    """200 as long as the process answers."""
    return JsonAnswer({"status": "live"})


@router.get("/health/ready", summary="Whether the models are warm")
async def ready(request: Request) -> JsonAnswer:
    """200 once all models are loaded and warm; 503 before, and while the server ends."""
    if not engine_of(request).is_ready:
        raise Refusal(503, "the server is not ready", retry_after=1)
    return JsonAnswer({"status": "ready"})


@router.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Requests, errors, the queue, tokens a batch, and seconds by stage."""
    text = engine_of(request).meters.text()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post(
    "/admin/reload",
    summary="Open all models again",
    responses={202: {"description": "They are still being opened."}},
)
async def reload(request: Request) -> JsonAnswer:
    """Open the models' directories again; requests in work end with the old ones.

    It needs an API key if the server has keys; else only this machine may ask.  With several
    workers, or if it takes half of the deadline, the answer has status 202, and the server goes on
    to open them.  While it does, another request gets 409.
    """
    engine = engine_of(request)
    is_here = request.client is None or request.client.host in LOOPBACK
    if not engine.settings.keys and not is_here:
        raise Refusal(403, "without API keys only this machine may reload")
    opened = engine.reload(own=1)
    if opened is not None:
        # Not wait_for: it goes on without the client.
        await asyncio.wait([opened], timeout=engine.settings.deadline / 2)
    if opened is None or not opened.done():
        return JsonAnswer({"models": list(engine.models)}, 202)
    if not opened.result():
        message = "a model cannot be opened, so the old ones stay; the server's log says why"
        raise Refusal(500, message)
    return JsonAnswer({"models": list(engine.models)})
