"""Micro-batches of one shape: sequences packed into a fixed number of rows, the rest padding.

A compiled graph serves one shape, and kernels are chosen for one.  So sequences of padding fill up
each batch to T rows, B sequences and M masked rows.  Attention keeps padding apart, and no loss
reads it.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    """The shape that gives steps of ``num_tokens`` tokens the least padding.

    Args:
        lengths, predictions: of a sample of the sequences.
        longest: most tokens of a sequence.
        num_tokens: most tokens of a process's share of a step.
        micro_batch_tokens: most rows; at least twice ``longest``.
    """
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
