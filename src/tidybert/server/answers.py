"""What goes back: JSON, or a Refusal, which each protocol writes in its own shape."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.responses import JSONResponse
from typing_extensions import TypedDict

from tidybert.errors import DataError, TextError, TidyBertError, UsageError, in_python

_LOGGER: Final = logging.getLogger(__name__)

KINDS: Final = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    413: "too_large",
    422: "invalid_input",
    429: "overloaded",
    500: "internal_error",
    503: "unavailable",
    504: "deadline_exceeded",
}
"""The kind of a refusal by its status, where nobody gives another."""
# The kind of a request for a head that the model lacks, and of one with a field too many.
WRONG_TASK: Final = "wrong_task"
UNKNOWN_FIELD: Final = "unknown_field"


class JsonAnswer(JSONResponse):
    """JSON by orjson, NumPy's arrays included; numbers that are not finite become null."""

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is not answered.

    message: for the user: what was given, what was expected; no path, no key, no stack.
    param: the field of the request that is wrong, such as "inputs.3".  kind: a word for programs.
    retry_after: seconds after which it may succeed; None where waiting does not help.
    """

    status: int
    message: str
    param: str | None = None
    kind: str = ""
    retry_after: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)
        self.kind = self.kind or KINDS.get(self.status, "error")


Shape = Callable[[Refusal], tuple[int, Any]]
"""A Refusal as the status and the JSON of one protocol."""


class ErrorDetail(TypedDict):
    """Why a request has no answer, and the field of the request that is wrong."""

    type: str
    message: str
    field: str | None


class Error(TypedDict):
    """An error of the native routes."""

    error: ErrorDetail


def native_shape(refusal: Refusal) -> tuple[int, Error]:
    """The shape of tidybert's own routes, and of a path that no protocol has."""
    detail = ErrorDetail(type=refusal.kind, message=refusal.message, field=refusal.param)
    return refusal.status, Error(error=detail)


def refused(refusal: Refusal, shape: Shape = native_shape) -> JsonAnswer:
    # OpenAI's client asks again if this says so, whatever the status is.
    headers = {"x-should-retry": "false" if refusal.retry_after is None else "true"}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    status, content = shape(refusal)
    return JsonAnswer(content, status, headers)


@contextmanager
def as_refusals(param: str) -> Iterator[None]:
    """Errors that the texts of a request cause, as Refusals."""
    try:
        yield
    except (DataError, TextError, UsageError) as error:
        raise Refusal(422, in_python(error.message, rows="input"), param) from None
    except TidyBertError as error:
        # Weights and devices: the client cannot help it, and the message may name a path.
        _LOGGER.exception("a batch failed")
        raise Refusal(500, "the model failed; the server's log says why") from error
