"""Hashes of documents, and which of them have been seen."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tidybert.corpus.duplicates import DIGEST_BYTES, SeenDigests, digests_of, share_of, shares


def test_equal_texts_have_equal_hashes_of_16_bytes() -> None:
    digests, num_bytes = digests_of([["a", "b"], ["a b"], ["a", "b"], ["ä"]])

    assert digests.dtype.itemsize == DIGEST_BYTES == 16
    assert digests[0] == digests[2]
    assert len(set(digests.tolist())) == 3
    assert num_bytes == 3 + 3 + 3 + 2


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=12))
def test_a_document_is_new_once(batches: list[list[int]]) -> None:
    seen = SeenDigests(digests_of([])[0])
    known: set[int] = set()
    for batch in batches:
        digests, _ = digests_of([[str(number)] for number in batch])
        is_new = seen.add(digests)
        for number, new in zip(batch, is_new.tolist(), strict=True):
            assert new == (number not in known)
            known.add(number)


def test_what_was_seen_before_a_stop_is_known_after_it() -> None:
    first, _ = digests_of([["one"], ["two"]])
    both, _ = digests_of([["three"], ["two"]])

    assert SeenDigests(first).add(both).tolist() == [True, False]


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

    assert seen.nbytes == 200 * 500 * 16
    for part in seen._parts:
        # Few runs, so that a look-up stays cheap, and merging needs little room besides.
        assert len(part.runs) <= 10
        assert sum(run.nbytes for run in part.runs) < seen.nbytes / 12


def test_shares_follow_from_the_text_and_are_uniform() -> None:
    drawn = shares(digests_of([[str(number)] for number in range(20_000)])[0])

    assert 0.0 <= drawn.min() < drawn.max() < 1.0
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    assert drawn[7] == shares(digests_of([["7"]])[0])[0]


def test_a_vocabulary_is_measured_on_what_a_corpus_holds_out() -> None:
    documents = [[str(number), "ä"] for number in range(100)]

    assert shares(digests_of(documents)[0]).tolist() == [share_of(each) for each in documents]
