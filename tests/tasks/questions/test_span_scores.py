"""The scores of spans against a loop over all of them by the rules of run_squad.py."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.data.features import Features
from tidybert.data.long_texts import most_context, windows_of
from tidybert.tasks.questions.question_features import ContextTokens, ContextWindow
from tidybert.tasks.questions.span_answers import SpanScores, all_span_scores, span_scores

FIRST_ROW = 2


def tokens_of(starts: list[int], ends: list[int]) -> ContextTokens:
    """Tokens at these characters."""
    return ContextTokens(*(np.array(values, dtype=np.int32) for values in (starts, ends)))


def window_places(tokens: ContextTokens, room: int, doc_stride: int) -> list[ContextWindow]:
    windows = windows_of(len(tokens.starts), room, doc_stride)
    owners = most_context(windows)
    return [
        ContextWindow(tokens, FIRST_ROW, begin, end, owners[begin:end] == number)
        for number, (begin, end) in enumerate(windows)
    ]


def logits_for(windows: list[ContextWindow], seed: int) -> list[npt.NDArray[np.float32]]:
    """As if each window was [CLS] [SEP] tokens [SEP]; halves, so that ties are common."""
    random = np.random.default_rng(seed)
    return [
        (random.integers(-6, 7, (one.end - one.begin + FIRST_ROW + 1, 2)) / 2).astype(np.float32)
        for one in windows
    ]


def answers_of_run_squad(
    outputs: list[npt.NDArray[np.float32]], windows: list[ContextWindow], max_answer_length: int
) -> dict[tuple[int, int], float]:
    """By tokens of the text, the score of what write_predictions lets pass of all pairs."""
    found = {}
    for logits, window in zip(outputs, windows, strict=True):
        size = window.end - window.begin
        for start in range(size):
            for end in range(start, min(size, start + max_answer_length)):
                if window.owned[start]:
                    score = logits[FIRST_ROW + start, 0] + logits[FIRST_ROW + end, 1]
                    found[window.begin + start, window.begin + end] = float(score)
    return found


def as_dictionary(scores: SpanScores) -> dict[tuple[int, int], float]:
    places = np.argwhere(scores.spans > -np.inf).tolist()
    return {(first, first + length): float(scores.spans[first, length]) for first, length in places}


cases = st.tuples(
    st.integers(1, 14), st.integers(1, 8), st.integers(1, 8), st.integers(1, 5), st.integers(0, 99)
).filter(lambda case: case[2] <= case[1])


@given(cases)
def test_spans_are_those_of_run_squad(case: tuple[int, int, int, int, int]) -> None:
    size, room, doc_stride, max_answer_length, seed = case
    tokens = tokens_of(list(range(size)), list(range(1, size + 1)))
    windows = window_places(tokens, room, doc_stride)
    outputs = logits_for(windows, seed)

    scores = span_scores(outputs, windows, max_answer_length)

    expected = answers_of_run_squad(outputs, windows, max_answer_length)
    assert as_dictionary(scores) == expected
    assert {first for first, _ in expected} == set(range(size))
    assert scores.null == min(logits[0].sum() for logits in outputs)
    # The best: highest first, and of equals that which stands first.
    ranked = sorted(expected, key=lambda span: (-expected[span], span))
    for count in (1, 3, 1000):
        best, values = scores.best(count)
        assert [tuple(span) for span in best.tolist()] == ranked[:count]
        assert values.tolist() == [expected[span] for span in ranked[:count]]
    for with_null in (False, True):
        terms = [*expected.values(), *[scores.null] * with_null]
        assert sorted(scores.candidates(with_null=with_null)) == sorted(terms)
        total = np.log(np.exp(np.array(terms) / 2).sum())
        assert np.isclose(scores.log_total(2.0, with_null=with_null), total)
    for first in range(size):
        for last in range(first, size):
            assert scores.score_of(first, last) == expected.get((first, last), -np.inf)


@pytest.mark.parametrize(
    "places",
    [
        # A character of three bytes; a space's mark, which begins where the word after it does.
        [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)],
        [(0, 1), (1, 2), (1, 3), (3, 4), (3, 4)],
    ],
)
def test_of_all_tokens_with_the_same_characters_the_best_count(
    places: list[tuple[int, int]],
) -> None:
    tokens = tokens_of(*map(list, zip(*places, strict=True)))
    for seed in range(40):
        windows = window_places(tokens, 4, 1)
        outputs = logits_for(windows, seed)

        scores = span_scores(outputs, windows, 3)

        expected: dict[tuple[int, int], float] = {}
        for (first, last), score in answers_of_run_squad(outputs, windows, 3).items():
            span = places[first][0], places[last][1]
            expected[span] = max(score, expected.get(span, -np.inf))
        found = {scores.characters(*span): score for span, score in as_dictionary(scores).items()}
        assert found == expected
        assert len(as_dictionary(scores)) == len(expected)
        ranked = sorted(expected, key=lambda span: (-expected[span], span))
        best, values = scores.best(100)
        assert [scores.characters(*span) for span in best.tolist()] == ranked
        assert values.tolist() == [expected[span] for span in ranked]
        for first, (start, _) in enumerate(places):
            for last in range(first, len(places)):
                score = scores.score_of(first, last)
                assert score == expected.get((start, places[last][1]), -np.inf)


def test_a_text_without_tokens_has_no_answers() -> None:
    (window,) = window_places(tokens_of([], []), 4, 1)

    scores = span_scores([np.ones((3, 2), dtype=np.float32)], [window], 4)

    assert scores.best(3)[0].shape == (0, 2)
    assert scores.log_total(1.0, with_null=False) == -np.inf
    assert scores.log_total(1.0, with_null=True) == scores.null == 2.0


def test_scores_are_by_question() -> None:
    tokens = [tokens_of(list(range(size)), list(range(1, size + 1))) for size in (9, 2, 5)]
    windows: list[Any] = [window_places(each, 4, 2) for each in tokens]
    outputs = [logits_for(each, seed) for seed, each in enumerate(windows)]
    features = [
        Features(np.zeros(0, np.int32), np.zeros(0, np.uint8), 0, example=number, place=place)
        for number, places in enumerate(windows)
        for place in places
    ]

    found = list(all_span_scores([each for part in outputs for each in part], features, 3))

    assert len(found) == 3
    for logits, places, scores in zip(outputs, windows, found, strict=True):
        assert np.array_equal(scores.spans, span_scores(logits, places, 3).spans)
