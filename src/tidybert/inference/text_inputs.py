"""Texts that a model is asked about: checked, fitted to the model, and made its features."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.configuration import BertConfig
from tidybert.data.features import Features
from tidybert.errors import DataError, UsageError, param
from tidybert.tokenization.encoding import Encoding


def check_texts(texts: Sequence[Any], text_pairs: Sequence[Any] | None = None) -> None:
    """Raise DataError for a string instead of a list, and for lists of unequal lengths."""
    if isinstance(texts, str) or isinstance(text_pairs, str):
        raise DataError("one string was given; expected a list of texts: wrap it in [...]")
    if text_pairs is not None and len(text_pairs) != len(texts):
        raise DataError(f"there are {len(texts)} texts and {len(text_pairs)} second texts")


def fitting_length(config: BertConfig, max_seq_length: int | None) -> int:
    """``max_seq_length``, or all the model's positions for None; UsageError for more than those."""
    limit = config.max_position_embeddings
    if max_seq_length is not None and max_seq_length > limit:
        raise UsageError(
            f"{param('max_seq_length')} is {max_seq_length}, but the model has positions for "
            f"{limit} tokens"
        )
    return limit if max_seq_length is None else max_seq_length


def encoding_features(encodings: Sequence[Encoding]) -> list[Features]:
    """Features of texts that were tokenised with their offsets."""
    return [
        Features(
            np.array(one.input_ids, dtype=np.int32),
            np.array(one.token_type_ids, dtype=np.uint8),
            one.num_tokens,
            one.truncated,
            example=number,
        )
        for number, one in enumerate(encodings)
    ]


def vectors_of_each(
    vectors: npt.NDArray[Any], encodings: Sequence[Encoding]
) -> Iterator[npt.NDArray[Any]]:
    """Cut (T, d), the vectors of all tokens, into one (tokens, d) for each encoding."""
    end = 0
    for one in encodings:
        end += len(one)
        yield vectors[end - len(one) : end]
