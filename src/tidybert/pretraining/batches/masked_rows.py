"""Pre-training instances as tensors: rows of tokens, some of them to be predicted.

T tokens, B sequences, M masked positions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.modeling.kernels.masked_lm_loss import IGNORED
from tidybert.modeling.kernels.transfer import to_device
from tidybert.modeling.rows import Rows
from tidybert.pretraining.batches.pretraining_batch import PretrainingBatch

# Micro-batches of one shape: sequences packed into a fixed number of rows, the rest padding.
#
# A compiled graph serves one shape, and kernels are chosen for one.  So sequences of padding fill
# up each batch to T rows, B sequences and M masked rows.  Attention keeps padding apart, and no
# loss reads it.

Array = npt.NDArray[np.int64]

# Room for batches of shorter sequences: more sequences, and more to predict.
_MORE_SEQUENCES = 1.25
_MORE_PREDICTIONS = 1.05
# Rows are a multiple of this, so that products divide into whole tiles.
_ROWS = 64


@dataclass(frozen=True)
class BatchShape:
    """T rows, B sequences of at most ``longest`` tokens, M masked rows."""

    num_rows: int
    num_sequences: int
    num_predictions: int
    longest: int

    def padding_lengths(self, num_tokens: int, num_sequences: int) -> tuple[int, ...]:
        """Lengths of the sequences of padding that fill up a batch that ``cut`` made."""
        rows, count = self.num_rows - num_tokens, self.num_sequences - num_sequences
        assert count <= rows <= count * self.longest
        if count == 0:
            return ()
        each, over = divmod(rows, count)
        return (each + 1,) * over + (each,) * (count - over)

    def cut(self, lengths: Array, predictions: Array) -> list[Array]:
        """Indices in batches that fit the shape, in the order given.

        ``predictions``: the most masked rows of each sequence.  A batch also ends where its
        sequences of padding would not have from 1 to ``longest`` rows each.
        """
        batches: list[Array] = []
        start = tokens = masked = 0
        for place, (length, most) in enumerate(
            zip(lengths.tolist(), predictions.tolist(), strict=True)
        ):
            if not self._fits(tokens + length, place + 1 - start, masked + most):
                assert place > start
                batches.append(np.arange(start, place))
                start, tokens, masked = place, 0, 0
            tokens, masked = tokens + length, masked + most
        if start < len(lengths):
            batches.append(np.arange(start, len(lengths)))
        return batches

    def _fits(self, num_tokens: int, num_sequences: int, num_masked: int) -> bool:
        rows, count = self.num_rows - num_tokens, self.num_sequences - num_sequences
        return count <= rows <= count * self.longest and num_masked <= self.num_predictions


def shape_for(
    lengths: Array, predictions: Array, longest: int, num_tokens: int, micro_batch_tokens: int
) -> BatchShape:
    """The shape that gives steps of ``num_tokens`` tokens the least padding."""
    assert micro_batch_tokens >= 2 * longest

    each = _MORE_SEQUENCES / float(lengths.mean())
    # A row for each sequence of padding, and in all batches but the last a sequence left over.
    spare = math.ceil((micro_batch_tokens * (each - 1 / longest) + 2) / (1 - each)) + longest
    count = -(-num_tokens // max(longest, micro_batch_tokens - spare))
    in_a_batch = -(-num_tokens // count)
    spare = math.ceil((in_a_batch * (each - 1 / longest) + 2) / (1 - each))
    rows = in_a_batch + spare + (longest if count > 1 else 0)
    rows = min(micro_batch_tokens, max(2 * longest, _ROWS * -(-rows // _ROWS)))
    share = float(predictions.sum() / lengths.sum())
    return BatchShape(
        num_rows=rows,
        num_sequences=int(each * rows) + 2,
        num_predictions=int(_MORE_PREDICTIONS * share * rows) + int(predictions.max()) + 1,
        longest=longest,
    )


@dataclass(frozen=True)
class MaskedRows:
    """A micro-batch.

    rows: T tokens of B sequences.  masked_lm_positions (M,) int64: the rows to predict,
    masked_lm_labels (M,) int64: their ids before masking.  next_sentence_label (B,) int64, or None
    for mlm and lm.  words: as in PretrainingBatch.  No loss reads padding, whose label is -100.
    """

    rows: Rows
    masked_lm_positions: Tensor
    masked_lm_labels: Tensor
    next_sentence_label: Tensor | None
    words: str = "mlm"

    def to(self, device: torch.device | str) -> "MaskedRows":
        """The same on another device."""
        return self._each(lambda tensor: to_device(tensor, device))

    def pinned(self) -> "MaskedRows":
        """The same in memory that CUDA copies from while the program goes on."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "MaskedRows":
        label = self.next_sentence_label
        return MaskedRows(
            self.rows.each(change),
            change(self.masked_lm_positions),
            change(self.masked_lm_labels),
            None if label is None else change(label),
            self.words,
        )


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
        batch.words,
    )


def padding(is_pair: bool, words: str, shape: BatchShape | None) -> MaskedRows:
    """A batch of padding alone: of the shape, or of one row."""
    none = np.zeros(0, np.int64)
    ids, types = none.astype(np.int32), none.astype(np.uint8)
    empty = PretrainingBatch(ids, types, none, none, ids, none if is_pair else None, words)
    return masked_rows(empty, shape or BatchShape(1, 1, 1, 1))


def longest_batch(num_tokens: int, longest: int, num_predictions: int, is_pair: bool) -> MaskedRows:
    """The longest sequences with all their predictions; ids are 0, which cost the same."""
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
