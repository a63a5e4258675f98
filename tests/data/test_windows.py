"""Windows: Google's loop over spans, the token of most context, steps that would skip tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.data.long_texts import check_windows, most_context, windows_of
from tidybert.errors import UsageError


def spans_of_run_squad(num_tokens: int, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """What convert_examples_to_features of run_squad.py does, as (start, length)."""
    spans, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, room)
        spans.append((start, length))
        if start + length == num_tokens:
            break
        start += min(length, doc_stride)
    return spans


def is_max_context_of_run_squad(spans: list[tuple[int, int]], current: int, position: int) -> bool:
    """What _check_is_max_context of run_squad.py says of one token in one span."""
    best, best_score = None, None
    for number, (start, length) in enumerate(spans):
        if start <= position < start + length:
            left, right = position - start, start + length - 1 - position
            score = min(left, right) + 0.01 * length
            if best_score is None or score > best_score:
                best, best_score = number, score
    return current == best


sizes = st.integers(1, 60).flatmap(
    lambda room: st.tuples(st.integers(1, 200), st.just(room), st.integers(1, room))
)


def test_literal_example() -> None:
    assert windows_of(10, 4, 3) == [(0, 4), (3, 7), (6, 10)]
    assert windows_of(11, 4, 3) == [(0, 4), (3, 7), (6, 10), (9, 11)]
    assert most_context([(0, 4), (3, 7), (6, 10)]).tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_what_fits_is_one_window() -> None:
    assert windows_of(4, 4, 1) == [(0, 4)]
    assert windows_of(0, 4) == [(0, 0)]
    assert most_context([(0, 0)]).tolist() == []


def test_the_step_is_128_tokens_or_half_of_a_shorter_window() -> None:
    assert windows_of(700, 317)[1] == (128, 445)
    assert windows_of(700, 100)[1] == (50, 150)
    assert windows_of(3, 1) == [(0, 1), (1, 2), (2, 3)]


@given(sizes)
def test_windows_are_those_of_run_squad(size: tuple[int, int, int]) -> None:
    num_tokens, room, doc_stride = size

    windows = windows_of(num_tokens, room, doc_stride)

    spans = spans_of_run_squad(num_tokens, room, doc_stride)
    assert windows == [(start, start + length) for start, length in spans]
    owners = most_context(windows)
    assert len(owners) == num_tokens
    for position, owner in enumerate(owners):
        assert is_max_context_of_run_squad(spans, owner, position)


@given(st.integers(0, 300), st.integers(1, 60))
def test_every_token_is_in_a_window(num_tokens: int, room: int) -> None:
    windows = windows_of(num_tokens, room)

    assert {token for start, end in windows for token in range(start, end)} == set(
        range(num_tokens)
    )
    assert all(end - start == room for start, end in windows[:-1])
    assert windows[-1][1] == num_tokens


@pytest.mark.parametrize("doc_stride", [0, -1, 9])
def test_a_step_that_would_skip_tokens_is_refused(doc_stride: int) -> None:
    with pytest.raises(UsageError, match=rf"doc_stride={doc_stride}: .* give 1 to 8"):
        windows_of(100, 8, doc_stride)


def test_a_window_needs_room() -> None:
    with pytest.raises(UsageError, match="max_seq_length leaves no room"):
        check_windows(0, None)
