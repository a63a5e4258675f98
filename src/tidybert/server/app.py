"""The app: the routes of all protocols behind one door."""

import re
from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tidybert.server import admin
from tidybert.server.door import Door, Shape, native_shape, refused
from tidybert.server.engine import Engine
from tidybert.server.faults import UNKNOWN_FIELD, Refusal
from tidybert.server.json_answers import JsonAnswer
from tidybert.server.protocols import (
    native,
    openai_routes,
    page_routes,
    pipeline_routes,
    search_routes,
    tei_routes,
)
from tidybert.server.protocols.protocol import names_model
from tidybert.server.protocols.tei_routes import TeiError, tei_shape

_PROTOCOLS: Final[tuple[tuple[APIRouter, Shape, type[BaseModel]], ...]] = (
    (native.router, native_shape, native.Error),
    (search_routes.router, native_shape, native.Error),
    (admin.router, native_shape, native.Error),
    (openai_routes.router, openai_routes.openai_shape, openai_routes.OpenAIError),
    (tei_routes.router, tei_shape, TeiError),
    (pipeline_routes.router, tei_shape, TeiError),
)
"""The routes of each protocol, how it writes a Refusal, and the type of that."""


def make_app(engine: Engine) -> FastAPI:
    """The app of an engine; ``engine.start`` must be called before the first request."""
    app = FastAPI(
        title="tidybert",
        version=_version(),
        description="Every head of BERT over HTTP.",
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonAnswer,
    )
    app.state.engine = engine
    app.state.page = page_routes.PageDesk(engine)
    shapes: dict[str, Shape] = {}
    for router, shape, error in _PROTOCOLS:
        app.include_router(router, responses=_errors(error))
        shapes |= {route.path: shape for route in router.routes if hasattr(route, "path")}

    app.include_router(
        tei_routes.router,
        prefix="/models/{name}",
        dependencies=[Depends(names_model)],
        responses=_errors(TeiError),
    )

    def shape_of(path: str) -> Shape:
        # A path below /models/NAME has the shape of the same path without it.
        return shapes.get(re.sub(r"^/models/[^/]+", "", path) or "/", native_shape)

    app.include_router(page_routes.router)
    _add_handlers(app, shape_of)
    app.add_middleware(Door, engine=engine, shape_of=shape_of, is_open=_is_open)
    return app


def _is_open(method: str, path: str) -> bool:
    """Whether a request needs no API key: health, and the files of the page."""
    return path.startswith("/health") or page_routes.is_page_file(method, path)


def _errors(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The errors of a protocol, for the OpenAPI document."""
    return {status: {"model": model} for status in ("4XX", "5XX")}


def _add_handlers(app: FastAPI, shape_of: Callable[[str], Shape]) -> None:
    """Write every error in the shape of the route's protocol."""

    def answer(request: Request, refusal: Refusal) -> Response:
        return refused(refusal, shape_of(request.url.path))

    @app.exception_handler(Refusal)
    async def of_refusal(request: Request, error: Refusal) -> Response:
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def of_body(request: Request, error: RequestValidationError) -> Response:
        return answer(request, body_refusal(error, request.headers.get("content-type", "")))

    @app.exception_handler(HTTPException)
    async def of_route(request: Request, error: HTTPException) -> Response:
        response = answer(request, Refusal(error.status_code, str(error.detail)))
        response.headers.update(error.headers or {})
        return response


def body_refusal(error: RequestValidationError, content_type: str) -> Refusal:
    """The first problem of a body, with its field; the text itself is not quoted."""
    first: Any = error.errors()[0]
    if first["loc"] == ("body",) and "json" not in content_type:
        return Refusal(
            415,
            "the body is not declared as JSON: send the header Content-Type: application/json",
            kind="unsupported_media_type",
        )
    where = [str(each) for each in first["loc"] if each != "body"]
    message = str(first["msg"])
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {first.get('ctx', {}).get('error', message)}")
    if first["type"] == "extra_forbidden":
        message = f"this path does not have the field {where[-1]!r:.40}"
        return Refusal(422, message, ".".join(where), UNKNOWN_FIELD)
    return Refusal(422, message, ".".join(where) or None)


def _version() -> str:
    from tidybert import __version__

    return __version__
