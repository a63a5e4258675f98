"""The log: JSON lines with the fields of a request, and no text of a client."""

import json
import logging
import sys

from tidybert.errors import WeightsError
from tidybert.server.process import JsonLines


def line_of(error: Exception) -> dict[str, object]:
    try:
        raise error
    except Exception:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "it failed", (), sys.exc_info())
    record.fields = {"id": "7"}
    found: dict[str, object] = json.loads(JsonLines().format(record))
    return found


def test_an_error_shows_its_place_and_only_our_messages() -> None:
    theirs, ours = line_of(RuntimeError("my text")), line_of(WeightsError("x: no weights"))

    assert theirs["error"] == "RuntimeError"
    assert theirs["id"] == "7"
    assert "line_of" in str(theirs["trace"])
    assert "my text" not in str(theirs)
    assert ours["error_message"] == "x: no weights"
