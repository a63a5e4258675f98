"""SQuAD scores against literal cases, torchmetrics, and every threshold tried in turn."""

import json
import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.metrics.squad_scores import (
    answer_scores,
    best_threshold,
    no_answer_metrics,
    normalize_answer,
    squad_metrics,
)

QUICK = settings(max_examples=60, deadline=None)
# Articles, marks and spaces are what the rules are about.
words = st.sampled_from(
    ["the", "a", "An", "cat", "Cat,", "cats", "don't", "U.S.", "  ", "\t", "-", "é", "—", "theatre"]
)
texts = st.lists(words, max_size=6).map(" ".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat's  hat!", "cats hat"),
        ("a.an.the", "aanthe"),
        ("a an the", ""),
        (" An\tapple\n", "apple"),
        ("theatre of A.", "theatre of"),
        ("the-man", "theman"),
        ("“the” man", "“ ” man"),
        ("L'Été — 3%", "lété — 3"),
        (string.punctuation, ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


def test_literal_example() -> None:
    predictions = ["the Norman Conquest", "1066", "in the year 1066", "", "nothing like it"]
    answers = [["Norman conquest."], ["in 1066", "1066"], ["1066", "year of 1066"], ["x"], ["x y"]]

    scores = answer_scores(predictions, answers, no_answers=False)

    assert scores[:, 0].tolist() == [1, 1, 0, 0, 0]
    # in year 1066 beside year of 1066: two words of three on either side.
    assert scores[:, 1] == pytest.approx([1, 1, 2 / 3, 0, 0])
    metrics = squad_metrics(scores)
    assert metrics["exact_match"] == pytest.approx(0.4)
    assert metrics["f1"] == pytest.approx((2 + 2 / 3) / 5)


def test_repeated_words_count_as_often_as_they_stand_on_both_sides() -> None:
    ((_, f1),) = answer_scores(["to be or not to be"], [["to be to be to be"]], no_answers=False)

    assert f1 == pytest.approx(4 / 6)


# torchmetrics holds a right answer without a word to be like none, which is the rule of 2.0.
right_texts = texts.filter(normalize_answer)


@QUICK
@given(
    st.lists(
        st.tuples(texts, st.lists(right_texts, min_size=1, max_size=3)), min_size=1, max_size=8
    )
)
def test_equal_to_torchmetrics_by_the_rules_of_1_1(cases: list[tuple[str, list[str]]]) -> None:
    predictions = [prediction for prediction, _ in cases]
    answers = [right for _, right in cases]
    check_beside_torchmetrics(predictions, answers, answers, no_answers=False)


@QUICK
@given(st.lists(st.tuples(texts, st.lists(texts, max_size=3)), min_size=1, max_size=8))
def test_equal_to_torchmetrics_by_the_rules_of_2_0(cases: list[tuple[str, list[str]]]) -> None:
    predictions = [prediction for prediction, _ in cases]
    answers = [right for _, right in cases]
    # 2.0: right answers without a word do not count, and where there is none it is the empty text.
    left = [[text for text in right if normalize_answer(text)] or [""] for right in answers]
    check_beside_torchmetrics(predictions, answers, left, no_answers=True)


def check_beside_torchmetrics(
    predictions: list[str], ours: list[list[str]], theirs: list[list[str]], *, no_answers: bool
) -> None:
    from torchmetrics.functional.text import squad

    expected = squad(
        [{"id": str(n), "prediction_text": text} for n, text in enumerate(predictions)],
        [
            {"id": str(n), "answers": {"text": right, "answer_start": [0] * len(right)}}
            for n, right in enumerate(theirs)
        ],
    )
    metrics = squad_metrics(answer_scores(predictions, ours, no_answers=no_answers))
    # torchmetrics sums in float32.
    assert 100 * metrics["exact_match"] == pytest.approx(float(expected["exact_match"]), rel=1e-5)
    assert 100 * metrics["f1"] == pytest.approx(float(expected["f1"]), rel=1e-5)


@pytest.mark.parametrize(
    ("prediction", "right", "expected_1_1", "expected_2_0"),
    [
        # 2.0 drops a right answer without a word, and nothing is left of "the" but no answer.
        ("the", ["The"], (1, 0), (1, 1)),
        ("", ["the"], (1, 0), (1, 1)),
        ("cat", ["the"], (0, 0), (0, 0)),
        ("cat", ["the", "cat"], (1, 1), (1, 1)),
        ("", ["the", "cat"], (1, 0), (0, 0)),
        ("", ["cat"], (0, 0), (0, 0)),
    ],
)
def test_answers_without_a_word(
    prediction: str, right: list[str], expected_1_1: tuple[int, int], expected_2_0: tuple[int, int]
) -> None:
    (scores,) = answer_scores([prediction], [right], no_answers=False)
    assert tuple(scores) == expected_1_1
    (scores,) = answer_scores([prediction], [right], no_answers=True)
    assert tuple(scores) == expected_2_0


def test_no_answer_is_right_where_there_is_none() -> None:
    scores = answer_scores(["", "cat", "the"], [[], [], []], no_answers=True)

    assert scores.tolist() == [[1, 1], [0, 0], [1, 1]]
    with pytest.raises(ValueError, match="question 1 has no answer"):
        answer_scores(["", ""], [["x"], []], no_answers=False)


def worked_case() -> dict[str, Any]:
    """Six questions, the last two without an answer."""
    return {
        "scores": np.array([[1, 1], [0, 0.5], [1, 1], [0, 0], [0, 0], [0, 0]]),
        "has_answer": np.array([True] * 4 + [False] * 2),
        "answered": np.array([True] * 6),
        "differences": np.array([-5.0, -3.0, 1.0, 4.0, -4.0, 2.0]),
    }


def test_a_worked_example_of_2_0() -> None:
    metrics = no_answer_metrics(**worked_case(), threshold=0.0)

    json.dumps(metrics, allow_nan=False)
    # Answered: 0, 1 and 4; of the others the last alone has no answer.
    assert metrics["exact_match"] == pytest.approx(2 / 6)
    assert metrics["f1"] == pytest.approx(2.5 / 6)
    assert metrics["has_ans_exact"] == pytest.approx(1 / 4)
    assert metrics["has_ans_f1"] == pytest.approx(1.5 / 4)
    assert metrics["no_ans_exact"] == metrics["no_ans_f1"] == pytest.approx(1 / 2)
    assert (metrics["has_ans_total"], metrics["no_ans_total"]) == (4, 2)
    # In the order of the differences the score goes 2, 3, 2, 2.5, 3.5, 2.5, 2.5 of 6.
    assert metrics["best_f1"] == pytest.approx(3.5 / 6)
    assert metrics["best_f1_threshold"] == 1.0
    # And 2, 3, 2, 2, 3, 2, 2 by exact match: the lower threshold of the two.
    assert metrics["best_exact"] == pytest.approx(3 / 6)
    assert metrics["best_exact_threshold"] == -5.0


def test_a_question_at_the_threshold_is_answered() -> None:
    case = worked_case()

    assert no_answer_metrics(**case, threshold=1.0)["f1"] == pytest.approx(3.5 / 6)
    assert no_answer_metrics(**case, threshold=0.999)["f1"] == pytest.approx(2.5 / 6)


def test_without_differences_the_answers_stand() -> None:
    scores = np.array([[1.0, 1.0], [0.0, 0.5], [1.0, 1.0]])

    metrics = no_answer_metrics(scores, np.array([True, True, False]))

    assert (metrics["exact_match"], metrics["f1"]) == pytest.approx((2 / 3, 2.5 / 3))
    assert (metrics["has_ans_exact"], metrics["has_ans_f1"]) == (0.5, 0.75)
    assert (metrics["no_ans_exact"], metrics["no_ans_f1"]) == (1.0, 1.0)
    assert (metrics["has_ans_total"], metrics["no_ans_total"]) == (2, 1)
    only = no_answer_metrics(scores, np.array([True] * 3))
    assert (only["no_ans_f1"], only["no_ans_total"]) == (0.0, 0)


@st.composite
def answered_questions(draw: st.DrawFn) -> tuple[Any, Any, Any, Any]:
    size = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[Any]) -> Any:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    return (
        # Quarters and few differences: sums are exact, and ties are common.
        column(st.integers(0, 4)) / 4,
        column(st.booleans()),
        column(st.booleans()),
        column(st.integers(-4, 4)).astype(np.float64),
    )


@QUICK
@given(answered_questions())
def test_the_best_threshold_is_that_of_trying_them_all(case: tuple[Any, Any, Any, Any]) -> None:
    scores, has_answer, answered, differences = case
    # By the official rule a text is worth nothing where there is no answer.
    worth = np.where(has_answer, scores, (~answered).astype(float))

    def score_at(threshold: float) -> float:
        return float(np.where(differences > threshold, ~has_answer, worth).mean())

    best = best_threshold(scores, has_answer, answered, differences)

    tried = [-np.inf, *differences]
    assert best.score == pytest.approx(max(map(score_at, tried)))
    assert best.lower == min(t for t in tried if score_at(t) == max(map(score_at, tried)))
    for threshold in (best.official, best.middle):
        assert score_at(threshold) == pytest.approx(best.score)
        assert best.lower <= threshold < best.upper
    if np.isfinite(best.lower):
        assert best.official == best.lower


def test_where_no_question_is_answered_the_threshold_is_0_as_in_the_official_script() -> None:
    none = np.array([False, False])

    best = best_threshold(np.zeros(2), none, ~none, np.array([0.5, 3.0]))
    assert (best.score, best.lower, best.official) == (1.0, -np.inf, 0.0)
    best = best_threshold(np.zeros(2), none, ~none, np.array([-2.0, 3.0]))
    assert (best.official, best.middle) == (-3.0, -3.0)
