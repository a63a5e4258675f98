"""The scan of sign bits: what it finds beside exact search, and the bits of a vector."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.search import index_files, sign_bits
from tidybert.search.index import Index
from tidybert.search.index_files import compact_index, delete_texts
from tidybert.search.nearest_vectors import top_k
from tidybert.search.sign_bits import Scan, SignBits

Make = Callable[..., Path]


def clustered(count: int, width: int = 96) -> Any:
    """Vectors that have near ones, as those of texts do."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((count // 25, width), dtype=np.float32)
    noise = random.standard_normal((count, width), dtype=np.float32)
    vectors = centres[random.integers(0, len(centres), count)] + 0.5 * noise
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def bits_of(vectors: Any, first: int = 0) -> Any:
    return np.concatenate(list(sign_bits.sign_bits(vectors, first)))


def test_a_distance_is_the_number_of_other_signs() -> None:
    vectors = clustered(500, 70)
    rotated = vectors @ sign_bits._rotation(70).numpy()

    distances = SignBits(bits_of(vectors)).distances(vectors[3])

    assert distances.tolist() == ((rotated > 0) != (rotated[3] > 0)).sum(axis=1).tolist()
    rotation = sign_bits._rotation(70).numpy()
    assert np.allclose(rotation @ rotation.T, np.eye(70), atol=1e-5)


def test_the_bits_of_a_vector_do_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_bits, "_ROWS", 64)
    vectors = clustered(300)
    whole = bits_of(vectors)

    for first in (0, 1, 64, 100, 299):
        assert (bits_of(vectors, first) == whole[first:]).all()
        assert (bits_of(vectors[: first + 1]) == whole[: first + 1]).all()


def test_what_is_measured_is_what_a_search_finds() -> None:
    vectors = clustered(20_000)
    bits = SignBits(bits_of(vectors))

    scan = bits.measured(vectors, None)

    assert scan.candidates in (256, 512)
    assert scan.recall >= 0.99
    chosen = np.linspace(0, len(vectors) - 1, 50).astype(int)
    best, _ = top_k(vectors[chosen], vectors, 11)
    kept = [
        np.isin(near, bits.nearest(vectors[at], scan.candidates)).sum() - 1
        for at, near in zip(chosen, best, strict=True)
    ]
    assert sum(kept) / (10 * len(kept)) >= 0.98
    # The signs of vectors without any order say too little.
    random = np.random.default_rng(1).standard_normal((20_000, 96), dtype=np.float32)
    poor = SignBits(bits_of(random)).measured(random, None)
    assert poor.candidates == 0
    assert poor.recall < 0.9


def test_candidates_are_the_nearest_that_count() -> None:
    vectors = clustered(3000)
    bits = SignBits(bits_of(vectors))
    allowed = np.arange(len(vectors)) % 3 == 0
    distances = bits.distances(vectors[5])

    for counted in (None, allowed):
        found = bits.nearest(vectors[5], 40, counted)
        places = np.arange(3000) if counted is None else np.flatnonzero(allowed)
        order = np.lexsort((places, distances[places]))[:40]
        assert found.tolist() == np.sort(places[order]).tolist()


@pytest.mark.parametrize(
    ("count", "num_vectors", "expected"),
    [(10, 100_000, 512), (1, 100_000, 512), (25, 100_000, 1536), (10, 16_383, 0)],
)
def test_more_texts_need_more_candidates(count: int, num_vectors: int, expected: int) -> None:
    assert Scan(1, 512, 0.99).candidates_for(count, num_vectors) == expected
    assert Scan(1, 0, 0.5).candidates_for(count, num_vectors) == 0


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_index_of_many_texts_is_scanned(
    make_index: Make, examples: Any, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(index_files, "LEAST_VECTORS", 12)
    monkeypatch.setattr(sign_bits, "_ROWS", 8)
    monkeypatch.setattr(sign_bits, "_MOST_CANDIDATES", 1)
    directory = make_index(texts=examples[:10], dtype=dtype, id_column="id")
    assert not (directory / "bits.npy").exists()
    whole = make_index("whole", dtype=dtype, id_column="id")
    make_index(texts=examples[:15], dtype=dtype, id_column="id")
    make_index(dtype=dtype, id_column="id")

    for name in ("bits.npy", "vectors.npy"):
        assert (directory / name).read_bytes() == (whole / name).read_bytes()
    index = Index(directory)
    assert index._state.scan is not None
    assert index.facts()["search"] == "exact; signs find 100.00% of the ten nearest"
    # As if it were worth it: with all texts among the candidates nothing else is found.
    monkeypatch.setattr(Scan, "candidates_for", lambda *_: 9)
    query = index.vectors[4:6].astype(np.float32)
    fast, exact = (index.nearest(query, 1, exact=each) for each in (False, True))
    assert fast == exact
    assert [hits[0].position for hits in fast] == [4, 5]
    delete_texts(directory, ["n5"])
    assert Index(directory).nearest(query, 1)[0][0].position != 4
    compact_index(directory)
    assert Index(directory).nearest(query[1:], 1)[0][0].position == 4
    assert len(np.load(directory / "bits-1.npy")) == 21
