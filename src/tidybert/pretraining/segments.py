"""Cutting documents into the segments of instances, following create_pretraining_data.py.

A chunk is as many consecutive sentences as reach the target length, and is what an instance begins
with.  A document is gone through from its first sentence to its last, each chunk beginning where
the one before let go; that is one step after another, so all documents go one step at a time,
together.

A random draw belongs to the token that a chunk begins with.  So nothing depends on how many draws
came before, or on which documents are gone through together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.pretraining.instance_options import Objective
from tidybert.pretraining.random_streams import Bits, below

Array = npt.NDArray[np.int64]

FOLLOWS: Final = 0
RANDOM_NEXT: Final = 1
SWAPPED: Final = 1


@dataclass(frozen=True)
class Documents:
    """Sentences of D documents, laid end to end; tokens have numbers that rise from one on.

    bounds: (N,) the first token of each sentence, and after a document's last one the document's
    end, which is where the next one begins.  first, last: (D,) the places in ``bounds`` of each
    document's first sentence and of its end.  targets: (D,) tokens that a chunk aims at.
    draws: (N,) random bits for each sentence.  room: most tokens of text in a sequence.
    """

    bounds: Array
    first: Array
    last: Array
    targets: Array
    draws: Bits
    room: int


@dataclass(frozen=True)
class Segments:
    """n instances in no particular order: (n,) int64 each.

    Segment A is the tokens from ``begin`` to ``middle``.  Segment B is those from ``middle`` to
    ``end``; but where ``label`` is RANDOM_NEXT it is from another document, and ``end - middle`` is
    how many tokens it aims at.  Where ``label`` is SWAPPED the two are in the other order.
    ``document``: which of the D documents they are from.
    """

    document: Array
    begin: Array
    middle: Array
    end: Array
    label: Array

    def __len__(self) -> int:
        return len(self.begin)


def cut_documents(objective: Objective, documents: Documents) -> Segments:
    """The instances of all documents."""
    steps = list(_STEPS[objective](documents))
    columns = zip(*steps, strict=True) if steps else [[np.empty(0, np.int64)]] * 5
    return Segments(*(np.concatenate(column) for column in columns))


_Step = tuple[Array, Array, Array, Array, Array]


def _next_sentence(documents: Documents) -> Iterator[_Step]:
    """Pairs for next sentence prediction: create_instances_from_document.

    A chunk is split between two of its sentences.  Half the time, and where it is one sentence, B
    is to come from another document, and the chunk's rest begins the next one.
    """
    bounds = documents.bounds
    left = np.arange(len(documents.first))
    place = documents.first
    while len(left):
        begin, target = bounds[place], documents.targets[left]
        after = _reaching(documents, left, place, target)
        draws = documents.draws[place]
        middle = _between(place, after, draws)
        is_random = (after == place + 1) | _coin(draws)
        end = np.where(is_random, begin + target, bounds[after])
        yield left, begin, bounds[middle], end, np.where(is_random, RANDOM_NEXT, FOLLOWS)
        place = np.where(is_random, middle, after)
        going_on = place < documents.last[left]
        left, place = left[going_on], place[going_on]


def _sentence_order(documents: Documents) -> Iterator[_Step]:
    """Pairs for sentence order prediction (ALBERT: Lan et al. 2020, section 3.1).

    Every chunk is two consecutive segments, half the time to be swapped.  One that is a single
    sentence is split between two of its tokens; a single token, left at the end, makes no pair.
    """
    bounds = documents.bounds
    left = np.arange(len(documents.first))
    place = documents.first
    while len(left):
        begin = bounds[place]
        after = _reaching(documents, left, place, documents.targets[left])
        end, draws = bounds[after], documents.draws[place]
        is_one = after == place + 1
        middle = np.where(
            is_one, _between(begin, end, draws), bounds[_between(place, after, draws)]
        )
        label = np.where(_coin(draws), SWAPPED, FOLLOWS)
        is_pair = middle < end
        yield left[is_pair], begin[is_pair], middle[is_pair], end[is_pair], label[is_pair]
        going_on = after < documents.last[left]
        left, place = left[going_on], after[going_on]


def _full(documents: Documents) -> Iterator[_Step]:
    """Single segments: DOC-SENTENCES of RoBERTa (Liu et al. 2019, section 4.2).

    As many whole sentences as fit the target, at least one, never of two documents.  The rest of a
    sentence that is longer than the room begins the next segment.
    """
    bounds = documents.bounds
    left = np.arange(len(documents.first))
    begin = bounds[documents.first]
    while len(left):
        last = documents.last[left]
        fitting = np.searchsorted(bounds, begin + documents.targets[left], "right") - 1
        one = np.searchsorted(bounds, begin, "right")
        end = bounds[np.minimum(np.maximum(fitting, one), last)]
        end = np.minimum(end, begin + documents.room)
        yield left, begin, end, end, np.full(len(left), FOLLOWS)
        going_on = end < bounds[last]
        left, begin = left[going_on], end[going_on]


_STEPS: Final = {"mlm+nsp": _next_sentence, "mlm": _full, "mlm+sop": _sentence_order}


def _reaching(documents: Documents, left: Array, place: Array, target: Array) -> Array:
    """Where the chunks that begin at ``place`` end: with the sentence that reaches the target."""
    after = np.searchsorted(documents.bounds, documents.bounds[place] + target)
    return np.clip(after, place + 1, documents.last[left])


def _between(first: Array, after: Array, draws: Bits) -> Array:
    """Places strictly between the two, all equally likely; ``after`` if none exists."""
    return first + 1 + below(draws, np.maximum(after - first - 1, 0))


def _coin(draws: Bits) -> npt.NDArray[np.bool_]:
    return (draws & np.uint64(1)).astype(np.bool_)
