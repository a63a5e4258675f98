"""Standard streams that end no work, whether they are closed, full, gone or ASCII alone."""

import io
import os
import sys
from typing import Any

_STDIN, _STDOUT, _STDERR = range(3)


class LastingStderr(io.FileIO):
    """Standard error that never fails: it counts what nobody could receive, and tells it later.

    So a full disk, a terminal that has gone or a reader that has ended costs messages, and not the
    work that they are about.
    """

    def __init__(self, descriptor: int = _STDERR) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._lost = 0

    def write(self, data: Any, /) -> int:
        """Write all of ``data``, as far as anybody can receive it."""
        left = bytes(data)
        size = len(left)
        if self._lost:
            left = b"(%d bytes of messages could not be written here)\n" % self._lost + left
        try:
            while left:
                # None: whoever shares the stream made it non-blocking, and it is full.
                left = left[super().write(left) or len(left) :]
            self._lost = 0
        except OSError:
            self._lost += size
        return size


def prepare_streams() -> bool:
    """Make the three streams of this process such that no message and no result is a traceback.

    A closed stream gets the null device, so that no file of the command takes its number and is
    written to by whoever prints.  Standard output spells what its encoding lacks as an escape.
    """
    closed = [number for number in (_STDIN, _STDOUT, _STDERR) if _is_closed(number)]
    for _ in closed:
        # The lowest free number each.  Reading from a closed stdin is then still an error.
        os.open(os.devnull, os.O_WRONLY)
    if _STDIN in closed:
        sys.stdin = open(_STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115
    if _STDOUT in closed:
        sys.stdout = open(_STDOUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # Without a buffer, because a signal's handler may write in the midst of another write.
    sys.stderr = io.TextIOWrapper(
        LastingStderr(),
        encoding=getattr(sys.stderr, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
        write_through=True,
    )
    return _STDOUT not in closed


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def finish_stdout() -> None:
    """Write what is left for stdout.  Raises OSError where nobody can receive it, once."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes stdout once more at its end, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
