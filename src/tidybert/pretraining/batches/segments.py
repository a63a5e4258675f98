"""Documents in groups, and each group cut into segments (create_pretraining_data.py).

A chunk is as many consecutive sentences as reach the target length; an instance begins with one.
Each chunk of a document begins where the one before ended, so all documents go one step at a time,
together.  A random draw belongs to the token that a chunk begins with.  So nothing depends on the
number of earlier draws, or on which documents are cut together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from tidybert.corpus.joined_corpora import first_documents
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.batches.instance_options import InstanceOptions, Objective
from tidybert.pretraining.batches.random_streams import (
    Array,
    Bits,
    Purpose,
    below,
    permuted,
    random_bits,
    uniform,
)

FOLLOWS: Final = 0
RANDOM_NEXT: Final = 1
SWAPPED: Final = 1
_GROUP_TOKENS: Final = 2**23
_MAX_GROUP_DOCUMENTS: Final = 2**16
_STRETCH_TOKENS: Final = 2**15


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
    ``end``; where ``label`` is RANDOM_NEXT, it is from another document and aims at
    ``end - middle`` tokens.  Where ``label`` is SWAPPED the two are in the other order.
    ``document``: the number of their document, from 0 to below D.
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
    comes from another document, and the chunk's rest begins the next chunk.
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

    Every chunk is two consecutive segments, swapped half the time.  A single sentence is split
    between two of its tokens; a single token, left at the end, makes no pair.
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


_STEPS: Final = {"mlm+nsp": _next_sentence, "mlm": _full, "mlm+sop": _sentence_order, "lm": _full}


def _reaching(documents: Documents, left: Array, place: Array, target: Array) -> Array:
    """Where the chunks that begin at ``place`` end: with the sentence that reaches the target."""
    after = np.searchsorted(documents.bounds, documents.bounds[place] + target)
    return np.clip(after, place + 1, documents.last[left])


def _between(first: Array, after: Array, draws: Bits) -> Array:
    """Places strictly between the two, all equally likely; ``after`` if none exists."""
    return first + 1 + below(draws, np.maximum(after - first - 1, 0))


def _coin(draws: Bits) -> npt.NDArray[np.bool_]:
    return (draws & np.uint64(1)).astype(np.bool_)


class Groups:
    """The groups of documents of each epoch; ``number`` is how many an epoch has.

    ``which``: the number of the corpus among those that ``corpus`` joins.

    A group has some 8 million tokens: enough to shuffle its instances well, and few enough to cut
    in a moment.  A formula gives the order of the documents in an epoch, so a group's documents are
    known without the others'.
    """

    def __init__(
        self, corpus: TokenCorpus, options: InstanceOptions, seed: int, which: int = 0
    ) -> None:
        own = corpus.corpora[which]
        self._corpus = corpus
        self._first, self._num_documents = first_documents(corpus)[which], own.num_documents
        self._options = options
        self._seed = seed
        per_document = own.num_tokens / own.num_documents
        self._size = int(np.clip(_GROUP_TOKENS / per_document, 1, _MAX_GROUP_DOCUMENTS))
        self.number = -(-own.num_documents // self._size)

    def segments(self, epoch: int, group: int) -> Segments:
        """The group's instances, in no particular order, by the tokens' numbers in the corpus."""
        size = self._num_documents
        places = np.arange(group * self._size, min((group + 1) * self._size, size))
        documents = permuted(places, size, self._seed, epoch, Purpose.DOCUMENT_ORDER) + self._first
        bounds, counts = self._corpus.sentence_bounds(documents)
        ends = np.cumsum(counts) - 1
        begins = ends - counts + 1
        num_tokens = bounds[ends] - bounds[begins]
        # Cutting needs documents that follow each other, as if the corpus had them in this order.
        shift = bounds[begins] - (np.cumsum(num_tokens) - num_tokens)
        first, last, document = _stretches(bounds - np.repeat(bounds[begins], counts), ends)
        cut = cut_documents(
            cast(Objective, self._options.objective),
            Documents(
                bounds=bounds - np.repeat(shift, counts),
                first=first,
                last=last,
                targets=self.targets(epoch, bounds[first]),
                draws=random_bits(self._seed, epoch, Purpose.SEGMENTS, bounds),
                room=self._options.room,
            ),
        )
        document = document[cut.document]
        shift = shift[document]
        return Segments(
            documents[document], cut.begin + shift, cut.middle + shift, cut.end + shift, cut.label
        )

    def targets(self, epoch: int, keys: Array) -> Array:
        """(L,): the tokens that a stretch's chunks aim at: the whole room, or sometimes fewer."""
        room = self._options.room
        draws = random_bits(self._seed, epoch, Purpose.TARGET_LENGTH, keys)
        is_short = uniform(draws) < self._options.short_share
        lengths = random_bits(self._seed, epoch, Purpose.SHORT_LENGTH, keys)
        return np.where(is_short, 2 + below(lengths, room - 1), room)


def _stretches(within: Array, ends: Array) -> tuple[Array, Array, Array]:
    """Documents in stretches of about _STRETCH_TOKENS, each cut with a target length of its own.

    So no book takes a group's time for itself or has only short sequences.  The original goes
    through each document as a whole.

    within: (N,) tokens of the document before each sentence, and before its end.  ends: (D,) the
    places of the documents' ends.

    Returns the places of each stretch's first sentence and of its end, and its document (L,).
    """
    is_end = np.zeros(len(within), np.bool_)
    is_end[ends] = True
    number = within // _STRETCH_TOKENS
    begins = ~is_end & ((within == 0) | (number != np.roll(number, 1)))
    first = np.flatnonzero(begins)
    following = np.append(first[1:], len(within))
    last = np.where(is_end[following - 1], following - 1, following)
    return first, last, np.searchsorted(ends, first)
