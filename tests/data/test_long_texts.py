"""Long texts: what is kept of them, and how much of each example every sequence weighs."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.number_tokenizer import CLS, SEP, NumberTokenizer

from tidybert.data.features import Features, example_features
from tidybert.data.long_texts import LongTexts, long_features, window_counts
from tidybert.errors import ConfigError, DataError, UsageError
from tidybert.files.text_examples import TextExample


def numbers(count: int, start: int = 1000) -> str:
    return " ".join(map(str, range(start, start + count)))


def read(
    texts: Sequence[str | tuple[str, str]], length: int, mode: str, doc_stride: int | None = None
) -> list[Features]:
    examples = [
        TextExample(text, None, None, row)
        if isinstance(text, str)
        else TextExample(*text, None, row)
        for row, text in enumerate(texts, start=1)
    ]
    return long_features(examples, NumberTokenizer(), length, mode, doc_stride)


def sides(one: Features) -> list[list[int]]:
    """The tokens between the special ones, whose places and types are checked."""
    ids = one.input_ids.tolist()
    assert (ids[0], ids[-1]) == (CLS, SEP)
    assert (one.input_ids.dtype, one.token_type_ids.dtype) == (np.int32, np.uint8)
    inner = ids[1:-1]
    split = inner.index(SEP) if SEP in inner else len(inner)
    is_pair = split < len(inner)
    seconds = len(inner) - split
    assert one.token_type_ids.tolist() == [0] * (split + 2) + [1] * seconds
    return [inner[:split], inner[split + 1 :]] if is_pair else [inner]


def test_short_texts_are_the_same_in_every_mode() -> None:
    examples = [TextExample(numbers(n), None, None, n) for n in (0, 3, 6)]
    expected = example_features(examples, NumberTokenizer(), 8)

    for mode in ("truncate", "head-tail", "windows"):
        found = long_features(examples, NumberTokenizer(), 8, mode)
        assert [one.input_ids.tolist() for one in found] == [
            one.input_ids.tolist() for one in expected
        ]
        assert [(one.example, one.truncated, one.weight) for one in found] == [
            (number, False, 1.0) for number in range(3)
        ]


def test_truncate_is_what_it_was() -> None:
    (one,) = read([numbers(9)], 8, "truncate")

    assert sides(one) == [list(range(1000, 1006))]
    assert (one.num_tokens, one.truncated) == (11, True)


@pytest.mark.parametrize(("length", "head"), [(512, 128), (128, 32), (12, 3), (4, 1), (3, 1)])
def test_head_tail_keeps_the_share_of_the_paper(length: int, head: int) -> None:
    (one,) = read([numbers(1000)], length, "head-tail")

    (kept,) = sides(one)
    assert len(one.input_ids) == length
    tail = length - 2 - head
    assert kept == [*range(1000, 1000 + head), *range(2000 - tail, 2000)]
    assert (one.num_tokens, one.truncated, one.weight) == (1002, True, 1.0)


def test_windows_begin_every_doc_stride_tokens() -> None:
    short, first, second, third = read([numbers(3), numbers(9)], 7, "windows", 2)

    assert sides(short) == [[1000, 1001, 1002]]
    assert [sides(one)[0] for one in (first, second, third)] == [
        [1000, 1001, 1002, 1003, 1004],
        [1002, 1003, 1004, 1005, 1006],
        [1004, 1005, 1006, 1007, 1008],
    ]
    assert [one.example for one in (short, first, second, third)] == [0, 1, 1, 1]
    assert first.weight == second.weight == third.weight == pytest.approx(1 / 3)
    assert not first.truncated
    assert first.num_tokens == third.num_tokens == 11


@given(st.integers(0, 80), st.integers(3, 20), st.one_of(st.none(), st.integers(1, 18)))
def test_windows_leave_nothing_out_and_weigh_one(
    count: int, length: int, doc_stride: int | None
) -> None:
    if doc_stride is not None and doc_stride > length - 2:
        with pytest.raises(UsageError, match=f"doc_stride={doc_stride}: .* give 1 to"):
            read([numbers(count)], length, "windows", doc_stride)
        return

    found = read([numbers(count)], length, "windows", doc_stride)

    assert {each for one in found for each in sides(one)[0]} == set(range(1000, 1000 + count))
    assert all(len(one.input_ids) <= length for one in found)
    assert sum(one.weight for one in found) == pytest.approx(1)
    assert not any(one.truncated for one in found)
    if count + 2 <= length:
        assert len(found) == 1


def test_a_pairs_first_text_stands_beside_each_window_of_the_second() -> None:
    pair = (numbers(2), numbers(9, 2000))

    found = read([pair], 9, "windows", 3)

    assert [sides(one) for one in found] == [
        [[1000, 1001], [2000, 2001, 2002, 2003]],
        [[1000, 1001], [2003, 2004, 2005, 2006]],
        [[1000, 1001], [2006, 2007, 2008]],
    ]
    assert [one.weight for one in found] == pytest.approx([1 / 3] * 3)
    assert {(one.num_tokens, one.truncated) for one in found} == {(14, False)}


@pytest.mark.parametrize(
    ("first", "second", "kept", "num_windows"),
    [
        (40, 40, 8, 8),  # half of the room each
        (40, 3, 14, 1),  # what the second leaves
        (40, 0, 16, 1),
        (8, 40, 8, 8),
        (6, 12, 6, 2),
    ],
)
def test_a_first_text_that_is_long_is_cut_and_told(
    first: int, second: int, kept: int, num_windows: int
) -> None:
    found = read([(numbers(first), numbers(second, 2000))], 20, "windows")

    assert len(found) == num_windows
    assert {len(sides(one)[0]) for one in found} == {kept}
    seen = {each for one in found for each in sides(one)[1]}
    assert seen == set(range(2000, 2000 + second))
    assert {one.truncated for one in found} == {kept < first}


@pytest.mark.parametrize(
    ("first", "second", "doc_stride", "kept", "num_windows"),
    [
        (200, 3, 32, 58, 1),  # the second needs no step
        (31, 200, 32, 29, 7),  # half of the room less what the step needs
        (29, 200, 32, 29, 7),
        (31, 200, 31, 30, 7),
        (31, 200, 60, 1, 4),
    ],
)
def test_a_long_step_leaves_the_first_text_less(
    first: int, second: int, doc_stride: int, kept: int, num_windows: int
) -> None:
    found = read([(numbers(first), numbers(second, 2000))], 64, "windows", doc_stride)

    assert len(found) == num_windows
    assert {len(sides(one)[0]) for one in found} == {kept}
    seen = {each for one in found for each in sides(one)[1]}
    assert seen == set(range(2000, 2000 + second))
    assert {one.truncated for one in found} == {kept < first}


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(5, 24),
    st.one_of(st.none(), st.integers(1, 24)),
)
def test_windows_of_pairs_fit_and_show_all_of_the_second(
    first: int, second: int, length: int, doc_stride: int | None
) -> None:
    if doc_stride is not None and doc_stride > length - 4:
        # Whatever the texts are, so that no later one is refused what others were trained with.
        with pytest.raises(UsageError, match=f"doc_stride={doc_stride}: .* give 1 to"):
            read([(numbers(first), numbers(second, 2000))], length, "windows", doc_stride)
        return

    found = read([(numbers(first), numbers(second, 2000))], length, "windows", doc_stride)

    assert all(len(one.input_ids) <= length for one in found)
    assert {each for one in found for each in sides(one)[1]} == set(range(2000, 2000 + second))
    assert sum(one.weight for one in found) == pytest.approx(1)
    seen = {each for one in found for each in sides(one)[0]}
    assert {one.truncated for one in found} == {len(seen) < first}


def test_what_has_no_answer_is_refused() -> None:
    pair = (numbers(3), numbers(9))
    with pytest.raises(UsageError, match=r"long='head-tail' is for single texts.*long='windows'"):
        read([pair], 9, "head-tail")
    with pytest.raises(UsageError, match=r"doc_stride=6: .* room for 5 tokens"):
        read([numbers(9)], 7, "windows", 6)
    with pytest.raises(
        UsageError,
        match=r"doc_stride=9: .* max_seq_length=12 a window has room for 8 tokens beside one "
        r"of the first text; give 1 to 8, or max_seq_length=13, so",
    ):
        read([(numbers(1), numbers(1))], 12, "windows", 9)
    with pytest.raises(UsageError, match="max_seq_length=2 leaves no room"):
        read([numbers(9)], 2, "windows")
    with pytest.raises(DataError, match="line 1 has no second text"):
        read([numbers(3), pair], 9, "windows")
    with pytest.raises(UsageError, match="doc_stride=8 has no meaning without long='windows'"):
        LongTexts("head-tail", 8)


def test_the_mode_is_stored_and_found_again() -> None:
    for long_texts in (LongTexts(), LongTexts("head-tail"), LongTexts("windows", 7)):
        assert LongTexts.from_settings(long_texts.settings()) == long_texts
    assert LongTexts().settings() == {}
    assert LongTexts("windows", 7).settings() == {"long": "windows", "doc_stride": 7}
    with pytest.raises(ConfigError, match="long is 'all'; one of truncate, head-tail, windows"):
        LongTexts.from_settings({"long": "all"})


def test_what_was_done_is_told() -> None:
    texts = [numbers(3), numbers(9), numbers(13)]
    windows = read(texts, 7, "windows", 2)
    assert window_counts(windows).tolist() == [1, 3, 5]
    assert LongTexts("windows", 2).facts("train", windows) == [
        "read in windows: 2 of 3 train, in 8 windows, 5 at most"
    ]
    assert LongTexts("head-tail").facts("dev", read(texts, 7, "head-tail")) == [
        "cut in the middle: 2 of 3 dev"
    ]
    for mode in ("truncate", "head-tail", "windows"):
        assert LongTexts(mode).facts("dev", read([numbers(3)], 7, mode)) == []
        assert LongTexts(mode).facts("dev", []) == []
