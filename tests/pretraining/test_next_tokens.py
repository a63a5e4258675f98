"""The instances of a language model: [SOS], a document's tokens, [EOS]."""

from itertools import chain
from pathlib import Path

import numpy as np

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.batches.instance_options import NextTokenOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.pretraining_batch import Position


def test_every_row_predicts_the_token_after_it(corpus: Path) -> None:
    shards = TokenCorpus(corpus)
    instances = PretrainingInstances(shards, NextTokenOptions(max_seq_length=24), seed=1)
    start, end = instances.tokenizer.vocabulary.text_bounds
    assert (start, end) == (shards.tokenizer().vocab_size, shards.tokenizer().vocab_size + 1)
    places, _ = instances.take(Position(), len(instances._groups.segments(0, 0)))

    batch = instances.build(places)

    assert batch.lengths.max() <= 24
    assert batch.lengths.tolist() == instances.lengths(places).tolist()
    assert batch.masked_lm_positions.tolist() == list(range(len(batch.input_ids)))
    ends = np.cumsum(batch.lengths)[:-1]
    columns = (
        places.begin_a.tolist(),
        places.document_a.tolist(),
        np.split(batch.input_ids, ends),
        np.split(batch.masked_lm_labels, ends),
    )
    of_documents: dict[int, list[tuple[int, list[int]]]] = {}
    for begin, document, ids, labels in zip(*columns, strict=True):
        assert ids[0] == start
        assert ids[1:].tolist() == labels[:-1].tolist()
        of_documents.setdefault(document, []).append((begin, labels.tolist()))
    assert len(of_documents) == shards.num_documents
    assert max(map(len, of_documents.values())) > 1
    for document, found in of_documents.items():
        bounds, _ = shards.sentence_bounds(np.array([document]))
        (tokens,) = shards.tokens(bounds[:1], bounds[-1:])
        predicted = [labels for _, labels in sorted(found)]
        # A piece that does not end the document predicts the first token of the next one.
        read = [labels[:-1] for labels in predicted]
        assert [*chain.from_iterable(read)] == tokens.tolist()
        assert [labels[-1] for labels in predicted[:-1]] == [labels[0] for labels in read[1:]]
        assert predicted[-1][-1] == end
