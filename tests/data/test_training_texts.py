"""Hashes of texts: equal for texts that read the same, and the same everywhere."""

import numpy as np
import pytest

from tidybert.data.splits import text_hashes


def test_a_hash_is_the_same_everywhere() -> None:
    assert text_hashes([("My invoice is wrong", None)]).tolist() == [1660169080557434346]


def test_case_white_space_and_composition_do_not_count() -> None:
    spelt = text_hashes(["Caf\u00e9  au lait", "cafe\u0301 AU\tlait ", "cafe au lait"])

    assert spelt[0] == spelt[1] != spelt[2]


def test_texts_of_a_pair_are_told_apart() -> None:
    keys = [("a", "b"), ("b", "a"), ("a b", None), ("a", "b", None), "a b", ("ab", ""), ("a",)]

    assert len(set(text_hashes(keys).tolist())) == len(keys)


def test_choices_have_no_order() -> None:
    one, other = text_hashes([("q", frozenset("abcdef")), ("q", frozenset("fedcba"))])

    assert one == other


def test_no_text_has_no_hash() -> None:
    found = text_hashes([])

    assert (found.shape, found.dtype) == ((0,), np.uint64)


def test_an_identity_of_another_kind_is_an_error_of_the_program() -> None:
    with pytest.raises(TypeError, match="not 1"):
        text_hashes([("a", 1)])
