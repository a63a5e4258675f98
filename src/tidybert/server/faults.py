"""Refusal: why a request gets no answer; each protocol renders it in its own shape."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidybert.errors import DataError, TextError, TidyBertError, UsageError, in_python

_LOGGER: Final = logging.getLogger(__name__)

KINDS: Final = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
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


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP.
        message: for the user: what was given, what was expected; no path, no key, no stack.
        param: the field of the request that is wrong, such as "inputs.3"; None without one.
        kind: a word that programs can compare; that of KINDS if not given.
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
