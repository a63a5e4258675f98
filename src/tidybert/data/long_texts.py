"""Texts longer than a model reads: their beginning, their two ends, or windows over all of them.

Sun et al. 2019 (How to Fine-Tune BERT for Text Classification, section 5.3.1) found the first 128
and the last 382 of 510 tokens to say most of a review; ``head-tail`` keeps that share.  ``windows``
makes each window a sequence of its own, for the answers to be averaged: a text of any length then
takes no more memory at once than a short one, and ``tokens_per_batch`` bounds it.

A window begins every ``doc_stride`` tokens (run_squad.py, _DocSpan).  This is Google's sense of the
word, the step; Hugging Face's ``stride`` is the overlap, the window's room less this step.  Only
the last window may be shorter than its room.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features, Ids, example_features, first_features, sequence
from tidybert.errors import ConfigError, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.tokenization import BertTokenizer

MODES: Final = ("truncate", "head-tail", "windows")
HEAD_SHARE: Final = 128 / 510
DEFAULT_DOC_STRIDE: Final = 128  # run_squad.py's

# A window's first token, and the token after its last.
Window = tuple[int, int]


@dataclass(frozen=True)
class LongTexts:
    """How to read a text that is longer than ``max_seq_length``.

    Args:
        mode: truncate keeps the beginning, and of a pair cuts the longer side first; head-tail
            keeps the beginning and the end of a single text; windows reads everything, of a pair
            the first text, or its beginning, beside each window of the second.
        doc_stride: tokens from one window's beginning to the next; see ``windows_of``.

    Raises UsageError for a ``doc_stride`` without windows.
    """

    mode: str = "truncate"
    doc_stride: int | None = None

    def __post_init__(self) -> None:
        if self.doc_stride is not None and self.mode != "windows":
            raise UsageError(
                f"{param('doc_stride', self.doc_stride)} has no meaning without "
                f"{param('long', 'windows')}"
            )

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """As ``settings`` gave them; ConfigError for an unknown mode."""
        mode = settings.get("long", "truncate")
        if mode not in MODES:
            raise ConfigError(f"long is {mode!r:.80}; one of {', '.join(MODES)} is needed")
        return cls(mode, settings.get("doc_stride"))

    def settings(self) -> dict[str, Any]:
        """The entries of tidybert.json; none where texts are truncated."""
        if self.mode == "truncate":
            return {}
        stride = {} if self.doc_stride is None else {"doc_stride": self.doc_stride}
        return {"long": self.mode, **stride}

    def facts(self, part: str, features: Sequence[Features]) -> list[str]:
        """How many texts of a part (train, dev) were cut or read in windows, a line each."""
        if self.mode == "head-tail":
            examples = first_features(features)
            cut = sum(one.truncated for one in examples)
            return [f"cut in the middle: {cut:,} of {len(examples):,} {part}"] if cut else []
        counts = window_counts(features)
        windowed = counts[counts > 1]
        if not len(windowed):
            return []
        read = f"read in windows: {len(windowed):,} of {len(counts):,} {part}"
        return [f"{read}, in {windowed.sum():,} windows, {windowed.max():,} at most"]


def long_features(
    examples: Sequence[TextExample],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    mode: str = "truncate",
    doc_stride: int | None = None,
) -> list[Features]:
    """Features of examples, without labels, by ``LongTexts``; windows share their text's weight."""
    features = example_features(examples, tokenizer, max_seq_length)
    if mode == "truncate":
        return features
    seconds = [one.text_pair for one in examples if one.text_pair is not None]
    room = max_seq_length - tokenizer.layout.num_special(2 if seconds else 1)
    if doc_stride is not None:
        _check_step(doc_stride, max_seq_length, room, of_pairs=bool(seconds))
    if seconds and mode == "head-tail":
        raise UsageError(
            f"{param('long', 'head-tail')} is for single texts, and these are pairs: give "
            f"{param('long', 'windows')}, which reads the first text beside each part of the "
            "second, or truncate"
        )
    long = [number for number, one in enumerate(features) if one.truncated]
    room = max_seq_length - tokenizer.layout.num_special(2 if seconds else 1)

    def encoded(texts: Sequence[str]) -> Sequence[Ids]:
        chosen = [texts[number] for number in long]
        return tokenizer.encode_batch(chosen, add_special_tokens=False)

    firsts = encoded([one.text for one in examples])
    others = encoded(seconds) if seconds else []
    read: dict[int, list[Features]] = {}
    for at, number in enumerate(long):
        first = firsts[at]
        is_cut = False
        if seconds:
            parts = _beside_windows(first, others[at], room, doc_stride)
            is_cut = len(parts[0][0]) < len(first)
        elif mode == "windows":
            windows = windows_of(len(first), room, doc_stride)
            parts = [[first[start:end]] for start, end in windows]
        else:
            head = max(1, round(HEAD_SHARE * room))
            tail = first[len(first) - (room - head) :]
            parts, is_cut = [[np.concatenate((first[:head], tail))]], True
        total, weight = features[number].num_tokens, 1 / len(parts)
        read[number] = [
            Features(*sequence(tokenizer, each), total, is_cut, example=number, weight=weight)
            for each in parts
        ]
    return [each for number, one in enumerate(features) for each in read.get(number, [one])]


def _beside_windows(first: Ids, second: Ids, room: int, doc_stride: int | None) -> list[list[Ids]]:
    """The first text beside each window of the second.

    Half of the room, or what the second or a longer step leaves, is the first's; it is cut where it
    is longer.
    """
    beside_windows = min(room // 2, room - (doc_stride or 1))
    kept = min(len(first), max(beside_windows, room - max(1, len(second))))
    width = room - kept
    # One window takes no step, and may be shorter than it.
    windows = windows_of(len(second), width, doc_stride if len(second) > width else None)
    return [[first[:kept], second[start:end]] for start, end in windows]


def window_counts(features: Sequence[Features]) -> npt.NDArray[np.int64]:
    """(number of examples,): how many features each has."""
    return np.bincount(np.array([one.example for one in features], dtype=np.int64))


def _check_step(doc_stride: int, max_seq_length: int, room: int, *, of_pairs: bool) -> None:
    """Raise UsageError for a step that would skip tokens where a text needs several windows.

    It does so even if all texts at hand are short: the model has to read others.
    """
    # One token of the first text stands beside each window of the second.
    room -= of_pairs
    if doc_stride > room:
        beside = " beside one of the first text" if of_pairs else ""
        raise UsageError(
            f"{param('doc_stride', doc_stride)}: it is the step from window to window, and with "
            f"{param('max_seq_length', max_seq_length)} a window has room for {room} "
            f"tokens{beside}; give 1 to {room}, or "
            f"{param('max_seq_length', max_seq_length + doc_stride - room)}, so that no token is "
            "stepped over"
        )


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
