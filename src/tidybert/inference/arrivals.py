"""Items of a stream that may pause: a thread waits for them while earlier ones are worked on."""

import io
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Final, Self, TypeVar

T = TypeVar("T")

# The largest chunk of examples that is answered at once.
_MOST_AHEAD: Final = 1024


class Arrivals(Iterator[T]):
    """The items of an iterable, in order, which a thread reads ahead inside a ``with`` block.

    Raises an error of the iterable after the items that came before it.

    Args:
        items: used only in the thread.
        most_ahead: how many items may wait to be taken.
    """

    def __init__(self, items: Iterable[T], most_ahead: int = _MOST_AHEAD) -> None:
        self._items = items
        self._most_ahead = most_ahead
        self._waiting: deque[T] = deque()
        self._changed = Condition()
        self._error: BaseException | None = None
        self._is_left = False
        self.has_ended = False
        """Whether the thread has stopped reading."""

    def __enter__(self) -> Self:
        # Nothing can stop a thread that waits for input, and the program must not wait for it.
        Thread(target=self._read, name="arrivals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_left = True
            self._changed.notify_all()

    def __next__(self) -> T:
        for item in self.take(1):
            return item
        raise StopIteration

    def take(self, most: int) -> list[T]:
        """At most ``most`` of the waiting items; waits for the first one, returns [] at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.has_ended)
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._changed.notify_all()
        if not taken and self._error is not None:
            raise self._error
        return taken

    def _read(self) -> None:
        try:
            for item in self._items:
                with self._changed:
                    self._changed.wait_for(self._has_room)
                    if self._is_left:
                        return
                    self._waiting.append(item)
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._is_left or len(self._waiting) < self._most_ahead


@contextmanager
def as_it_comes(examples: Iterator[T], file: str) -> Iterator[Iterator[T]]:
    """The examples of a file, or Arrivals for standard input ("-"), which may pause."""
    if file != "-":
        yield examples
        return
    arrivals = Arrivals(examples)
    try:
        with arrivals:
            yield arrivals
    finally:
        # Python closes standard input when it exits, and aborts if a thread still waits for it.
        if not arrivals.has_ended and isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.detach()
