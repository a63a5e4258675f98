"""The documents of an epoch in groups, and each group cut into segments by itself.

A group is some thousand documents, 8 million tokens or so: enough for its instances to be shuffled
well, and few enough to be cut in a moment.  The order of the documents in an epoch is a permutation
given by a formula, so a group's documents are known without the others'.

A long document is gone through in stretches, so that no document, however long, takes a group's
time for itself, and no whole book has short sequences.  The original goes through it as a whole.
"""

from typing import Final, cast

import numpy as np
import numpy.typing as npt

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.instance_options import InstanceOptions, Objective
from tidybert.pretraining.random_streams import Purpose, below, permuted, random_bits, uniform
from tidybert.pretraining.segments import Documents, Segments, cut_documents

Array = npt.NDArray[np.int64]

GROUP_TOKENS: Final = 2**23
MAX_GROUP_DOCUMENTS: Final = 2**16
STRETCH_TOKENS: Final = 2**15


class Groups:
    """The groups of each epoch; ``number`` is how many an epoch has."""

    def __init__(self, corpus: TokenCorpus, options: InstanceOptions, seed: int) -> None:
        self._corpus = corpus
        self._options = options
        self._seed = seed
        per_document = corpus.num_tokens / corpus.num_documents
        self._size = int(np.clip(GROUP_TOKENS / per_document, 1, MAX_GROUP_DOCUMENTS))
        self.number = -(-corpus.num_documents // self._size)

    def segments(self, epoch: int, group: int) -> Segments:
        """The group's instances, in no particular order, by the tokens' numbers in the corpus."""
        num_documents = self._corpus.num_documents
        places = np.arange(group * self._size, min((group + 1) * self._size, num_documents))
        documents = permuted(places, num_documents, self._seed, epoch, Purpose.DOCUMENT_ORDER)
        bounds, counts = self._corpus.sentence_bounds(documents)
        ends = np.cumsum(counts) - 1
        begins = ends - counts + 1
        num_tokens = bounds[ends] - bounds[begins]
        # Where the documents would lie if they followed each other in the corpus.
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
        """Tokens that the chunks of each stretch aim at: all the room, or now and then fewer."""
        room = self._options.room
        draws = random_bits(self._seed, epoch, Purpose.TARGET_LENGTH, keys)
        is_short = uniform(draws) < self._options.short_share
        lengths = random_bits(self._seed, epoch, Purpose.SHORT_LENGTH, keys)
        return np.where(is_short, 2 + below(lengths, room - 1), room)


def _stretches(within: Array, ends: Array) -> tuple[Array, Array, Array]:
    """Documents in stretches of some STRETCH_TOKENS.

    within: (N,) tokens of the document before each sentence, and before its end.  ends: (D,) the
    places of the documents' ends.

    Returns the places of each stretch's first sentence and of its end, and its document (L,).
    """
    is_end = np.zeros(len(within), np.bool_)
    is_end[ends] = True
    number = within // STRETCH_TOKENS
    begins = ~is_end & ((within == 0) | (number != np.roll(number, 1)))
    first = np.flatnonzero(begins)
    following = np.append(first[1:], len(within))
    last = np.where(is_end[following - 1], following - 1, following)
    return first, last, np.searchsorted(ends, first)
