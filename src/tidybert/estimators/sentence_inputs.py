"""Sentences of words, and a tag for each word, as users hand them in: checked, with guesses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidybert.errors import DataError
from tidybert.files.wording import count_of
from tidybert.tasks.tags.tagged_sentences import as_iob2, kind_of

_WORDS = 'expected sentences, each a list of words: [["Rome", "is", "old"], …]'
_TAGS = 'expected a list of tags for each sentence of X: [["B-LOC", "O", "O"], …]'


def read_sentences(X: Any) -> list[tuple[str, ...]]:
    """The words of each sentence; DataError for anything but lists of strings, or none at all."""
    sentences = _rows("X", X, _WORDS)
    if not sentences:
        raise DataError(f"X is empty: {_WORDS}")
    return sentences


def read_tags(
    y: Any, sentences: Sequence[Sequence[str]], of_entities: bool | None = None
) -> list[tuple[str, ...]]:
    """The tags of each sentence, those of entities in IOB2 for any scheme.

    ``of_entities`` says whether they mark entities, where a model has learned that.

    Raises DataError for other lengths than X's, and where only some of the tags
    mark entities.
    """
    if y is None:
        raise DataError("BertTagger requires y to be passed, but the target y is None")
    tags = _rows("y", y, _TAGS)
    if len(tags) != len(sentences):
        raise DataError(f"X has {len(sentences)} sentences and y has {len(tags)}: {_TAGS}")
    for number, (ours, words) in enumerate(zip(tags, sentences, strict=True)):
        if len(ours) != len(words):
            raise DataError(
                f"X[{number}] has {count_of(len(words), 'word')} and y[{number}] "
                f"{count_of(len(ours), 'tag')}: expected a tag for each word"
            )
        if "" in ours:
            raise DataError(f"y[{number}][{ours.index('')}] is empty: expected a tag for each word")
    kind = kind_of(tags, of_entities)
    if kind.wrong:
        number, place = kind.wrong[0]
        others = "other tags" if of_entities is None else "those in training"
        raise DataError(
            f"y[{number}][{place}] is {tags[number][place]!r}, and {others} are of entities: "
            f"expected O, or B- or I- and a type ({count_of(len(kind.wrong), 'word')} in all)"
        )
    return tags if kind.scheme is None else [as_iob2(each) for each in tags]


def _rows(name: str, values: Any, expected: str) -> list[tuple[str, ...]]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise DataError(f"{name} is {values!r:.40}, of type {type(values).__name__}: {expected}")
    rows = []
    for number, row in enumerate(values):
        if not isinstance(row, list | tuple | np.ndarray):
            advice = (
                "; for raw texts save the model and take Predictor" if isinstance(row, str) else ""
            )
            raise DataError(
                f"{name}[{number}] is {row!r:.40}, of type {type(row).__name__}: {expected}{advice}"
            )
        for place, value in enumerate(row):
            if not isinstance(value, str):
                raise DataError(
                    f"{name}[{number}][{place}] is {value!r:.40}, of type {type(value).__name__}: "
                    f"{expected}"
                )
        rows.append(tuple(map(str, row)))
    return rows
