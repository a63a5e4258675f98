"""The JSON of a body: what is counted in it is counted before the types are looked at.

A list of a million numbers where a text belongs would be a million errors, and a route makes them
in the event loop, where every other client waits.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Final, NoReturn, TypeVar, get_type_hints

import numpy as np
import orjson
from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import GetCoreSchemaHandler
from starlette.responses import Response

from tidybert.server.answers import Refusal
from tidybert.server.middleware import engine_of

T = TypeVar("T")


class _EndsAtFirstError:
    """Pydantic's ``FailFast``, which a union of Python 3.11 cannot hold."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> Any:
        return {**handler(kind), "fail_fast": True}


ListOf = Annotated[list[T], _EndsAtFirstError()]
"""A list whose first wrong item ends the check."""
FLAT_IDS: Final = "a list of numbers is one input"
"""In the annotation of a field."""

# Most fields of an object; no route has as many.
_MOST_FIELDS: Final = 32
# Most numbers of a list of ids; no model reads as many tokens.
_MOST_IDS: Final = 32_768
# Lists and objects, and fields, that a body may have for each input that the server takes.
_PER_INPUT: Final = 16
# Fields whose items are inputs.  Other lists (words to choose among, filters) may have this many
# items, and a body lists and fields for as many inputs, though the server takes fewer inputs.
_INPUTS: Final = ("inputs", "input", "texts", "ids")
_LEAST: Final = 1000
_QUOTE: Final = ord('"')


class CountedRoute(APIRoute):
    """A route whose body is counted; ``too_many`` is its status for too many inputs."""

    too_many = 422

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        fields = getattr(get_type_hints(self.endpoint).get("body"), "model_fields", {})
        flat = {name for name, field in fields.items() if FLAT_IDS in field.metadata}

        async def counted(request: Request) -> Response:
            given = _CountedRequest(request.scope, request.receive)
            body = await given.body()
            if body and "json" in request.headers.get("content-type", "").lower():
                most = engine_of(request).settings.max_inputs
                _count_bytes(body, _PER_INPUT * max(most, _LEAST))
                given.parse(body)
                self._count(given.parsed, most, flat)
            return await answer(given)

        return counted

    def _count(self, body: Any, most: int, flat: set[str]) -> None:
        """Raise Refusal for a list with too many items, and an object with too many fields."""
        if not isinstance(body, dict):
            return
        _count_fields(body, None)
        for name, value in body.items():
            is_one = not isinstance(value, list) or (name in flat and _begins_ids(value))
            allowed = most if name in _INPUTS else max(most, _LEAST)
            if not is_one and len(value) > allowed:
                what = "inputs" if name == "inputs" else f"items of {name}"
                _refuse_many(self.too_many, len(value), what, allowed, name)
            for number, one in enumerate([value] if is_one else value):
                where = name if is_one else f"{name}.{number}"
                _count_fields(one, where)
                if _begins_ids(one) and len(one) > _MOST_IDS:
                    raise Refusal(422, f"{len(one):,} ids; at most {_MOST_IDS:,} are taken", where)


def furthest(errors: Sequence[Any], body: Any) -> tuple[list[str | int], Any]:
    """The error that is deepest in a body and furthest along its lists, and its place there.

    A value of several types has an error for each, and the type that fits longest is meant.  The
    names of the types are no part of the place.
    """

    def placed(error: Any) -> tuple[list[str | int], Any]:
        is_missing = error["type"] == "missing"
        found, here = [], body
        for part in error["loc"][: -1 if is_missing else None]:
            is_item = isinstance(here, list) and isinstance(part, int) and part < len(here)
            if is_item or (isinstance(here, dict) and part in here):
                found.append(part)
                here = here[part]
        if is_missing:
            found.append(error["loc"][-1])
        return found, error

    numbered = [placed(each) for each in errors]
    return max(numbered, key=lambda pair: [at if isinstance(at, int) else 0 for at in pair[0]])


class ClientRoute(CountedRoute):
    """One of a protocol whose clients know 413 for too many inputs."""

    too_many = 413


class _CountedRequest(Request):
    """A request whose JSON is parsed once."""

    parsed: Any = None
    _error: Exception | None = None

    def parse(self, body: bytes) -> None:
        try:
            self.parsed = orjson.loads(body)
        except ValueError:
            # NaN and halves of surrogates have messages that name their fields.
            try:
                self.parsed = json.loads(body)
            except (ValueError, RecursionError) as error:
                self._error = error

    async def json(self) -> Any:
        if self._error is not None:
            raise self._error
        return self.parsed


def _begins_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and type(value[0]) is int


def _count_fields(value: Any, where: str | None) -> None:
    if isinstance(value, dict) and len(value) > _MOST_FIELDS:
        raise Refusal(
            422, f"an object with {len(value):,} fields; at most {_MOST_FIELDS} are taken", where
        )


def _count_bytes(body: bytes, most: int) -> None:
    """Raise Refusal for more lists, objects or fields than ``most``, before they are made."""
    signs = (b"[", b"{"), (b":",)
    if all(sum(map(body.count, each)) <= most for each in signs):
        return
    # Those within texts do not count.
    plain = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = plain[~np.logical_xor.accumulate(plain == _QUOTE)].tobytes()
    for each, what in zip(signs, ("lists and objects", "fields"), strict=True):
        count = sum(map(outside.count, each))
        if count > most:
            _refuse_many(400, count, what, most)


def _refuse_many(
    status: int, count: int, what: str, most: int, field: str | None = None
) -> NoReturn:
    message = f"{count:,} {what} in one request; at most {most:,} are taken: send several requests"
    raise Refusal(status, message, field)
