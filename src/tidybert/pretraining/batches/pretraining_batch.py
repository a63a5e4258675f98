"""Instances as arrays: built once for a process's share of a step, then cut into parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.batches.random_streams import Array, Bits

# Where instances are: their place in the stream, and where their tokens lie in the corpus.


@dataclass(frozen=True)
class Position:
    """Where the next instance is: the epoch, the group of documents, the place in the group."""

    epoch: int = 0
    group: int = 0
    offset: int = 0

    def flat(self) -> list[int]:
        return [self.epoch, self.group, self.offset]

    def next_epoch(self) -> "Position":
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
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Places(*(np.concatenate(column) for column in columns))

    def num_text_tokens(self) -> Array:
        """(n,): tokens of A and B, without special ones."""
        return self.end_a - self.begin_a + self.end_b - self.begin_b


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


# Instances of a language model: each token is predicted from those before it.


def next_token_batch(
    corpus: TokenCorpus, places: Places, start_id: int, end_id: int
) -> PretrainingBatch:
    """The instances at ``places``: [SOS] and the tokens of a segment, all rows to predict.

    The last row of a document predicts [EOS].  Where a segment ends before its document does,
    the last row predicts the token after the segment, so that no text seems to end at a cut.
    """
    lengths = places.end_a - places.begin_a + 1
    goes_on = places.end_a < corpus.document_ends(places.document_a)
    texts = corpus.tokens(places.begin_a, places.end_a + goes_on)
    ids, labels = [], []
    start, end = np.array([start_id], np.int32), np.array([end_id], np.int32)
    for text, more, length in zip(texts, goes_on.tolist(), lengths.tolist(), strict=True):
        ids += [start, text[: length - 1]]
        labels += [text] if more else [text, end]
    corpus.check_ids(np.concatenate(texts))
    input_ids = np.concatenate(ids, dtype=np.int32)
    return PretrainingBatch(
        input_ids=input_ids,
        token_type_ids=np.zeros(len(input_ids), np.uint8),
        lengths=lengths,
        masked_lm_positions=np.arange(len(input_ids)),
        masked_lm_labels=np.concatenate(labels, dtype=np.int32),
        next_sentence_label=None,
        words="lm",
    )
