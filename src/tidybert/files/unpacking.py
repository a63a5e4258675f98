"""Packed data that unpack to more than anybody's texts: a gzip of 10 MB can hold 10 GB of zeros.

Texts shrink to a third or a tenth; the limits are far beyond that.
"""

import io
from collections.abc import Callable
from typing import Any, BinaryIO

from tidybert.errors import LimitError
from tidybert.storage.limits import UNPACKED_BYTES, UNPACKED_RATIO, UNPACKED_RATIO_FROM


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
        self._total += count
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
