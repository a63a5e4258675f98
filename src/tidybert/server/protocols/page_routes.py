"""The page at /: its files, what the server has, and a route for the views."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Request
from pydantic import ConfigDict, ValidationError, validate_call
from starlette.responses import Response

from tidybert.page.page_model import HEADERS, INDEX, PageModel, View, page_files
from tidybert.page.views import VIEWS, run_of
from tidybert.server.answers import JsonAnswer, Refusal, as_refusals
from tidybert.server.bodies import CountedRoute
from tidybert.server.engine import Engine
from tidybert.server.middleware import engine_of
from tidybert.server.protocols.native import described
from tidybert.server.protocols.protocol import Protocol
from tidybert.server.served_model import ServedModel

router = APIRouter(route_class=CountedRoute, include_in_schema=False)
_PREFIX: Final = "/page/"
# Views that may wait for the thread; a person asks for a few at a time.
_MOST_WAITING: Final = 64


def _is_file(method: str, path: str) -> bool:
    """Whether a request is for a file of the page, which anybody may have."""
    return method == "GET" and (path == "/" or path.removeprefix(_PREFIX) in page_files())


PROTOCOL: Final = Protocol(router=router, is_open=_is_file)


class PageDesk:
    """One thread that works out views, with models of its own.

    Views look into models, which takes other code than answers do, so they do not share batches
    with requests.  They share the model's weights where these are float32 on the CPU.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "tidybert-page")
        self._waiting = 0
        self._models: WeakKeyDictionary[ServedModel, PageModel] = WeakKeyDictionary()

    async def answer(self, view: View, name: str, given: Mapping[str, Any]) -> Any:
        """What a view shows of a model; raises Refusal."""
        model = self._opened(self._engine.model(name))
        if self._waiting >= _MOST_WAITING:
            raise Refusal(429, "the page has much to do; send it again later", retry_after=1)
        self._waiting += 1
        try:
            with as_refusals("inputs"):
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, lambda: view(model, **given)
                )
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise Refusal(422, f"{field}: {first['msg']}", field) from None
        finally:
            self._waiting -= 1

    def _opened(self, served: ServedModel) -> PageModel:
        if served not in self._models:
            written = _shown_path(self._engine, served.path, served.name)
            plain = served.opened.in_float32(is_plain=True)
            self._models[served] = PageModel(
                plain, written, is_local=self._engine.settings.is_local
            )
        return self._models[served]


@router.get("/")
async def index() -> Response:
    """The page."""
    return page_file(INDEX)


@router.get("/page/about")
async def about(request: Request) -> JsonAnswer:
    """The models, and whether all of them are open."""
    engine = engine_of(request)
    models = []
    for each in engine.models.values():
        facts = None
        if each.index is not None:
            directory = each.index.directory
            shown = _shown_path(engine, str(directory), directory.name)
            model = _shown_path(engine, each.path, each.name)
            facts = {"texts": len(each.index), "opened": f"Index.open({shown!r}, {model!r})"}
        is_run = run_of(each.path) is not None
        models.append({**described(each), "name": each.name, "index": facts, "run": is_run})
    return JsonAnswer({"ready": engine.is_ready, "models": models})


@router.get("/page/{name:path}")
async def file(name: str) -> Response:
    """A file of the page."""
    return page_file(name)


@router.post("/page/{view}")
async def view(view: str, body: dict[str, Any], request: Request) -> Response:
    """What a view shows: JSON, or the bytes of an array."""
    if view not in VIEWS:
        raise Refusal(404, "the page has no such view")
    given = dict(body)
    name = given.pop("model", None)
    state = request.app.state
    if not hasattr(state, "page"):
        state.page = PageDesk(state.engine)
    desk: PageDesk = state.page
    if not isinstance(name, str):
        raise Refusal(422, "expected the name of a model", "model")
    found = await desk.answer(_checked(view), name, given)
    if isinstance(found, bytes):
        return Response(found, media_type="application/octet-stream")
    return JsonAnswer(found)


def _shown_path(engine: Engine, path: str, name: str) -> str:
    # Others need not learn where the files of a server are.
    return path if engine.settings.is_local else name


@cache
def _checked(name: str) -> View:
    """A view that refuses values of other types than its own."""
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    return validate_call(config=config)(VIEWS[name])


def page_file(name: str) -> Response:
    """A file of the page; Refusal 404 for another."""
    if name not in page_files():
        raise Refusal(404, "the page has no such file")
    content, kind = page_files()[name]
    return Response(content, media_type=kind, headers=HEADERS)
