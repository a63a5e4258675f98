"""A step's instances as micro-batches of rows, each process its share.

T tokens, B sequences, M masked positions.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.data.batching import cut_by_tokens
from tidybert.modeling.kernels.masked_lm_loss import IGNORED
from tidybert.modeling.rows import Rows
from tidybert.pretraining.constant_shape import Array, BatchShape, shape_for
from tidybert.pretraining.instances import Places, Position, PretrainingBatch, PretrainingInstances

# Instances by which the shape of batches is chosen.
_SAMPLE: Final = 1024


@dataclass(frozen=True)
class MaskedRows:
    """A micro-batch.

    rows: T tokens of B sequences.  masked_lm_positions (M,) int64: the rows to predict,
    masked_lm_labels (M,) int64: what stood there.  next_sentence_label (B,) int64, or None for mlm.
    A label of -100 is padding's, and no loss reads it.
    """

    rows: Rows
    masked_lm_positions: Tensor
    masked_lm_labels: Tensor
    next_sentence_label: Tensor | None

    def to(self, device: torch.device | str) -> "MaskedRows":
        """The same on another device."""
        label = self.next_sentence_label
        return MaskedRows(
            self.rows.to(device),
            self.masked_lm_positions.to(device, non_blocking=True),
            self.masked_lm_labels.to(device, non_blocking=True),
            None if label is None else label.to(device, non_blocking=True),
        )


@dataclass(frozen=True)
class StepBatches:
    """One process's share of a step.

    ``counts`` are the share's predictions of each objective; ``num_tokens`` are the useful ones,
    over all processes, and ``num_rows`` count padding too.
    ``position`` is where the next step goes on, as JSON can hold it.
    """

    batches: list[MaskedRows]
    counts: dict[str, int]
    num_tokens: int
    num_rows: int
    num_sequences: int
    position: Any


class InstanceStream:
    """Steps of so many tokens from a corpus's instances, each process its share.

    Args:
        tokens_per_step: of all processes together; a step has as many sequences as fit, one at
            least.
        micro_batch_tokens: most tokens of one of the batches that a share is cut into.
        rank, num_processes: whose share; the steps are the same for any number of processes.
        constant_shape: fill all batches up to one shape, ``shape``.

    All processes have equally many batches, for where the model is sharded they run in step.
    """

    def __init__(
        self,
        instances: PretrainingInstances,
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

    def take(self, position: Position, tokens: int | None = None) -> StepBatches:
        """The step that begins at a position; ``tokens`` stands for ``tokens_per_step``."""
        places, after = self._places(position, tokens or self.tokens_per_step)
        lengths = self.instances.lengths(places)
        shares = self._shares(lengths)
        cuts = [self._cut(lengths[share]) for share in shares]
        own = [shares[self.rank][chosen] for chosen in cuts[self.rank]]
        built = self.instances.build(places[np.concatenate(own)])
        is_pair = built.next_sentence_label is not None
        counts = {"mlm": len(built.masked_lm_labels)}
        if is_pair:
            counts["nsp"] = len(built.lengths)
        batches = [masked_rows(one, self.shape) for one in built.parts(list(map(len, own)))]
        most = max(map(len, cuts))
        batches += [padding(is_pair, self.shape) for _ in range(most - len(batches))]
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
        places, _ = self.instances.take(Position(), _SAMPLE)
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

    def _places(self, position: Position, tokens_per_step: int) -> tuple[Places, Position]:
        longest = self.instances.options.max_seq_length
        count = -(-tokens_per_step // longest)
        while True:
            places, _ = self.instances.take(position, count)
            tokens = np.cumsum(self.instances.lengths(places))
            if tokens[-1] > tokens_per_step:
                break
            count *= 2
        fitting = max(1, int(np.searchsorted(tokens, tokens_per_step, "right")))
        # A process without a sequence would have no gradient to share.
        fitting = max(fitting, self.num_processes)
        return self.instances.take(position, fitting)


def masked_rows(batch: PretrainingBatch, shape: BatchShape | None = None) -> MaskedRows:
    """Instances as tensors, filled up to the shape where one is given."""
    lengths = tuple(batch.lengths.tolist())
    ids, types = batch.input_ids, batch.token_type_ids
    positions, labels = batch.masked_lm_positions, batch.masked_lm_labels.astype(np.int64)
    label = batch.next_sentence_label
    if shape is not None:
        more = shape.padding_lengths(len(ids), len(lengths))
        ids, types = _filled(ids, shape.num_rows, 0), _filled(types, shape.num_rows, 0)
        positions = _filled(positions, shape.num_predictions, 0)
        labels = _filled(labels, shape.num_predictions, IGNORED)
        lengths += more
        if label is not None:
            label = _filled(label, shape.num_sequences, IGNORED)
    return MaskedRows(
        Rows.from_flat(ids, types, lengths),
        torch.from_numpy(positions),
        torch.from_numpy(labels),
        None if label is None else torch.from_numpy(label),
    )


def padding(is_pair: bool, shape: BatchShape | None) -> MaskedRows:
    """A batch of padding alone: of the shape, or of one row."""
    nothing = np.zeros(0, np.int64)
    empty = PretrainingBatch(
        nothing.astype(np.int32),
        nothing.astype(np.uint8),
        nothing,
        nothing,
        nothing.astype(np.int32),
        nothing if is_pair else None,
    )
    return masked_rows(empty, shape or BatchShape(1, 1, 1, 1))


def longest_batch(num_tokens: int, longest: int, num_predictions: int, is_pair: bool) -> MaskedRows:
    """As many sequences of the longest kind as so many tokens hold, and all that they predict.

    The ids are 0, for what a batch costs follows from its shape.
    """
    count = max(1, num_tokens // longest)
    positions = np.arange(num_predictions) % longest
    batch = PretrainingBatch(
        np.zeros(count * longest, np.int32),
        np.zeros(count * longest, np.uint8),
        np.full(count, longest),
        (positions + longest * np.arange(count)[:, None]).reshape(-1),
        np.zeros(count * num_predictions, np.int32),
        np.zeros(count, np.int64) if is_pair else None,
    )
    return masked_rows(batch)


def _filled(values: npt.NDArray[Any], size: int, filling: int) -> npt.NDArray[Any]:
    assert len(values) <= size
    return np.concatenate([values, np.full(size - len(values), filling, values.dtype)])
