"""Bytes on disk to lines of text, plain or gzipped, and what packed data may unpack to.

A line ends at ``\n`` or ``\r\n`` and nowhere else: U+2028, U+0085 and their like are data.  A gzip
of 10 MB can hold 10 GB of zeros; texts shrink to a third or a tenth, and the limits are far beyond.
"""

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from tidybert.errors import DataError, LimitError, param
from tidybert.storage.limits import (
    LINE_BYTES,
    UNPACKED_BYTES,
    UNPACKED_RATIO,
    UNPACKED_RATIO_FROM,
)
from tidybert.storage.opening import open_regular, os_reason

UNPACKED_BUFFER = 1 << 17
_LINE: Final = 64  # Bytes of a line beside its text: an empty one takes time too.
GZIP_MAGIC = b"\x1f\x8b"
NUL_BYTE = f"a NUL byte: this is not plain text, or it is UTF-16 ({param('encoding', 'utf-16')})"

# A line's number, its text with the line end, and what is wrong with it.
Line = tuple[int, str, str | None]


@contextmanager
def open_bytes(path: str) -> Iterator[io.BufferedReader]:
    """Open a file, or standard input for ``-``, unpacking gzip where its first bytes show it.

    A named pipe is read as standard input is: the user names it as data.
    """
    try:
        with ExitStack() as stack:
            raw = (
                standard_input()
                if path == "-"
                else stack.enter_context(open_regular(path, allow_pipe=True))
            )
            if path.endswith(".gz") or raw.peek(2)[:2] == GZIP_MAGIC:
                packed = CountedReads(raw)
                unpacked = gzip.GzipFile(fileobj=cast(Any, packed))
                raw = io.BufferedReader(
                    LimitedUnpacking(unpacked, lambda: packed.num_bytes, path), UNPACKED_BUFFER
                )
            yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: the gzip data are damaged or cut short ({error}); copy the file again"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error


def decoded_lines(
    stream: BinaryIO, encoding: str, path: str, guessed: dict[str, str] | None = None
) -> Iterator[Line]:
    """Decode a stream line by line; a wrong byte or a NUL spoils its own line only.

    A byte-order mark before the first line is dropped.  A spoilt line comes with replacement
    characters, so that the quotes in it still close what they open.  With ``guessed`` no flag gave
    the encoding: it gets another one that the file shows beyond doubt.
    """
    encoding = "utf-8" if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig") else encoding
    if guessed is not None and (marked := utf16_mark(stream)):
        encoding = marked
        guessed["encoding"] = f"{marked} (a byte-order mark)"
    raw_lines = iter(lambda: stream.readline(LINE_BYTES.value + 1), b"")
    if not _keeps_ascii(encoding):
        raw_lines, encoding = _recoded_lines(stream, encoding, path), "utf-8"
    for number, raw in enumerate(raw_lines, start=1):
        if len(raw) > LINE_BYTES.value:
            error = LINE_BYTES.error(f"over {len(raw) - 1:,}", f"{path}:{number}")
            raise LimitError(f"{error.message}; is the {param('format')} right?")
        problem = None
        try:
            text = raw.decode(encoding)
            guessed = guessed if raw.isascii() else None
        except UnicodeDecodeError as error:
            if guessed is not None and (shown := western_letters(path)):
                encoding, guessed["encoding"] = "cp1252", f"cp1252 ({shown})"
                guessed = None
                yield number, raw.decode(encoding), None
                continue
            guessed = None
            problem = wrong_byte(raw, error.start, encoding, number)
            text = raw.decode(encoding, "replace")
        if number == 1:
            text = text.removeprefix("\ufeff")
        if problem is None and "\0" in text:
            problem = NUL_BYTE
        yield number, text, problem


def shown_encoding(raw: bytes, encoding: str, path: str, guessed: dict[str, str]) -> str:
    """The encoding that a whole file shows; ``guessed`` gets it, as that of ``decoded_lines``."""
    if marked := utf16_mark_of(raw[:4]):
        guessed["encoding"] = f"{marked} (a byte-order mark)"
        return marked
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        if shown := western_letters(path):
            guessed["encoding"] = f"cp1252 ({shown})"
            return "cp1252"
    return encoding


def utf16_mark(stream: BinaryIO) -> str | None:
    """utf-16 where a stream begins with its byte-order mark."""
    return utf16_mark_of(stream.peek(4)) if isinstance(stream, io.BufferedReader) else None


