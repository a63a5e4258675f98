"""An instance in plain values, as training reads it: of a corpus, or of texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidybert.errors import UsageError, param
from tidybert.pretraining.batches.instance_options import MaskingOptions
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.masking import Masking
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.batches.random_streams import Purpose, random_bits
from tidybert.tokenization import BertTokenizer


def describe_texts(
    texts: Sequence[str],
    tokenizer: BertTokenizer,
    masking: MaskingOptions,
    *,
    max_seq_length: int,
    seed: int,
    epoch: int,
    index: int,
) -> dict[str, Any]:
    """One or two texts as one instance, with the masks of number ``index`` of an epoch."""
    if len(texts) > 2:
        raise UsageError(f"{param('input')} is given {len(texts)} times; expected one text or two")
    encoding = tokenizer.encode(texts[0], texts[1] if len(texts) == 2 else None)
    ids = np.asarray(encoding.input_ids, np.int32)
    types = np.asarray(encoding.token_type_ids)
    counts = [encoding.sequence_ids.count(side) for side in range(len(texts))]
    if len(ids) > max_seq_length:
        raise UsageError(
            f"{param('input')} has {len(ids):,} tokens; give "
            f"{param('max_seq_length', len(ids))} to show them all"
        )
    if not all(counts):
        raise UsageError(f"{param('input')} is a text without a token")
    starts = [encoding.sequence_ids.index(side) for side in range(len(texts))]
    key = random_bits(seed, epoch, Purpose.MASK_KEY, np.array([index]))
    masks = Masking(masking, tokenizer)
    masked = masks.mask(ids, np.array([len(ids)]), key)
    return {
        "epoch": epoch,
        "index": index,
        "seed": seed,
        "segments": [
            {
                "segment": name,
                "num_tokens": count,
                "text": tokenizer.decode(
                    masked.input_ids[start : start + count].tolist(), skip_special_tokens=False
                ),
            }
            for name, start, count in zip("AB", starts, counts, strict=False)
        ],
        **_masked(tokenizer, masked.input_ids, masked.positions, masked.labels),
        "token_type_ids": types,
    }


def _masked(tokenizer: BertTokenizer, ids: Any, rows: Any, labels: Any) -> dict[str, Any]:
    """All tokens, and how masking changes those to predict: [MASK], a random token, no change."""
    predictions = []
    for row, label in zip(rows, labels, strict=True):
        if ids[row] == label:
            what = "kept"
        else:
            what = "masked" if ids[row] == tokenizer.mask_token_id else "replaced"
        token, became = tokenizer.convert_ids_to_tokens([label, ids[row]])
        predictions.append({"position": row, "token": token, "became": became, "what": what})
    return {"predictions": predictions, "tokens": tokenizer.convert_ids_to_tokens(ids)}


def describe(instances: PretrainingInstances, position: Position) -> dict[str, Any]:
    """One instance of a corpus: segments, tokens as the model reads them, predictions."""
    places, _ = instances.take(position, 1)
    batch = instances.build(places)
    tokenizer, ids = instances.tokenizer, batch.input_ids
    segments = []
    end = 1
    for name, document, begin, after in (
        ("A", places.document_a, places.begin_a, places.end_a),
        ("B", places.document_b, places.begin_b, places.end_b),
    )[: 1 + instances.options.pairs]:
        start, end = end, end + int(after[0] - begin[0]) + 1
        segments.append(
            {
                "segment": name,
                "document": document[0],
                "source": instances.corpus.source_of(int(document[0])),
                "first_token": begin[0],
                "num_tokens": after[0] - begin[0],
                "text": tokenizer.decode(ids[start : end - 1].tolist(), skip_special_tokens=False),
            }
        )
    label = None if batch.next_sentence_label is None else int(batch.next_sentence_label[0])
    return {
        "objective": instances.options.objective,
        "seed": instances.seed,
        "next_sentence_label": label,
        "segments": segments,
        **_masked(tokenizer, ids, batch.masked_lm_positions, batch.masked_lm_labels),
        "token_type_ids": batch.token_type_ids,
    }
