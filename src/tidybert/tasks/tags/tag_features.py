"""Features of tagged sentences: windows over the pieces of words, and where each word is read.

Checks of sentences and their features before training are here too.

A word is represented by the first of its pieces (paper, sections 5.3 and 5.4).  A sentence longer
than the model reads is read in windows that overlap, and each word in the one that shows most of
its surroundings, so that nothing is cut off and each word counts once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.data.checks import DataReport, TrainingData, check_labels
from tidybert.data.features import Features, sequence
from tidybert.data.long_texts import check_windows, most_context, windows_of
from tidybert.errors import param
from tidybert.files.wording import count_of
from tidybert.tasks.tags.tagged_sentences import TaggedExample, marked_by
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

    Its weight is the number of its words.  Each word is in the WordPlaces of one window.  A window
    that answers for no word is left out; an example without words has one Features.  Raises
    UsageError as ``check_windows``, and the tokenizer's TextError.
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
            weight=float(len(words)),
        )


def check_tags(report: DataReport, data: TrainingData[TaggedExample], *, of_entities: bool) -> None:
    """Check the types of entities, or the tags, and that every sentence has a word."""
    counts, in_dev = (_count(each, of_entities) for each in (data.train, data.held_out))
    if not counts:
        report.errors.append(
            f"every training tag is O, so no entity can be learned (is {param('label')} the "
            "right column?)"
        )
    elif not of_entities and len(counts) == 1:
        report.errors.append(
            f"every training word has the tag {next(iter(counts))!r}; two at least are needed (is "
            f"{param('label')} the right column?)"
        )
    nouns = "entities" if of_entities else "tags"
    check_labels(report, counts, in_dev, nouns, remedy="add examples")
    for counted, lines in data.those(lambda one: not one.words):
        report.errors.append(f"{counted} without a word ({lines})")


def _count(examples: Sequence[TaggedExample], of_entities: bool) -> Counter[str]:
    """How often each type of entity, or each tag, occurs."""
    counts: Counter[str] = Counter()
    for one in examples:
        counts.update(marked_by(one.tags or (), of_entities=of_entities))
    return counts


def count_words(report: DataReport, data: TrainingData[TaggedExample]) -> None:
    """Report the number of words, and how the model reads them."""
    num_words = sum(len(one.words) for one in data.train)
    report.facts.append(f"{count_of(num_words, 'word')} to train")
    for part, _, features in data.parts():
        windows = Counter(one.example for one in features)
        longer = sum(count > 1 for count in windows.values())
        if longer:
            num_windows = len(features) - len(windows) + longer
            report.facts.append(
                f"{part}: {count_of(longer, 'example')} longer than {param('max_seq_length')} "
                f"{data.max_seq_length} and read in windows, {num_windows:,} of them"
            )
        silent = sum(one.place.num_silent for one in features)
        if silent:
            report.facts.append(
                f"{part}: {count_of(silent, 'word')} of characters that the tokenizer drops; the "
                "model sees [UNK] for each"
            )
