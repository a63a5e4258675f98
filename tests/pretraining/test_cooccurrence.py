"""Vectors of tokens from what stands near them: counts by hand, and words that are alike."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining import start as cooccurrence
from tidybert.pretraining.start import token_vectors

Ids = list[int]


def test_pairs_are_counted_by_their_distance_within_a_piece() -> None:
    pieces = [np.array(ids, np.int32) for ids in ([0, 1, 2, 0, 3, 1], [2])]
    found = cooccurrence._nearby(pieces, 4, np.array([0, 1]))
    # By hand: 0 and 1 are one, two, two and five places apart, and five is beyond the reach.
    expected = np.zeros((4, 2))
    ids = [0, 1, 2, 0, 3, 1]
    for at, one in enumerate(ids):
        for other_at, other in enumerate(ids):
            if other < 2 and 0 < abs(at - other_at) <= 4:
                expected[one, other] += 1 / abs(at - other_at)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found[0, 1] == pytest.approx(1 + 1 / 2 + 1 / 2)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    pieces = [generator.integers(0, 9, size).astype(np.int32) for size in (50, 3, 0, 31)]
    contexts = np.arange(9)
    whole = cooccurrence._nearby(pieces, 9, contexts)
    monkeypatch.setattr(cooccurrence, "_CHUNK", 7)
    np.testing.assert_allclose(cooccurrence._nearby(pieces, 9, contexts), whole, rtol=1e-5)
    np.testing.assert_allclose(whole, whole.T, rtol=1e-5)


def test_association_is_the_positive_information() -> None:
    found = np.array([[4.0, 0.0], [1.0, 5.0]], np.float32)
    context = np.array([5.0, 5.0]) ** 0.75
    context /= context.sum()
    row = found.sum(1)
    expected = [
        [np.log(4 / (row[0] * context[0])), 0.0],
        [0.0, np.log(5 / (row[1] * context[1]))],
    ]
    np.testing.assert_allclose(cooccurrence._association(found), expected, rtol=1e-5)


@pytest.fixture
def pets(write_corpus: Callable[..., Path], tmp_path: Path) -> TokenCorpus:
    """Sentences in which 10 and 11 stand between the same tokens, and so do 12 and 13."""
    generator = np.random.default_rng(0)
    documents = []
    for _ in range(300):
        kind = int(generator.integers(2))
        word = 10 + 2 * kind + int(generator.integers(2))
        near = [14 + 3 * kind + int(each) for each in generator.integers(0, 3, 4)]
        documents.append([[near[0], near[1], word, near[2], near[3]]])
    return TokenCorpus(write_corpus(tmp_path / "pets", documents, vocab_size=24))


def test_tokens_in_the_same_places_have_like_vectors(pets: TokenCorpus) -> None:
    found = token_vectors(pets, 4)
    size = int(pets.manifest.vocabulary["vocab_size"])
    assert found.vectors.shape == (size, 4)
    assert found.vectors.dtype == np.float32
    assert found.num_tokens == pets.num_tokens == 1500
    seen = found.counts > 0
    assert not found.vectors[~seen].any()
    assert found.vectors[seen].std() == pytest.approx(1.0, abs=1e-5)

    def likeness(one: int, other: int) -> float:
        first, second = found.vectors[one], found.vectors[other]
        return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))

    assert likeness(10, 11) > 0.9 > 0.5 > likeness(10, 12)
    assert likeness(12, 13) > 0.9
    again = token_vectors(pets, 4)
    assert again.vectors.tobytes() == found.vectors.tobytes()
    large = token_vectors(pets, 4, seed=2**64 - 1)
    assert np.isfinite(large.vectors).all()


def test_a_large_corpus_is_read_in_windows(
    pets: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooccurrence, "_WINDOW", 50)
    monkeypatch.setattr(cooccurrence, "_MOST_TOKENS", 500)
    assert token_vectors(pets, 4).num_tokens == 500
    monkeypatch.setattr(cooccurrence, "_MOST_TOKENS", 1500)
    assert token_vectors(pets, 4).num_tokens == 1500


def test_more_width_than_contexts_leaves_zeros(
    pets: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = int(pets.manifest.vocabulary["vocab_size"])
    monkeypatch.setattr(cooccurrence, "_MOST_CELLS", 3 * size)
    vectors = token_vectors(pets, 8).vectors
    assert vectors[:, :3].any(axis=0).all()
    assert not vectors[:, 3:].any()