def utf16_mark_of(head: bytes) -> str | None:
    """utf-16 where the bytes begin with its byte-order mark, and not with that of UTF-32."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if head.startswith(marks) and head[:4] != codecs.BOM_UTF32_LE else None


# What shows that a text is in cp1252: letters of its languages where these have them.  Bytes that
# would mean another letter in cp1250, cp1251, cp1254, cp1257, Mac Roman or DOS leave a doubt: "³"
# is Polish "ł", "ý" Czech or Turkish "ı", "ø" Czech "ř" unless "å" or "æ" is there too.
_WESTERN: Final = "ÀÁÂÃÄÅÆÇÈÉÊËÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüœ"
_MARKS: Final = "\xa0¡¿«»§°–—‘’“”„…•€£"
_DOUBTFUL: Final = re.compile(
    rf"[^\x00-\x7f{_WESTERN}{_MARKS}]|[{_WESTERN}]{{3}}|\bè\w|[ìòù]\w|œ[^ui]|[îû]\w*[îû]|\w[“”„«»¡¿€£]\w"
)
_COMPANY: Final = {"æ": "øå", "ø": "æå", "ã": "çõ", "õ": "ãç"}
_LOOKED_AT: Final = 2**20
_SHOWN_LETTERS: Final = 5


def western_letters(path: str) -> str | None:
    """The bytes that show that a file is in cp1252 and in nothing else; None where in doubt."""
    if path == "-" or not Path(path).is_file():
        return None
    seen: dict[str, None] = {}
    with open_bytes(path) as stream:
        for raw in islice(iter(lambda: stream.readline(LINE_BYTES.value), b""), _LOOKED_AT):
            if raw.isascii():
                continue
            try:
                raw.decode()
            except UnicodeDecodeError:
                text = raw.decode("cp1252", "replace")
            else:
                return None
            if _DOUBTFUL.search(text):
                return None
            seen |= dict.fromkeys(char for char in text if not char.isascii())
    if any(one in seen and not seen.keys() & set(others) for one, others in _COMPANY.items()):
        return None
    shown = (f"0x{each.encode('cp1252').hex()} is {each}" for each in seen if each != "\xa0")
    return ", ".join(islice(shown, _SHOWN_LETTERS)) or None


def chomp(line: str) -> str:
    """The line without its line end."""
    return line.removesuffix("\n").removesuffix("\r")


def standard_input() -> io.BufferedReader:
    """The bytes of standard input."""
    stream = cast(Any, sys.stdin.buffer)
    return cast(io.BufferedReader, stream) if hasattr(stream, "peek") else io.BufferedReader(stream)


def _recoded_lines(stream: BinaryIO, encoding: str, path: str) -> Iterator[bytes]:
    """Lines in an encoding that does not include ASCII, such as UTF-16, as UTF-8."""
    text = io.TextIOWrapper(stream, encoding=encoding, newline="\n")
    number = 0
    try:
        while line := text.readline(LINE_BYTES.value + 1):
            number += 1
            yield line.encode("utf-8")
    except UnicodeError as error:
        raise DataError(
            f"{path}:{number + 1}: this line or one soon after is not {encoding}; give the file's "
            f"encoding with {param('encoding')}"
        ) from error
    finally:
        # The wrapper would otherwise close the stream, which is the caller's.
        with suppress(ValueError):
            text.detach()


def _keeps_ascii(encoding: str) -> bool:
    sample = '\n\r\t,;|"{}09azAZ'
    return sample.encode(encoding) == sample.encode("ascii")


def wrong_byte(line: bytes, at: int, encoding: str, number: int) -> str:
    """Why line ``number`` cannot be decoded, for its byte ``at``, and what to do."""
    if number == 1 and line[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return f"the file begins as UTF-16 does; give {param('encoding', 'utf-16')}"
    advice = (
        f"save the file as UTF-8, or give its encoding, as in {param('encoding', _likely(line))}"
        if encoding == "utf-8"
        else f"give the file's encoding with {param('encoding')}"
    )
    return f"byte 0x{line[at]:02x} at column {at + 1} is not {encoding}; {advice}"


def _likely(line: bytes) -> str:
    """The encoding that Windows or Unix most likely wrote a line in that is not UTF-8."""
    # cp1252 has quotation marks, dashes and the euro where latin-1 has control characters; all else
    # is the same in both.  So the advice also fits a file of which another line has such a sign.
    try:
        line.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


class CountedReads:
    """A stream that may be a pipe, and how many bytes were read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.num_bytes = 0
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the stream."""
        content = self._stream.read(size)
        self.num_bytes += len(content)
        return content


class LimitedUnpacking(io.RawIOBase):
    """The bytes of an unpacking stream, up to the limits.

    Args:
        unpacked: the stream that unpacks.
        packed_bytes: says how many packed bytes it has read.
        path: for the message.

    Reading raises LimitError beyond a limit.
    """

    def __init__(self, unpacked: Any, packed_bytes: Callable[[], int], path: object) -> None:
        super().__init__()
        self._unpacked = unpacked
        self._packed_bytes = packed_bytes
        self._path = path
        self._total = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as one read goes."""
        count: int = self._unpacked.readinto(buffer)
        lines = bytes(buffer[:count]).count(b"\n")
        self._total += count + lines * _LINE
        check_unpacked(self._total, self._packed_bytes(), self._path)
        return count


def check_unpacked(num_bytes: int, packed_bytes: int, path: object) -> None:
    """Raise LimitError where a file of so many packed bytes unpacks to more than the limits."""
    ratio = num_bytes // max(packed_bytes, 1) if num_bytes > UNPACKED_RATIO_FROM else 0
    try:
        UNPACKED_BYTES.check(num_bytes, path)
        UNPACKED_RATIO.check(ratio, path)
    except LimitError as error:
        raise LimitError(
            f"{error.message}; if you trust the file, unpack it, or save it in parts"
        ) from None
