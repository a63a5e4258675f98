"""Nearest pieces, cosines and the map, against plain sums; a word in two texts."""

from pathlib import Path

import numpy as np
import pytest

from tidybert import Embedder, Explainer
from tidybert.errors import DataError, UsageError
from tidybert.explain.layer_states import principal_components


@pytest.fixture(scope="module")
def explainer(tiny_model: Path) -> Explainer:
    return Explainer(tiny_model)


def test_the_nearest_pieces_are_those_with_the_largest_cosine(explainer: Explainer) -> None:
    found = explainer.nearest("Red", top_k=30)

    table = explainer.encoder.word_embeddings.weight.detach().numpy()
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    vocabulary = explainer.tokenizer.vocabulary
    cosines = {
        token: float(units[at] @ units[vocabulary.token_to_id("red")])
        for at, token in enumerate(vocabulary.tokens)
        if token != "red" and not token.startswith("[")
    }
    assert found.word_pieces == ["red"]
    assert list(found.pieces) == sorted(cosines, key=cosines.get, reverse=True)
    np.testing.assert_allclose(found.cosines, sorted(cosines.values(), reverse=True), atol=1e-6)


def test_texts_have_the_vectors_of_the_embedder(explainer: Explainer, tiny_model: Path) -> None:
    texts = ["a red hen", "the dog", "we saw"]
    for layer in (-1, 1):
        found = explainer.similarities(texts, layer=layer)
        expected = Embedder(tiny_model, layers=layer, device="cpu", normalize=True).embed(texts)
        np.testing.assert_allclose(found.cosines, expected @ expected.T, atol=1e-5)
        assert found.layer == layer % 3
    first, *_, last = found.pairs
    assert found.cosines[first] == max(found.cosines[pair] for pair in found.pairs)
    assert found.cosines[last] == min(found.cosines[pair] for pair in found.pairs)


def test_word_embeddings_know_no_order(explainer: Explainer) -> None:
    found = explainer.similarities(["red hen", "hen red", "hen"], layer="words")

    assert found.cosines[0, 1] == pytest.approx(1, abs=1e-6)
    table = explainer.encoder.word_embeddings.weight.detach().numpy()
    ids = explainer.tokenizer.convert_tokens_to_ids(["red", "hen"])
    np.testing.assert_allclose(found.vectors[0], table[ids].mean(0), atol=1e-7)


def test_the_map_keeps_the_distances_of_points_in_a_plane() -> None:
    random = np.random.default_rng(0)
    plane = np.linalg.qr(random.normal(size=(7, 2)))[0].T  # two directions of seven
    points = (random.normal(size=(5, 2)) @ plane + 3).astype(np.float32)

    found = principal_components(points)

    def distances(of: np.ndarray) -> np.ndarray:
        return np.linalg.norm(of[:, None] - of[None], axis=-1)

    np.testing.assert_allclose(distances(found), distances(points), atol=1e-5)
    assert found[:, 0].var() >= found[:, 1].var()
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-5)
    np.testing.assert_array_equal(principal_components(points[:1]), [[0, 0]])


def test_a_word_drifts_from_one_text_to_the_other(explainer: Explainer) -> None:
    texts = ["The red hen", "a HEN saw the hen"]

    found = explainer.word_in_texts("hen", texts)

    assert found.spans == [(8, 11), (2, 5)]
    for text, vectors, at in zip(texts, found.vectors, (3, 2), strict=True):
        np.testing.assert_array_equal(vectors, explainer.hidden_states(text).states[:, at])
    assert found.cosines.shape == (3, 2, 2)
    first, second = found.vectors[:, -1]
    expected = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert found.cosines[-1, 0, 1] == pytest.approx(float(expected), abs=1e-6)
    # Without a mark between words, as in Chinese.
    assert explainer.word_in_texts("he", ["the hen", "he"]).spans[0] == (1, 3)


def test_what_is_asked_wrongly(explainer: Explainer) -> None:
    for call, kind, message in (
        (lambda: explainer.similarities(["one"]), DataError, "expected two or more"),
        (lambda: explainer.similarities(["a", "b"], layer=3), UsageError, "layer 3: expected 0"),
        (lambda: explainer.similarities(["a", ""], layer="words"), DataError, "'' has no token"),
        (lambda: explainer.nearest("xyz"), DataError, "does not know 'xyz'"),
        (lambda: explainer.nearest("red", top_k=0), UsageError, "top_k is 0"),
        (lambda: explainer.word_in_texts("cow", ["a cow", "a"]), DataError, "'a' does not have"),
        (lambda: explainer.word_in_texts("a", "a text"), DataError, "one string"),
        (lambda: explainer.word_in_texts("a", ["a text"]), DataError, "two or more"),
    ):
        with pytest.raises(kind, match=message):
            call()
