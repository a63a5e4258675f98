"""Hashes of documents: which have been seen before, and which to hold out.

A hash takes 16 bytes.  It also decides which documents are held out, so that equal texts are on the
same side in any order of the corpus, in ``tidybert build-corpus`` and in HeldOut.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.corpus.documents import Document
from tidybert.errors import UsageError, param

DIGEST_BYTES: Final = 16
MAX_CHARACTERS: Final = 1 << 23
Digests = npt.NDArray[np.bytes_]
_PARTS: Final = 16


def digests_of(documents: Sequence[Sequence[str]]) -> tuple[Digests, int]:
    """(D,) of 16 bytes, a hash of each document's paragraphs; and the bytes of all in UTF-8."""
    texts = ["\n".join(document).encode() for document in documents]
    return np.frombuffer(b"".join(map(_digest, texts)), f"S{DIGEST_BYTES}"), sum(map(len, texts))


def shares(digests: Digests) -> npt.NDArray[np.float64]:
    """(D,): a number in [0, 1) for each, the same for equal texts in any place."""
    words = np.frombuffer(digests.tobytes(), "<u8")[:: DIGEST_BYTES // 8]
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def share_of(document: Sequence[str]) -> float:
    """The number in [0, 1) of one document."""
    digest = _digest("\n".join(document).encode())
    return (int.from_bytes(digest[:8], "little") >> 11) * 2.0**-53


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


class SeenDigests:
    """A set of digests in parts, by a few of their bits, so that merging copies one part alone."""

    def __init__(self, digests: Digests) -> None:
        places = _parts_of(digests)
        self._parts = [_SortedRuns(digests[places == part]) for part in range(_PARTS)]

    def add(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """Add (D,) digests; returns which of them are new, the first of equal ones only."""
        places = _parts_of(digests)
        is_new = np.zeros(len(digests), np.bool_)
        for part, runs in enumerate(self._parts):
            at = np.flatnonzero(places == part)
            if len(at):
                is_new[at] = runs.add(digests[at])
        return is_new


def _parts_of(digests: Digests) -> npt.NDArray[np.uint8]:
    """(D,): the part that each digest belongs to."""
    return np.frombuffer(digests.tobytes(), np.uint8)[::DIGEST_BYTES] % np.uint8(_PARTS)


class _SortedRuns:
    """A set of digests as a few sorted arrays, each more than twice as long as the next."""

    def __init__(self, digests: Digests) -> None:
        self.runs = [np.sort(digests)]

    def add(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """See SeenDigests.add."""
        fresh, first = np.unique(digests, return_index=True)
        known = np.zeros(len(fresh), np.bool_)
        for run in self.runs:
            if len(run):
                place = np.minimum(np.searchsorted(run, fresh), len(run) - 1)
                known |= run[place] == fresh
        self.runs.append(fresh[~known])
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            last = self.runs.pop()
            # A stable sort merges runs that are sorted already.
            self.runs[-1] = np.sort(np.concatenate([self.runs[-1], last]), kind="stable")
        is_new = np.zeros(len(digests), np.bool_)
        is_new[first[~known]] = True
        return is_new


class HeldOut:
    """Sets a few documents of a stream apart; ``documents`` is complete when the stream has ended.

    Holds out the share ``fraction``, at most ``max_characters``, and always the document with the
    smallest hash.  The only document of a corpus is on both sides.  Raises UsageError for a
    fraction out of range.
    """

    def __init__(self, fraction: float, max_characters: int = MAX_CHARACTERS) -> None:
        check_held_out(fraction)
        self.fraction = fraction
        self.max_characters = max_characters
        self.is_apart = False
        # The largest hash comes first, because it is the first to go.
        self._heap: list[tuple[float, Document]] = []

    @property
    def documents(self) -> list[Document]:
        """The documents held out, in the order of their hashes."""
        return [document for _, document in sorted(self._heap, reverse=True)]

    def rest(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The other documents, in a different order."""
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
        raise UsageError(f"{param('held_out')} {share:g}: expected a fraction from 0 to below 1")
