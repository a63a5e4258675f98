"""Where instances are: their place in the stream, and where their tokens lie in the corpus."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidybert.pretraining.batches.random_streams import Array, Bits


@dataclass(frozen=True)
class Position:
    """Where the next instance is: the epoch, the group of documents, the place in the group."""

    epoch: int = 0
    group: int = 0
    offset: int = 0

    def flat(self) -> list[int]:
        """As a checkpoint holds it."""
        return [self.epoch, self.group, self.offset]

    def next_epoch(self) -> "Position":
        """The beginning of the next epoch."""
        return Position(self.epoch + 1)


@dataclass(frozen=True)
class Places:
    """n instances, as where their tokens lie in the corpus; (n,) each, int64.

    Segment A is the tokens ``begin_a`` to ``end_a`` of ``document_a``, B likewise; B is empty for
    mlm.  ``label`` is 0 where B follows A, and 1 where it is from another document, or for mlm+sop
    where the two are swapped.  ``key``: uint64, what an instance's masks follow from.
    """

    key: Bits
    label: Array
    document_a: Array
    begin_a: Array
    end_a: Array
    document_b: Array
    begin_b: Array
    end_b: Array

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, chosen: Array | slice) -> "Places":
        """Some of the instances, for a part of a batch or a process's share."""
        return Places(*(column[chosen] for column in vars(self).values()))

    @staticmethod
    def join(parts: "Sequence[Places]") -> "Places":
        """All the instances of all parts."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Places(*(np.concatenate(column) for column in columns))

    def num_text_tokens(self) -> Array:
        """(n,): tokens of A and B, without special ones."""
        return self.end_a - self.begin_a + self.end_b - self.begin_b
