"""Documents held out: the same in any order, bounded, apart from the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.corpus.duplicates import digests_of, share_of, shares
from tidybert.corpus.held_out_documents import HeldOut
from tidybert.errors import UsageError

DOCUMENTS = [[f"document {number}", "the end"] for number in range(1000)]


def test_the_share_is_about_the_fraction_and_the_two_sides_make_the_whole() -> None:
    held_out = HeldOut(0.1)
    rest = list(held_out.rest(DOCUMENTS))

    assert 70 < len(held_out.documents) < 130
    assert sorted(rest + held_out.documents) == sorted(DOCUMENTS)
    assert all(share_of(document) < 0.1 for document in held_out.documents)
    assert all(share_of(document) >= 0.1 for document in rest)


def test_it_is_the_choice_of_build_corpus() -> None:
    digests, _ = digests_of(DOCUMENTS)

    np.testing.assert_array_equal(shares(digests), [share_of(document) for document in DOCUMENTS])


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
