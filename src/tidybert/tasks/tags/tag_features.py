"""Features of tagged sentences: windows over the pieces of words, and where each word is read.

A word is represented by the first of its pieces (paper, sections 5.3 and 5.4).  A sentence longer
than the model reads is read in windows that overlap, and each word in the one that shows most of
its surroundings, so that nothing is cut off and each word counts once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features, sequence
from tidybert.data.long_texts import check_windows, most_context, windows_of
from tidybert.tasks.tags.tagged_sentences import TaggedExample
from tidybert.tokenization import BertTokenizer

SPECIAL_TOKENS = 2  # [CLS] and [SEP]


@dataclass(frozen=True, slots=True)
class WordPlaces:
    """Which words a window answers for, W of them.

    Args:
        words: (W,) their numbers in the sentence.
        rows: (W,) the row of each one's first piece among the window's rows.
        num_silent: how many of them the tokenizer drops, such as a control character; the model
            reads each as [UNK].
    """

    words: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    num_silent: int


def tagged_features(
    examples: Sequence[TaggedExample],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    doc_stride: int | None,
) -> list[Features]:
    """One Features an example, or one a window, whose ``place`` are its WordPlaces.

    Each word is in the WordPlaces of one window.  A window that answers for no word is left out; an
    example without words has one Features.  Raises UsageError as ``check_windows``, and the
    tokenizer's TextError.
    """
    room = max_seq_length - SPECIAL_TOKENS
    check_windows(room, doc_stride)
    pieces = iter(
        tokenizer.encode_batch(
            [word for one in examples for word in one.words], add_special_tokens=False
        )
    )
    return [
        each
        for number, example in enumerate(examples)
        for each in _windows(
            number, [next(pieces) for _ in example.words], tokenizer, room, doc_stride
        )
    ]


def _windows(
    number: int,
    pieces: list[npt.NDArray[Any]],
    tokenizer: BertTokenizer,
    room: int,
    doc_stride: int | None,
) -> Iterator[Features]:
    silent = np.array([len(each) == 0 for each in pieces], dtype=np.bool_)
    if silent.any():
        unknown = np.array([tokenizer.unk_token_id])
        pieces = [each if len(each) else unknown for each in pieces]
    ends = np.cumsum([len(each) for each in pieces], dtype=np.int64)
    firsts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(pieces)]
    ids = np.concatenate([np.empty(0, dtype=np.int32), *pieces])
    windows = windows_of(len(ids), room, doc_stride)
    owners = most_context(windows)[firsts]
    for window, (first, last) in enumerate(windows):
        words = np.flatnonzero(owners == window)
        if not len(words) and len(windows) > 1:
            continue
        yield Features(
            *sequence(tokenizer, [ids[first:last]]),
            num_tokens=len(ids) + SPECIAL_TOKENS,
            example=number,
            place=WordPlaces(words, firsts[words] - first + 1, int(silent[words].sum())),
        )
