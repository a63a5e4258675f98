"""JSON text walked entry by entry, so that a message about one can name its line.

Follows RFC 8259 as Python's json reads it.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from tidybert.errors import DataError, LimitError, param
from tidybert.files.text_lines import NUL_BYTE, wrong_byte
from tidybert.storage.limits import DATA_JSON_BYTES

TOO_DEEP: Final = "too many levels of nesting"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_CLOSERS: Final = {"[": "]", "{": "}"}


class JsonCursor:
    """A place in a JSON text that moves on as values are read or walked into.

    ``line`` is the 1-based line of the entry that was met last.  Every method raises
    json.JSONDecodeError where the text is not JSON.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.line = 1
        self._decode = json.JSONDecoder().raw_decode
        self._at = 0
        self._counted = 0
        self._skip()

    def peek(self) -> str:
        """The character that the next value begins with, or nothing at the end."""
        return self.text[self._at : self._at + 1]

    def value(self) -> Any:
        """Read the next value whole."""
        value, self._at = self._decode(self.text, self._at)
        self._skip()
        return value

    def entries(self) -> Iterator[str | None]:
        """Walk into the next value, an array or an object, and stop before each of its values.

        Yields the key in an object, None in an array; the caller reads the value, or walks into it
        to its end, before asking for the next.
        """
        opener = self.peek()
        closer = _CLOSERS.get(opener)
        if closer is None:
            raise self._error("an array or an object of objects is expected")
        self._step()
        if self.peek() == closer:
            self._step()
            return
        while True:
            self.line += self.text.count("\n", self._counted, self._at)
            self._counted = self._at
            yield self._key() if opener == "{" else None
            if self.peek() == closer:
                self._step()
                return
            if self.peek() != ",":
                raise self._error(f"a comma or {closer} is expected")
            self._step()

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self._at < len(self.text):
            raise self._error("more text after the end")

    def _key(self) -> str:
        key = self.value()
        if not isinstance(key, str) or self.peek() != ":":
            raise self._error('"name": is expected')
        self._step()
        return key

    def _step(self) -> None:
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self._at)
        assert found is not None
        self._at = found.end()

    def _error(self, message: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self.text, self._at)


@contextmanager
def json_cursor(stream: BinaryIO, encoding: str, path: str) -> Iterator[JsonCursor]:
    """A cursor at the beginning of a stream's text, which is held in memory.

    Raises DataError with the line where the bytes are of another encoding, and where the block
    finds that the JSON is broken.
    """
    raw = stream.read(DATA_JSON_BYTES.value + 1)
    if len(raw) > DATA_JSON_BYTES.value:
        error = DATA_JSON_BYTES.error(f"over {len(raw) - 1:,}", path)
        raise LimitError(f"{error.message}; save one object a line ({param('format', 'jsonl')})")
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1)
        # The first two bytes of a file show UTF-16.
        line = raw[error.start - column : error.start + 2]
        raise DataError(f"{path}:{number}: {wrong_byte(line, column, encoding, number)}") from error
    del raw
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}:{number}: {NUL_BYTE}")
    try:
        yield JsonCursor(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}: not JSON: {error.msg} at column {error.colno}; for one object "
            f"a line give {param('format', 'jsonl')}"
        ) from error
    except DataError:
        raise
    except RecursionError as error:
        raise DataError(f"{path}: JSON that cannot be read: {TOO_DEEP}") from error
    except ValueError as error:
        raise DataError(f"{path}: JSON that cannot be read: {error}") from error
