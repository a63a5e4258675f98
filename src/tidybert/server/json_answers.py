"""JSON by orjson, NumPy's arrays and numbers included."""

import logging
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.responses import JSONResponse

from tidybert.errors import TidyBertError


class JsonAnswer(JSONResponse):
    """A response that orjson writes; numbers that are not finite become null."""

    def render(self, content: Any) -> bytes:
        """The bytes of ``content``."""
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


# The server's log: one JSON object a line, with request ids and without texts or keys.


class JsonLines(logging.Formatter):
    """Each record as a JSON object: time, level, message, and the fields of a request.

    An exception shows its type and its places in the code.  Only a TidyBertError shows its message:
    those of others may quote a client's text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            entry["error"] = type(error).__name__
            if isinstance(error, TidyBertError):
                entry["error_message"] = str(error)
            entry["trace"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ]
        return orjson.dumps(entry, default=str).decode()


def log_as_json(*, requests: bool) -> None:
    """Have this process log to stderr in JSON lines; ``requests``: each request too."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("tidybert.server").setLevel(logging.INFO if requests else logging.WARNING)
