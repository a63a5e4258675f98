"""The app: the routes of all protocols behind one middleware."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tidybert import __version__
from tidybert.server.answers import UNKNOWN_FIELD, JsonAnswer, Refusal, Shape, native_shape, refused
from tidybert.server.bodies import furthest
from tidybert.server.engine import Engine
from tidybert.server.middleware import Middleware
from tidybert.server.protocols import protocols
from tidybert.server.protocols.protocol import Protocol, names_model


def make_app(engine: Engine, spoken: Sequence[Protocol] | None = None) -> FastAPI:
    """The app of an engine; ``engine.start`` must be called before the first request."""
    app = FastAPI(
        title="tidybert",
        version=__version__,
        description="Every head of BERT over HTTP.",
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonAnswer,
    )
    app.state.engine = engine
    shapes: dict[str, Shape] = {}
    settings = engine.settings
    answers_alone = spoken is None and settings.are_graphs and settings.index is None
    if spoken is None:
        spoken = protocols(of_graphs=answers_alone)
    for each in spoken:
        errors: Any = {status: {"model": each.error} for status in ("4XX", "5XX")}
        app.include_router(each.router, responses=errors)
        if each.by_name:
            named = [Depends(names_model)]
            app.include_router(
                each.router, prefix="/models/{name}", dependencies=named, responses=errors
            )
        for route in each.router.routes:
            shapes.setdefault(getattr(route, "path", ""), each.shape)

    if answers_alone:

        @app.get("/", include_in_schema=False)
        async def no_page() -> None:
            raise Refusal(
                404,
                "the page looks into networks, and graphs only answer: serve the models that they "
                "were converted from, where PyTorch is installed (pip install tidybert)",
            )

    def shape_of(path: str) -> Shape:
        # A path below /models/NAME has the shape of the same path without it.
        return shapes.get(re.sub(r"^/models/[^/]+", "", path) or "/", native_shape)

    def is_open(method: str, path: str) -> bool:
        return any(each.is_open(method, path) for each in spoken)

    app.add_middleware(Middleware, engine=engine, shape_of=shape_of, is_open=is_open)

    def answer(request: Request, refusal: Refusal) -> Response:
        return refused(refusal, shape_of(request.url.path))

    @app.exception_handler(Refusal)
    async def of_refusal(request: Request, error: Refusal) -> Response:
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def of_body(request: Request, error: RequestValidationError) -> Response:
        return answer(request, _body_refusal(error, request.headers.get("content-type", "")))

    @app.exception_handler(HTTPException)
    async def of_route(request: Request, error: HTTPException) -> Response:
        response = answer(request, Refusal(error.status_code, str(error.detail)))
        response.headers.update(error.headers or {})
        return response

    return app


def _body_refusal(error: RequestValidationError, content_type: str) -> Refusal:
    """The worst problem of a body, with its field; the text itself is not quoted."""
    body = {"body": error.body}
    places, first = furthest(error.errors(), body)
    if first["loc"] == ("body",) and "json" not in content_type:
        return Refusal(
            415,
            "the body is not declared as JSON: send the header Content-Type: application/json",
            kind="unsupported_media_type",
        )
    where = [str(each) for each in places[1:]]
    message = str(first["msg"])
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {first.get('ctx', {}).get('error', message)}")
    if first["type"] == "extra_forbidden":
        message = f"this path does not have the field {where[-1]!r:.40}"
        return Refusal(422, message, ".".join(where), UNKNOWN_FIELD)
    return Refusal(422, message, ".".join(where) or None)
