"""Entities in tag sequences, and scores of tagged sentences: entity F1, word accuracy, macro F1.

An entity is found if its type, its first and its last word are all right (CoNLL-2003, Tjong Kim
Sang and De Meulder).  Tags become entities as in conlleval, and in seqeval's default mode: an I-
without a word of its type before it begins an entity.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple, Required, TypedDict

import numpy as np
import numpy.typing as npt

from tidybert.metrics.metric import Metric, declared
from tidybert.metrics.text_scores import by_label, precision_recall_f1, ratio

NO_TYPE: Final = "_"
"""The type of a tag that is a bare B or I, as seqeval names it."""

# BILOU's letters for IOBES's E and S.
_SAME_AS: Final = {"L": "E", "U": "S"}

Tags = Sequence[str]


@declared
class TagScores(TypedDict, total=False):
    """Scores of entities, all but macro_f1; or of tags that mark none, accuracy and macro_f1."""

    f1: Annotated[float, Metric("F1 of entities: type, first and last word are right")]
    precision: Annotated[float, Metric("fraction of the entities found that are right")]
    recall: Annotated[float, Metric("fraction of the right entities that are found")]
    accuracy: Required[Annotated[float, Metric("fraction of the words with the right tag")]]
    macro_f1: Annotated[float, Metric("mean F1 of the tags, however rare")]
    per_label: Required[dict[str, dict[str, float]]]


class Entity(NamedTuple):
    """The words of one sentence from ``start`` up to, but not including, ``end``."""

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """One of O, B, I, E, S and the type: ("B", "PER") of B-PER, ("S", "PER") of U-PER."""
    prefix, type_name = tag[:1], tag[2:]
    return _SAME_AS.get(prefix, prefix), "" if prefix == "O" else type_name or NO_TYPE


def entities(tags: Tags) -> list[Entity]:
    """The entities of one sentence, in order; ``tags`` are of IOB1, IOB2, IOBES or BILOU.

    >>> entities(["O", "I-PER", "I-PER", "B-PER", "I-LOC"])
    [Entity(type='PER', start=1, end=3), Entity(type='PER', start=3, end=4), \
Entity(type='LOC', start=4, end=5)]
    """
    found: list[Entity] = []
    before, type_before, start = "O", "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, type_name = split_tag(tag)
        begins = prefix in ("B", "S") or before in ("O", "E", "S") or type_name != type_before
        if before != "O" and (prefix == "O" or begins):
            found.append(Entity(type_before, start, place))
        if prefix != "O" and begins:
            start = place
        before, type_before = prefix, type_name
    return found


def iob2_tags(found: Iterable[Entity], num_words: int) -> list[str]:
    """The tags of a sentence with these entities: B- on the first word of each, I- on the rest."""
    tags = ["O"] * num_words
    for type_name, start, end in found:
        tags[start:end] = [f"B-{type_name}", *[f"I-{type_name}"] * (end - start - 1)]
    return tags


@dataclass(frozen=True)
class TagCounts:
    """The counts of N sentences; the scores of any selection follow from their sums.

    Args:
        names: the K types of entities, or the K tags if these mark no entities.
        counts: (N, K, 3) int64: right ones, predicted ones and true ones.
        words: (N, 2) int64: words with the right tag, and all words.
        of_entities: whether ``counts`` counts entities, not words.
    """

    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]
    of_entities: bool

    @classmethod
    def compare(
        cls,
        expected: Sequence[Tags],
        predicted: Sequence[Tags],
        *,
        of_entities: bool,
        found: Sequence[Sequence[Entity]] | None = None,
    ) -> "TagCounts":
        """Count sentence by sentence; raises ValueError if their numbers of words differ.

        ``found``: the predicted entities, where they are not those that the predicted tags mark.
        """
        words = np.zeros((len(expected), 2), dtype=np.int64)
        pairs = []
        for number, (ours, theirs) in enumerate(zip(expected, predicted, strict=True)):
            words[number] = sum(a == b for a, b in zip(ours, theirs, strict=True)), len(ours)
            right = _places(ours, of_entities)
            pairs.append(
                (right, _by_type(found[number]) if found else _places(theirs, of_entities))
            )
        names = sorted({name for pair in pairs for each in pair for name in each})
        number_of = {name: number for number, name in enumerate(names)}
        counts = np.zeros((len(pairs), len(names), 3), dtype=np.int64)
        for number, (right, given) in enumerate(pairs):
            for name, places in right.items():
                row = counts[number, number_of[name]]
                row[0], row[2] = len(places & given.get(name, set())), len(places)
            for name, places in given.items():
                counts[number, number_of[name], 1] = len(places)
        return cls(tuple(names), counts, words, of_entities)

    def scores(self, chosen: npt.NDArray[np.int64] | None = None) -> dict[str, float]:
        """TagScores of all sentences, or of those with the ``chosen`` indices, which may repeat.

        They are over all types together; macro_f1 is over the tags that occur.  An undefined score
        (nothing predicted, nothing true) is 0.0, never NaN.
        """
        size = len(self.counts)
        times = np.ones(size) if chosen is None else np.bincount(chosen, minlength=size) * 1.0
        # Multiplying by how often each is chosen is quicker than gathering the rows.
        sums = times @ self._flat
        counts, words = sums[:-2].reshape(-1, 3), sums[-2:]
        accuracy = float(ratio(words[0], words[1]))
        if not self.of_entities:
            right, given, there = counts.T
            occurs = given + there > 0
            f1s = 2 * right[occurs] / (given + there)[occurs]
            return {"accuracy": accuracy, "macro_f1": float(f1s.mean()) if len(f1s) else 0.0}
        precision, recall, f1 = map(float, precision_recall_f1(*counts.sum(axis=0)))
        return {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy}

    def per_label(self) -> dict[str, dict[str, float]]:
        """By type or tag: precision, recall, f1, and support, the number of true ones."""
        counts = self.counts.sum(axis=0).T
        precision, recall, f1 = precision_recall_f1(*counts)
        return by_label(self.names, precision=precision, recall=recall, f1=f1, support=counts[2])

    def metrics(self) -> dict[str, Any]:
        """``scores``, and ``per_label`` under its name."""
        return {**self.scores(), "per_label": self.per_label()}

    def share_right(self) -> npt.NDArray[np.float64]:
        """(N,): each sentence's own F1 of entities or accuracy of words; 1 if it has none."""
        if self.of_entities:
            right, given, there = self.counts.sum(axis=1).T.astype(np.float64)
            above, below = 2 * right, given + there
        else:
            above, below = self.words.T.astype(np.float64)
        shares: npt.NDArray[np.float64] = np.ones(len(below))
        np.divide(above, below, out=shares, where=below > 0)
        return shares

    @cached_property
    def _flat(self) -> npt.NDArray[np.float64]:
        """(N, 3 K + 2): a sentence's counts and words in one row."""
        size = len(self.counts)
        counts = self.counts.reshape(size, 3 * len(self.names))
        return np.hstack((counts, self.words)).astype(np.float64)


def _places(tags: Tags, of_entities: bool) -> dict[str, set[Entity]]:
    """The entities by type, or each word as one by its tag."""
    words = (Entity(tag, place, place + 1) for place, tag in enumerate(tags))
    return _by_type(entities(tags) if of_entities else words)


def _by_type(found: Iterable[Entity]) -> dict[str, set[Entity]]:
    places: dict[str, set[Entity]] = {}
    for one in found:
        places.setdefault(one.type, set()).add(one)
    return places
