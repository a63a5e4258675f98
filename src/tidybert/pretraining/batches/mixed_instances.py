"""Instances of several corpora as one sequence, in fixed shares of tokens.

The order is that of weighted fair queueing (Demers, Keshav and Shenker 1989, in the form of Goyal,
Vin and Cheng 1996): of all next instances, the one comes first whose corpus has the fewest tokens
so far for its share.  So no corpus is ever ahead of its share by more than one sequence, and the
order depends on nothing but the instances' lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.places import Places, Position
from tidybert.pretraining.batches.pretraining_batch import PretrainingBatch
from tidybert.pretraining.batches.random_streams import Array

_NUMBERS: Final = 4  # of each corpus, in a position that a checkpoint holds


@dataclass(frozen=True)
class MixedPosition:
    """Where the next instance of each corpus is, and how many tokens each one has given."""

    positions: tuple[Position, ...]
    tokens: tuple[int, ...]

    def flat(self) -> list[int]:
        """As a checkpoint holds it: epoch, group, offset and tokens of each corpus."""
        pairs = zip(self.positions, self.tokens, strict=True)
        return [number for position, given in pairs for number in (*position.flat(), given)]

    def next_epoch(self) -> "MixedPosition":
        """The beginning of each corpus's next epoch."""
        return MixedPosition(tuple(each.next_epoch() for each in self.positions), self.tokens)

    @staticmethod
    def of(flat: Sequence[int]) -> "MixedPosition":
        """The position that ``flat`` described."""
        parts = [flat[start : start + _NUMBERS] for start in range(0, len(flat), _NUMBERS)]
        return MixedPosition(
            tuple(Position(*part[:-1]) for part in parts), tuple(part[-1] for part in parts)
        )


@dataclass(frozen=True)
class _Taken:
    """The instances last taken: from where, the corpus of each (n,), and each corpus's lengths."""

    position: MixedPosition
    of_part: Array
    lengths: list[Array]

    @property
    def count(self) -> int:
        return len(self.of_part)


class MixedInstances:
    """The instances of all the corpora that ``corpus`` joins, in ``shares`` (K,) of the tokens."""

    def __init__(
        self,
        corpus: TokenCorpus,
        shares: Sequence[float],
        options: InstanceOptions,
        masking: MaskingOptions | None,
        seed: int,
    ) -> None:
        self.parts = [
            PretrainingInstances(corpus, options, masking, seed, number)
            for number in range(len(corpus.corpora))
        ]
        self.shares = np.array(shares)
        self.options = options
        self._last: _Taken | None = None

    @property
    def beginning(self) -> MixedPosition:
        """The position of the first instance."""
        return MixedPosition((Position(),) * len(self.parts), (0,) * len(self.parts))

    def take(self, position: MixedPosition, count: int) -> tuple[Places, MixedPosition]:
        """The next ``count`` instances from a position on, and the position after."""
        found = [
            part.take(place, count)[0]
            for part, place in zip(self.parts, position.positions, strict=True)
        ]
        lengths = [part.lengths(places) for part, places in zip(self.parts, found, strict=True)]
        order = self._order(position, lengths)[:count]
        self._last = _Taken(position, np.repeat(np.arange(len(found)), count)[order], lengths)
        return Places.join(found)[order], self.after(position, count)

    def after(self, position: MixedPosition, count: int) -> MixedPosition:
        """The position ``count`` instances after another."""
        if self._last is None or self._last.position != position or count > self._last.count:
            return self.take(position, count)[1]
        numbers = np.bincount(self._last.of_part[:count], minlength=len(self.parts)).tolist()
        parts = zip(self.parts, position.positions, numbers, strict=True)
        given = zip(position.tokens, self._last.lengths, numbers, strict=True)
        return MixedPosition(
            tuple(part.after(place, number) if number else place for part, place, number in parts),
            tuple(before + int(each[:number].sum()) for before, each, number in given),
        )

    def lengths(self, places: Places) -> Array:
        """(n,): tokens of each sequence, special ones counted, as ``build`` will make them."""
        return self.parts[0].lengths(places)

    def most_predictions(self, lengths: Array) -> Array:
        """(n,): the most predictions in sequences of these lengths."""
        return self.parts[0].most_predictions(lengths)

    def build(self, places: Places) -> PretrainingBatch:
        """The batch of some instances, of any of the corpora.  Raises DataError."""
        return self.parts[0].build(places)

    def _order(self, position: MixedPosition, lengths: list[Array]) -> Array:
        """The order of the corpora's next instances, laid end to end, by tokens for the share."""
        starts = [
            (given + np.cumsum(each) - each) / share
            for given, each, share in zip(position.tokens, lengths, self.shares, strict=True)
        ]
        return np.argsort(np.concatenate(starts), kind="stable")


def instances_of(
    corpus: TokenCorpus,
    shares: Sequence[float],
    options: InstanceOptions,
    masking: MaskingOptions | None,
    seed: int,
) -> PretrainingInstances | MixedInstances:
    """The instances of one corpus, or of several joined ones."""
    if len(corpus.corpora) == 1:
        return PretrainingInstances(corpus, options, masking, seed)
    return MixedInstances(corpus, shares, options, masking, seed)


def position_of(flat: Sequence[int]) -> Position | MixedPosition:
    """The position that a checkpoint holds: of one corpus, or of several."""
    return Position(*flat) if len(flat) < _NUMBERS else MixedPosition.of(flat)
