"""Which instances a step takes, and how they are cut into micro-batches for each process."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.data.batching import cut_by_tokens
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.masked_rows import (
    Array,
    BatchShape,
    MaskedRows,
    masked_rows,
    padding,
    shape_for,
)
from tidybert.pretraining.batches.pretraining_batch import Places, Position, PretrainingBatch
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import first_long_step

# Instances of several corpora as one sequence, in fixed shares of tokens.
#
# The order is that of weighted fair queueing (Demers, Keshav and Shenker 1989, in the form of
# Goyal, Vin and Cheng 1996): of all next instances, the one comes first whose corpus has the fewest
# tokens so far for its share.  So no corpus is ever ahead of its share by more than one sequence,
# and the order depends on nothing but the instances' lengths.

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
        return MixedPosition(tuple(each.next_epoch() for each in self.positions), self.tokens)

    @staticmethod
    def of(flat: Sequence[int]) -> "MixedPosition":
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
        return MixedPosition((Position(),) * len(self.parts), (0,) * len(self.parts))

    def take(self, position: MixedPosition, count: int) -> tuple[Places, MixedPosition]:
        found = [
            part.take(place, count)[0]
            for part, place in zip(self.parts, position.positions, strict=True)
        ]
        lengths = [part.lengths(places) for part, places in zip(self.parts, found, strict=True)]
        # Of all next instances, laid end to end: the tokens of their corpus for its share.
        starts = [
            (given + np.cumsum(each) - each) / share
            for given, each, share in zip(position.tokens, lengths, self.shares, strict=True)
        ]
        order = np.argsort(np.concatenate(starts), kind="stable")[:count]
        self._last = _Taken(position, np.repeat(np.arange(len(found)), count)[order], lengths)
        return Places.join(found)[order], self.after(position, count)

    def after(self, position: MixedPosition, count: int) -> MixedPosition:
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
        return self.parts[0].lengths(places)

    def most_predictions(self, lengths: Array) -> Array:
        return self.parts[0].most_predictions(lengths)

    def build(self, places: Places) -> PretrainingBatch:
        return self.parts[0].build(places)


def instances_of(
    corpus: TokenCorpus,
    shares: Sequence[float],
    options: InstanceOptions,
    masking: MaskingOptions | None,
    seed: int,
) -> PretrainingInstances | MixedInstances:
    if len(corpus.corpora) == 1:
        return PretrainingInstances(corpus, options, masking, seed)
    return MixedInstances(corpus, shares, options, masking, seed)


def position_of(flat: Sequence[int]) -> Position | MixedPosition:
    """The position that a checkpoint holds: of one corpus, or of several."""
    return Position(*flat) if len(flat) < _NUMBERS else MixedPosition.of(flat)


# The number of instances that decide the shape of batches.
_SAMPLE: Final = 1024
# Of each corpus, in a position: the first is the epoch.  A single corpus has one less.


@dataclass(frozen=True)
class StepBatches:
    """One process's share of a step.

    counts: the share's predictions, by objective.  num_tokens: all processes' tokens; num_rows: the
    same with padding.  position: where the next step begins, as JSON can hold it.
    """

    batches: list[MaskedRows]
    counts: dict[str, int]
    num_tokens: int
    num_rows: int
    num_sequences: int
    position: Any


class PhasedStream:
    """The steps of a run: on sequences of one length, and the last share of them on longer ones.

    A position is [phase, epoch, group, offset], or with several corpora the phase, and epoch,
    group, offset and tokens so far of each.  ``lengths``: the most tokens of a sequence, by phase.
    ``switch``: the first step of the second phase.
    """

    def __init__(self, plan: PretrainingPlan, micro_batch_tokens: int) -> None:
        self.arguments = arguments = plan.arguments
        self.switch = first_long_step(arguments)
        self.lengths = [plan.instances.max_seq_length]
        if self.switch < arguments.setting("max_steps"):
            self.lengths.append(arguments.long_seq_length)
        self.streams = []
        for length in self.lengths:
            options = replace(plan.instances, max_seq_length=length)
            self.streams.append(
                InstanceStream(
                    instances_of(plan.corpus, plan.shares, options, plan.masking, arguments.seed),
                    arguments.setting("tokens_per_step"),
                    micro_batch_tokens,
                    plan.processes.rank,
                    plan.processes.size,
                    arguments.compile,
                )
            )
            shape = self.streams[-1].shape
            if shape is not None:
                plan.reporter.tell(
                    f"micro-batches of {shape.num_rows:,} rows, {shape.num_sequences:,} sequences "
                    f"and {shape.num_predictions:,} predictions, filled up with padding"
                )

    @property
    def first_position(self) -> list[int]:
        return [0, *self.streams[0].instances.beginning.flat()]

    def in_new_order(self, position: Sequence[int]) -> list[int]:
        """The beginning of an epoch after a position, which may be in other corpora."""
        place = self.streams[0].instances.beginning.flat()
        epoch = max(position[1::_NUMBERS]) + 1
        place[::_NUMBERS] = [epoch] * len(place[::_NUMBERS])
        return [position[0], *place]

    def take(self, step: int, position: Sequence[int]) -> StepBatches:
        phase = int(step >= self.switch)
        place = position_of(position[1:])
        if phase != position[0]:
            # Longer sequences begin with a new order of the documents.
            place = place.next_epoch()
        taken = self.streams[phase].take(place)
        return replace(taken, position=[phase, *taken.position.flat()])


class InstanceStream:
    """Steps of ``tokens_per_step`` tokens of a corpus's instances, and each process's share.

    Args:
        tokens_per_step: of all processes together; a step has as many sequences as fit, at least
            one.
        micro_batch_tokens: most tokens of one of the batches that a share is cut into.
        rank, num_processes: whose share; the steps are the same for any number of processes.
        constant_shape: fill all batches up to one shape, ``shape``.

    All processes have the same number of batches, because a sharded model runs them together.
    """

    def __init__(
        self,
        instances: PretrainingInstances | MixedInstances,
        tokens_per_step: int,
        micro_batch_tokens: int,
        rank: int = 0,
        num_processes: int = 1,
        constant_shape: bool = False,
    ) -> None:
        self.instances = instances
        self.tokens_per_step = tokens_per_step
        self.micro_batch_tokens = micro_batch_tokens
        self.rank = rank
        self.num_processes = num_processes
        self.shape = self._shape() if constant_shape else None

    def take(self, position: Any) -> StepBatches:
        places, after = self._places(position, self.tokens_per_step)
        lengths = self.instances.lengths(places)
        shares = self._shares(lengths)
        cuts = [self._cut(lengths[share]) for share in shares]
        own = [shares[self.rank][chosen] for chosen in cuts[self.rank]]
        built = self.instances.build(places[np.concatenate(own)])
        is_pair = built.next_sentence_label is not None
        counts = {built.words: len(built.masked_lm_labels)}
        if is_pair:
            counts["nsp"] = len(built.lengths)
        batches = [masked_rows(one, self.shape) for one in built.parts(list(map(len, own)))]
        most = max(map(len, cuts))
        batches += [padding(is_pair, built.words, self.shape) for _ in range(most - len(batches))]
        num_rows = num_tokens = int(lengths.sum())
        if self.shape is not None:
            num_rows = most * self.num_processes * self.shape.num_rows
        return StepBatches(batches, counts, num_tokens, num_rows, len(places), after)

    def _shares(self, lengths: Array) -> list[Array]:
        """Each process's sequences; their tokens differ by those of one sequence at most."""
        order = np.argsort(-lengths, kind="stable")
        return [np.sort(order[rank :: self.num_processes]) for rank in range(self.num_processes)]

    def _cut(self, lengths: Array) -> list[Array]:
        if self.shape is None:
            return cut_by_tokens(lengths, self.micro_batch_tokens)
        return self.shape.cut(lengths, self.instances.most_predictions(lengths))

    def _shape(self) -> BatchShape:
        """The shape for this corpus, by its first instances."""
        instances: Any = self.instances
        places, _ = instances.take(instances.beginning, _SAMPLE)
        lengths = self.instances.lengths(places)
        longest = self.instances.options.max_seq_length
        share = -(-self.tokens_per_step // self.num_processes)
        return shape_for(
            lengths,
            self.instances.most_predictions(lengths),
            longest,
            share if self.num_processes == 1 else share + longest,
            self.micro_batch_tokens,
        )

    def _places(self, position: Any, tokens_per_step: int) -> tuple[Places, Any]:
        # Its positions are its own kind.
        instances: Any = self.instances
        count = -(-tokens_per_step // instances.options.max_seq_length)
        places, after = instances.take(position, count)
        while True:
            tokens = np.cumsum(instances.lengths(places))
            if tokens[-1] > tokens_per_step:
                break
            # Most sequences are as long as they may be, so few are missing.
            more, after = instances.take(after, max(1, count // 4))
            places = Places.join([places, more])
        fitting = max(1, int(np.searchsorted(tokens, tokens_per_step, "right")))
        # A process without a sequence would have no gradient to share.
        fitting = max(fitting, self.num_processes)
        if fitting > len(places):
            places, after = instances.take(position, fitting)
            return places, after
        return places[:fitting], instances.after(position, fitting)
