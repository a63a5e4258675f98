"""Truncation against the original loop."""

from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization.tokenizer import fitting_lengths


def truncate_as_the_original(first: int, second: int, room: int) -> list[int]:
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 90))
def test_pairs_are_cut_as_by_the_original(first: int, second: int, room: int) -> None:
    assert fitting_lengths([first, second], room) == truncate_as_the_original(first, second, room)


def test_one_text_is_cut_at_its_end() -> None:
    assert fitting_lengths([5], 3) == [3]
    assert fitting_lengths([3], 5) == [3]
