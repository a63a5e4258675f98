"""Hashes of documents: which have been seen, and which are held out in any order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tidybert.corpus.screening import (
    DIGEST_BYTES,
    HeldOut,
    SeenDigests,
    digests_of,
    share_of,
    shares,
)
from tidybert.errors import UsageError

DOCUMENTS = [[f"document {number}", "the end"] for number in range(1000)]


def test_equal_texts_have_equal_hashes_of_16_bytes() -> None:
    digests, num_bytes = digests_of([["a", "b"], ["a b"], ["a", "b"], ["ä"]])

    assert digests.dtype.itemsize == DIGEST_BYTES == 16
    assert digests[0] == digests[2]
    assert len(set(digests.tolist())) == 3
    assert num_bytes == 3 + 3 + 3 + 2


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=12))
def test_a_document_is_new_once(batches: list[list[int]]) -> None:
    # A stopped build knows those of its first batch.
    known = set(batches[0]) if batches else set()
    seen = SeenDigests(digests_of([[str(number)] for number in sorted(known)])[0])
    for batch in batches:
        is_new = seen.add(digests_of([[str(number)] for number in batch])[0])
        for number, new in zip(batch, is_new.tolist(), strict=True):
            assert new == (number not in known)
            known.add(number)


def test_a_digest_that_ends_in_zeros_is_one_of_its_own() -> None:
    digests = np.array([b"a" * 15 + b"\0", b"a" * 15 + b"b"], f"S{DIGEST_BYTES}")
    seen = SeenDigests(digests[:1])

    assert seen.add(digests).tolist() == [False, True]
    assert shares(digests).tolist()[0] == shares(digests[:1]).tolist()[0]


def test_the_set_takes_16_bytes_a_document() -> None:
    seen = SeenDigests(digests_of([])[0])
    for number in range(200):
        digests, _ = digests_of([[f"{number} {place}"] for place in range(500)])
        seen.add(digests)

    sizes = [sum(run.nbytes for run in part.runs) for part in seen._parts]
    assert sum(sizes) == 200 * 500 * 16
    for part, size in zip(seen._parts, sizes, strict=True):
        # Few runs, so that a look-up stays cheap, and merging needs little room besides.
        assert len(part.runs) <= 10
        assert size < sum(sizes) / 12


def test_shares_follow_from_the_text_and_are_uniform() -> None:
    drawn = shares(digests_of([[str(number)] for number in range(20_000)])[0])

    assert 0.0 <= drawn.min() < drawn.max() < 1.0
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    assert drawn[7] == shares(digests_of([["7"]])[0])[0]


def test_a_vocabulary_is_measured_on_what_a_corpus_holds_out() -> None:
    documents = [[str(number), "ä"] for number in range(100)]

    assert shares(digests_of(documents)[0]).tolist() == [share_of(each) for each in documents]


def test_the_share_is_about_the_fraction_and_the_two_sides_make_the_whole() -> None:
    held_out = HeldOut(0.1)
    rest = list(held_out.rest(DOCUMENTS))

    assert 70 < len(held_out.documents) < 130
    assert sorted(rest + held_out.documents) == sorted(DOCUMENTS)
    assert all(share_of(document) < 0.1 for document in held_out.documents)
    assert all(share_of(document) >= 0.1 for document in rest)


@given(st.permutations(DOCUMENTS[:20]), st.sampled_from([0.0, 0.2]), st.integers(1, 200))
def test_the_order_does_not_matter(
    documents: list[list[str]], fraction: float, max_characters: int
) -> None:
    mixed, straight = HeldOut(fraction, max_characters), HeldOut(fraction, max_characters)
    rest = list(mixed.rest(documents))

    assert sorted(rest) == sorted(straight.rest(DOCUMENTS[:20]))
    assert mixed.documents == straight.documents
    assert mixed.is_apart
    held = sum(len(line) for document in mixed.documents for line in document)
    assert held <= max_characters or len(mixed.documents) == 1


def test_one_document_is_held_out_at_least_and_a_single_one_is_on_both_sides() -> None:
    held_out = HeldOut(0.0)
    assert len(list(held_out.rest(DOCUMENTS))) == 999
    assert held_out.documents == [min(DOCUMENTS, key=share_of)]
    alone = HeldOut(0.1)
    assert list(alone.rest(DOCUMENTS[:1])) == alone.documents == DOCUMENTS[:1]
    assert not alone.is_apart


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_fraction_that_is_none(fraction: float) -> None:
    with pytest.raises(UsageError, match="held_out"):
        HeldOut(fraction)
