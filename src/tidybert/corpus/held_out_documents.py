"""HeldOut: sets a few documents of a corpus apart, to measure on text that was not learnt from.

Which they are follows from a hash of their text, so that equal texts are on the same side, in any
order of the corpus; it is the hash of ``tidybert build-corpus``, whose held-out part has them too.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from tidybert.corpus.documents import Document
from tidybert.corpus.duplicates import share_of
from tidybert.errors import UsageError, param

MAX_CHARACTERS: Final = 1 << 23


class HeldOut:
    """Splits a stream of documents; ``documents`` is complete when the stream has ended.

    fraction: share of the documents to hold out.  At most ``max_characters`` are held, and always
    one document: that with the smallest hash.  Of a corpus of one document, that one is both.

    Raises UsageError for a fraction out of range.
    """

    def __init__(self, fraction: float, max_characters: int = MAX_CHARACTERS) -> None:
        check_held_out(fraction)
        self.fraction = fraction
        self.max_characters = max_characters
        self.is_apart = False
        # The largest hash comes first, for it is the first to go.
        self._heap: list[tuple[float, Document]] = []

    @property
    def documents(self) -> list[Document]:
        """Those held out, in the order of their hashes."""
        return [document for _, document in sorted(self._heap, reverse=True)]

    def rest(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents that are not held out, in another order than given."""
        num_characters = 0
        for document in documents:
            heapq.heappush(self._heap, (-share_of(document), document))
            num_characters += sum(map(len, document))
            while len(self._heap) > 1 and (
                num_characters > self.max_characters or -self._heap[0][0] >= self.fraction
            ):
                released = heapq.heappop(self._heap)[1]
                num_characters -= sum(map(len, released))
                self.is_apart = True
                yield released
        if not self.is_apart:
            yield from self.documents


def check_held_out(share: float) -> None:
    """Raise UsageError for a share of the documents that is not from 0 to below 1."""
    if not 0 <= share < 1:
        raise UsageError(f"{param('held_out')} {share:g}: expected a share from 0 to below 1")
