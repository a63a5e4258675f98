"""Vectors and tokens in others' shapes."""

import numpy as np
import pytest

from tidybert.server.engine import fitted
from tidybert.server.protocols.tei_routes import byte_places, simple_tokens
from tidybert.tokenization import BertTokenizer


def test_fitted_vectors_have_the_first_numbers_and_length_one() -> None:
    vectors = np.array([[3, 4, 12], [0, 0, 1]], dtype=np.float32)

    assert np.array_equal(fitted(vectors, None, normalize=False), vectors)
    assert np.array_equal(fitted(vectors, 2, normalize=False), [[3, 4], [0, 0]])
    np.testing.assert_allclose(fitted(vectors, None, normalize=True)[0], vectors[0] / 13)
    found = fitted(vectors, 2, normalize=True)
    assert found.dtype == np.float32
    # A vector of zeros has no direction, and must not become NaN.
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]], rtol=1e-6)


@pytest.mark.parametrize("text", ["", "plain", "é", "日本 é 🙂x"])
def test_byte_places(text: str) -> None:
    expected = [len(text[:end].encode()) for end in range(len(text) + 1)]

    assert list(byte_places(text)) == expected


def test_simple_tokens_are_slices_with_their_bytes() -> None:
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "zo", "##e", "is"])
    text = "Zoë 🙂 is"

    found = simple_tokens(text, tokenizer.encode(text))

    assert [one["text"] for one in found] == ["[CLS]", "Zo", "ë", "🙂", "is", "[SEP]"]
    assert found[0] == {"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}
    assert found[2] == {"id": 6, "text": "ë", "special": False, "start": 2, "stop": 4}
    encoded = text.encode()
    for one in found[1:-1]:
        assert encoded[one["start"] : one["stop"]].decode() == one["text"]
