"""Instances of a language model: each token is predicted from those before it."""

import numpy as np

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.batches.places import Places
from tidybert.pretraining.batches.pretraining_batch import PretrainingBatch


def next_token_batch(
    corpus: TokenCorpus, places: Places, start_id: int, end_id: int
) -> PretrainingBatch:
    """The instances at ``places``: [SOS] and the tokens of a segment, all rows to predict.

    The last row of a document predicts [EOS].  Where a segment ends before its document does, the
    last row predicts the token after the segment, so that no text seems to end at a cut.  Raises
    DataError for ids of a damaged corpus.
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
