"""Vectors and tokens in the shapes of OpenAI and text-embeddings-inference; pure functions."""

import base64
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.encoding import Encoding

Vectors = npt.NDArray[np.float32]

_SMALLEST_LENGTH: Final = np.float32(1e-12)


def fitted(vectors: Vectors, dimensions: int | None, *, normalize: bool) -> Vectors:
    """The first ``dimensions`` numbers (None: all) of each vector (n, d), scaled to length 1 if
    ``normalize``."""
    found = vectors[:, :dimensions]
    if normalize:
        found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), _SMALLEST_LENGTH)
    return np.ascontiguousarray(found)


def in_base64(vector: npt.NDArray[np.float32]) -> str:
    """The numbers as little-endian float32 in base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def similarities(source: Vectors, others: Vectors) -> list[float]:
    """(n,) the products of one vector (d,) with the others (n, d): cosines if all have length 1."""
    found: list[float] = (others @ source).tolist()
    return found


def simple_tokens(text: str, encoding: Encoding) -> list[dict[str, Any]]:
    """{"id", "text", "special", "start", "stop"} of each token.

    "text" is the token's part of the text, from byte "start" to byte "stop" in UTF-8.  A special
    token around the text has its name and no place.
    """
    places = byte_places(text)
    found = []
    for token, number, sequence, (start, end) in zip(
        encoding.tokens,
        encoding.input_ids,
        encoding.sequence_ids,
        encoding.offset_mapping,
        strict=True,
    ):
        special = sequence is None
        found.append(
            {
                "id": number,
                "text": token if special else text[start:end],
                "special": special,
                "start": None if special else places[start],
                "stop": None if special else places[end],
            }
        )
    return found


def byte_places(text: str) -> range | list[int]:
    """(len(text) + 1,) the byte in UTF-8 where each character begins, and the end."""
    if text.isascii():
        return range(len(text) + 1)
    return list(accumulate((len(each.encode()) for each in text), initial=0))
