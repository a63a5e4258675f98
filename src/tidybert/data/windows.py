"""Windows over a sequence that is longer than a model reads (run_squad.py, _DocSpan).

A window begins every ``doc_stride`` tokens.  This is Google's sense of the word, the step; Hugging
Face's ``stride`` is the overlap, the window's room less this step.  Only the last window may be
shorter than its room.  Everything here is counts of tokens, whatever the tokens are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import ConfigError, UsageError, param

DEFAULT_DOC_STRIDE: Final = 128  # run_squad.py's

# A window's first token, and the token after its last.
Window = tuple[int, int]


def stride_in(settings: Mapping[str, Any]) -> int | None:
    """The doc_stride among the settings of tidybert.json; ConfigError for another value."""
    found = settings.get("doc_stride")
    if found is None or (type(found) is int and found >= 1):
        return found
    raise ConfigError(f"doc_stride is {found!r:.80}; a number of tokens is needed")


def check_windows(room: int, doc_stride: int | None) -> None:
    """Raise UsageError for windows without room, and for a step that would skip tokens."""
    if room < 1:
        raise UsageError(
            f"{param('max_seq_length')} leaves no room in a window beside the special tokens and "
            "the text that every window repeats: give more"
        )
    if doc_stride is not None and not 1 <= doc_stride <= room:
        raise UsageError(
            f"{param('doc_stride', doc_stride)}: it is the step from window to window, and a "
            f"window has room for {room} tokens; give 1 to {room}, so that no token is stepped over"
        )


def windows_of(num_tokens: int, room: int, doc_stride: int | None = None) -> list[Window]:
    """The windows over ``num_tokens`` tokens; one empty window over none.

    doc_stride: None is 128 tokens, or half of a window that is shorter than twice that.

    Raises UsageError as ``check_windows`` does.
    """
    check_windows(room, doc_stride)
    if num_tokens <= room:
        return [(0, num_tokens)]
    step = min(DEFAULT_DOC_STRIDE, (room + 1) // 2) if doc_stride is None else doc_stride
    count = 1 + -(-(num_tokens - room) // step)
    return [(start, min(start + room, num_tokens)) for start in range(0, count * step, step)]


def most_context(windows: Sequence[Window]) -> npt.NDArray[np.int64]:
    """(n,) for each token the number of the window that shows most of its surroundings.

    That is the larger of the smaller context, left or right; a hundredth of the window's length
    decides between equals, then the earlier window (run_squad.py, _check_is_max_context).
    """
    num_tokens = windows[-1][1]
    owners = np.zeros(num_tokens, dtype=np.int64)
    if len(windows) == 1:
        return owners
    best = np.full(num_tokens, -np.inf)
    for number, (start, end) in enumerate(windows):
        left = np.arange(end - start)
        context = np.minimum(left, left[::-1]) + 0.01 * (end - start)
        better = context > best[start:end]
        best[start:end][better] = context[better]
        owners[start:end][better] = number
    return owners
