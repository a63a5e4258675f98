"""``top_k`` is a sort of all products, whatever the blocks, the threads and the other queries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.errors import DataError, UsageError
from tidybert.search import nearest_vectors
from tidybert.search.nearest_vectors import top_k


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many segments and several blocks in each."""
    monkeypatch.setattr(nearest_vectors, "_SEGMENT_ROWS", 200)
    monkeypatch.setattr(nearest_vectors, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(nearest_vectors, "_QUERIES", 3)


def sorted_products(
    queries: Any, vectors: Any, k: int, scales: Any = None, own: Any = None
) -> tuple[Any, Any]:
    """The plain body: a stable sort keeps equal products in the order of their positions."""
    products = queries.astype(np.float64) @ vectors.astype(np.float64).T
    if scales is not None:
        products = products * scales
    products = products.astype(np.float32)
    if own is not None:
        products[own] = -np.inf
    order = np.argsort(-products, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(products, order, axis=1)


def test_a_literal_example() -> None:
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0.6, 0.8]], dtype=np.float32)

    positions, scores = top_k(np.array([[1, 0], [0, -1]]), vectors, 3)

    # The vectors at 0 and 2 are equal, and the first comes first.
    assert positions.tolist() == [[0, 2, 3], [0, 2, 3]]
    assert scores.tolist() == [[1, 1, np.float32(0.6)], [0, 0, np.float32(-0.8)]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("n", [1, 63, 200, 1000])
def test_it_is_a_sort_of_all_products(dtype: str, n: int) -> None:
    random = np.random.default_rng(n)
    queries = random.normal(size=(7, 24)).astype(np.float32)
    vectors = random.normal(size=(n, 24)).astype(np.float32)
    scales = None
    if dtype == "int8":
        scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
        vectors = np.rint(vectors / scales[:, None])
    vectors = vectors.astype(dtype)

    positions, scores = top_k(queries, vectors, 10, scales=scales)

    expected, products = sorted_products(queries, vectors, 10, scales)
    assert (positions == expected).all()
    assert np.allclose(scores, products, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 50), st.integers(1, 5))
def test_equal_products_come_by_position(seed: int, n: int, k: int, m: int) -> None:
    """Whole numbers have exact products, and a few of them make many equal ones."""
    random = np.random.default_rng(seed)
    queries, vectors = random.integers(-1, 2, (m, 4)), random.integers(-1, 2, (n, 4))
    own, others = random.integers(0, 3, m), random.integers(0, 3, n)

    found = top_k(queries, vectors.astype(np.int8), k)
    apart = top_k(queries, vectors.astype(np.float32), k, groups=own, vector_groups=others)

    expected, products = sorted_products(queries, vectors, k)
    assert (found[0] == expected).all()
    assert (found[1] == products).all()
    expected, products = sorted_products(queries, vectors, k, own=own[:, None] == others)
    assert (apart[0] == np.where(products == -np.inf, -1, expected)).all()
    assert (apart[1] == products).all()


def test_rising_products_need_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst order: each block is better than all before it, so candidates are cut often."""
    monkeypatch.setattr(nearest_vectors, "_SEGMENT_ROWS", 2**20)
    vectors = np.arange(80_000, dtype=np.float32)[:, None] / 80_000

    positions, _ = top_k(np.ones((1, 1)), vectors, 5)

    assert positions.tolist() == [[79_999, 79_998, 79_997, 79_996, 79_995]]


def test_other_queries_and_threads_change_no_bit() -> None:
    random = np.random.default_rng(1)
    queries = random.normal(size=(9, 40)).astype(np.float32)
    # Each vector is there many times, so that a bit more or less would change the order.
    vectors = np.tile(random.normal(size=(30, 40)).astype(np.float32), (20, 1))
    before = torch.get_num_threads()

    together = top_k(queries, vectors, 12)
    try:
        torch.set_num_threads(2)
        threaded = top_k(queries, vectors, 12)
    finally:
        torch.set_num_threads(before)

    for number in range(9):
        alone = top_k(queries[number : number + 1], vectors, 12)
        for each in (together, threaded):
            assert (each[0][number] == alone[0][0]).all()
            assert (each[1][number] == alone[1][0]).all()


def test_a_mapped_file_is_searched_as_it_is(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).normal(size=(300, 8)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)

    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")

    assert (top_k(vectors[:4], mapped, 1)[0].ravel() != -1).all()
    found, expected = top_k(vectors[:4], mapped, 3), top_k(vectors[:4], vectors, 3)
    assert (found[0] == expected[0]).all()
    assert (found[1] == expected[1]).all()


def test_nothing_to_find_is_an_empty_answer() -> None:
    positions, scores = top_k(np.ones((2, 3)), np.empty((0, 3), dtype=np.float32), 5)

    assert positions.shape == scores.shape == (2, 0)
    assert top_k(np.empty((0, 3)), np.ones((4, 3), dtype=np.float32), 2)[0].shape == (0, 2)


def test_what_is_not_finite_is_named() -> None:
    vectors = np.ones((300, 3), dtype=np.float32)
    vectors[217, 1] = np.nan

    with pytest.raises(DataError, match="the vector at position 217 holds a number that is not"):
        top_k(np.ones((2, 3)), vectors, 1)
    with pytest.raises(DataError, match="query 1 holds a number that is not finite"):
        top_k(np.array([[1.0], [np.inf]]), np.ones((3, 1), dtype=np.float32), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "give a number from 1 on"),
        ({"queries": np.ones((2, 4))}, r"\(2, 4\) and vectors \(5, 3\)"),
        ({"queries": np.ones(3)}, r"expected \(m, d\) and \(n, d\)"),
        ({"vectors": np.ones((5, 3))}, "vectors are float64: expected one of float32"),
        ({"scales": np.ones(4)}, r"scales are \(4,\): expected \(5,\)"),
        ({"groups": np.ones(2)}, "belong together"),
    ],
)
def test_what_does_not_fit_is_said(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "queries": np.ones((2, 3)),
        "vectors": np.ones((5, 3), dtype=np.float32),
        "k": 1,
    }

    with pytest.raises(UsageError, match=message):
        top_k(**{**given, **change})
