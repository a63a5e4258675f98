"""Instances as arrays: built once for a process's share of a step, then cut into parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tidybert.pretraining.batches.random_streams import Array


@dataclass(frozen=True)
class PretrainingBatch:
    """B instances, laid end to end: T tokens with M of them to predict.

    input_ids (T,) int32, token_type_ids (T,) uint8, lengths (B,) int64; masked_lm_positions (M,)
    int64, rising rows of the batch, masked_lm_labels (M,) int32, the ids before masking;
    next_sentence_label (B,) int64, None for mlm and lm.  words: the objective of the predictions,
    mlm, or lm, whose labels are the tokens after the positions.
    """

    input_ids: npt.NDArray[np.int32]
    token_type_ids: npt.NDArray[np.uint8]
    lengths: Array
    masked_lm_positions: Array
    masked_lm_labels: npt.NDArray[np.int32]
    next_sentence_label: Array | None
    words: str = "mlm"

    @staticmethod
    def join(parts: "Sequence[PretrainingBatch]") -> "PretrainingBatch":
        """One batch of the instances of all parts; one part is given back as it is."""
        if len(parts) == 1:
            return parts[0]
        rows = np.cumsum([0, *(len(part.input_ids) for part in parts)]).tolist()
        labels = [part.next_sentence_label for part in parts]
        return PretrainingBatch(
            input_ids=np.concatenate([part.input_ids for part in parts]),
            token_type_ids=np.concatenate([part.token_type_ids for part in parts]),
            lengths=np.concatenate([part.lengths for part in parts]),
            masked_lm_positions=np.concatenate(
                [part.masked_lm_positions + row for part, row in zip(parts, rows, strict=False)]
            ),
            masked_lm_labels=np.concatenate([part.masked_lm_labels for part in parts]),
            next_sentence_label=np.concatenate([each for each in labels if each is not None])
            if labels[0] is not None
            else None,
            words=parts[0].words,
        )

    def parts(self, sizes: Sequence[int]) -> "list[PretrainingBatch]":
        """Split into consecutive batches of ``sizes`` instances."""
        ends = np.cumsum([0, *sizes])
        rows = np.concatenate([[0], np.cumsum(self.lengths)])[ends]
        places = np.searchsorted(self.masked_lm_positions, rows)
        label = self.next_sentence_label
        return [
            PretrainingBatch(
                input_ids=self.input_ids[row:next_row],
                token_type_ids=self.token_type_ids[row:next_row],
                lengths=self.lengths[begin:end],
                masked_lm_positions=self.masked_lm_positions[place:next_place] - row,
                masked_lm_labels=self.masked_lm_labels[place:next_place],
                next_sentence_label=None if label is None else label[begin:end],
                words=self.words,
            )
            for (begin, end), (row, next_row), (place, next_place) in zip(
                pairwise(ends.tolist()),
                pairwise(rows.tolist()),
                pairwise(places.tolist()),
                strict=True,
            )
        ]
