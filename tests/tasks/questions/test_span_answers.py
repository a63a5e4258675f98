"""What is told of questions: answers, probabilities, thresholds, metrics."""

import json
from typing import Any

import numpy as np
import pytest

from tidybert.tasks.questions.question_features import ContextTokens
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.questions.span_answers import (
    MeasuredAnswers,
    RankedAnswers,
    SpanScores,
    fit_span_temperature,
)

CONTEXT = "Élan vital  is"
ELAN, VITAL, IS = (0, 4), (5, 10), (12, 14)


def scores_of(null: float = 0.0, **scores: float) -> SpanScores:
    """Of the three words; by name (elan, elan_vital, …) what is not -inf."""
    spans = np.full((3, 2), -np.inf)
    places = {"elan": (0, 0), "elan_vital": (0, 1), "vital": (1, 0), "vital_is": (1, 1)}
    for name, score in scores.items():
        spans[places[name]] = score
    starts, ends = np.array([ELAN, VITAL, IS], dtype=np.int32).T
    return SpanScores(ContextTokens(starts, ends), spans, null)


def example(*answers: tuple[str, int], name: str = "q") -> QuestionExample:
    return QuestionExample(name, "What?", CONTEXT, answers, None if answers else True)


def ranked(one: QuestionExample, scores: SpanScores, **given: Any) -> RankedAnswers:
    options = {"no_answers": False, "n_best_size": 2, "temperature": 1.0}
    return RankedAnswers.of(one, scores, **{**options, **given})


def predict(scores: SpanScores, threshold: float = 0.0, **given: Any) -> dict[str, Any]:
    answer = ranked(example(), scores, **given).prediction(threshold).as_dict()
    json.dumps(answer, allow_nan=False)
    return answer


def test_an_answer_is_a_slice_with_its_share_of_all_answers() -> None:
    scores = scores_of(elan=np.log(3), elan_vital=np.log(4), vital=np.log(1))

    assert predict(scores) == {
        "id": "q",
        "answer": "Élan vital",
        "start": 0,
        "end": 10,
        "score": pytest.approx(4 / 8),
        "n_best": [
            {"answer": "Élan vital", "start": 0, "end": 10, "score": pytest.approx(4 / 8)},
            {"answer": "Élan", "start": 0, "end": 4, "score": pytest.approx(3 / 8)},
        ],
    }
    # White space within is kept.
    assert predict(scores_of(vital_is=1.0))["answer"] == "vital  is"


def test_no_answer_is_one_answer_among_the_others_for_a_model_that_knows_it() -> None:
    scores = scores_of(elan=np.log(3), vital=np.log(1), null=np.log(4))

    answer = predict(scores, no_answers=True)

    assert (answer["answer"], answer["start"], answer["end"]) == ("", None, None)
    assert answer["score"] == answer["null_score"] == pytest.approx(4 / 8)
    assert answer["null_score_diff"] == pytest.approx(np.log(4 / 3))
    assert [each["score"] for each in answer["n_best"]] == pytest.approx([3 / 8, 1 / 8])
    bold = predict(scores, no_answers=True, threshold=0.5)
    assert (bold["answer"], bold["score"]) == ("Élan", pytest.approx(3 / 8))
    assert bold["null_score"] == pytest.approx(4 / 8)


def test_at_the_threshold_there_is_an_answer() -> None:
    scores = scores_of(elan=1.0, null=3.0)

    assert predict(scores, no_answers=True, threshold=2.0)["answer"] == "Élan"
    assert predict(scores, no_answers=True, threshold=1.999)["answer"] == ""


def test_a_temperature_flattens_probabilities_and_changes_no_answer() -> None:
    scores = scores_of(elan=2.0, vital=0.0, null=1.0)

    answer = predict(scores, temperature=2.0, no_answers=True)

    shares = np.exp([1.0, 0.0, 0.5]) / np.exp([1.0, 0.0, 0.5]).sum()
    assert answer["score"] == pytest.approx(shares[0])
    assert answer["null_score"] == pytest.approx(shares[2])
    assert answer["null_score_diff"] == -1.0


def test_a_text_without_tokens_is_left_without_an_answer() -> None:
    for no_answers in (False, True):
        answer = predict(scores_of(), no_answers=no_answers)
        assert (answer["answer"], answer["start"], answer["n_best"]) == ("", None, [])
    assert answer["score"] == answer["null_score"] == 1.0
    assert answer["null_score_diff"] is None
    best = ranked(example(), scores_of())
    assert (best.text, best.difference) == ("", np.inf)


def test_the_probability_of_what_is_right() -> None:
    scores = scores_of(elan=np.log(3), vital=np.log(1), null=np.log(4))

    def share(one: QuestionExample, no_answers: bool) -> float | None:
        return ranked(one, scores, no_answers=no_answers).probability_of_right

    assert share(example(("vital", 5), ("Élan", 0)), False) == pytest.approx(3 / 4)
    assert share(example(("vital", 5)), True) == pytest.approx(1 / 8)
    assert share(example(("Élan vital  is", 0)), False) == 0.0
    assert share(example(), True) == pytest.approx(4 / 8)
    assert share(example(), False) is None


def test_the_temperature_makes_right_answers_likeliest() -> None:
    # Right in three of four cases, and sure by a logit of 4: log(3) is as sure as it should be.
    right, wrong = example(("Élan", 0)), example(("vital", 5))
    scores = scores_of(elan=4.0, vital=0.0)
    questions = [(one, scores) for one in (right, right, right, wrong) * 500]

    temperature = fit_span_temperature(questions, no_answers=False)

    assert temperature == pytest.approx(4 / np.log(3), rel=0.03)
    # What cannot be given is left out.
    out_of_reach = (example(("Élan vital  is", 0)), scores)
    assert fit_span_temperature([*questions, out_of_reach], no_answers=False) == temperature
    assert fit_span_temperature([out_of_reach], no_answers=True) == 1.0
    assert fit_span_temperature([(example(), scores)], no_answers=False) == 1.0
    unanswered = [(example(), scores_of(elan=0.0, null=4.0))] * 1500
    answered = [(right, scores_of(elan=0.0, null=4.0))] * 500
    fitted = fit_span_temperature([*unanswered, *answered], no_answers=True)
    assert fitted == pytest.approx(4 / np.log(3), rel=0.03)


QUESTIONS = [
    ranked(example(("Élan", 0), name="a"), scores_of(elan=3.0, null=1.0), no_answers=True),
    ranked(example(("vital", 5), name="b"), scores_of(elan=3.0, null=2.5), no_answers=True),
    ranked(example(name="c"), scores_of(vital=2.0, null=2.2), no_answers=True),
    ranked(example(name="d"), scores_of(vital=2.0, null=1.8), no_answers=True),
]


def test_metrics_by_the_rules_of_1_1() -> None:
    measured = MeasuredAnswers.of(QUESTIONS[:2], no_answers=False)

    assert measured.metrics(0.0) == {"exact_match": 0.5, "f1": 0.5}
    assert measured.metrics(0.0, np.array([0, 0, 1, 0])) == {"exact_match": 0.75, "f1": 0.75}
    assert measured.fitted_threshold() is None


def test_metrics_by_the_rules_of_2_0() -> None:
    measured = MeasuredAnswers.of(QUESTIONS, no_answers=True)

    metrics = measured.metrics(0.0)
    # Differences are -2, -0.5, 0.2 and -0.2; only c is left without an answer.
    assert metrics["f1"] == pytest.approx(2 / 4)
    assert (metrics["has_ans_f1"], metrics["no_ans_f1"]) == (0.5, 0.5)
    assert metrics["best_f1"] == pytest.approx(3 / 4)
    assert metrics["best_f1_threshold"] == -2.0
    threshold = measured.fitted_threshold()
    assert threshold is not None
    assert threshold == pytest.approx(-1.25)
    assert measured.metrics(threshold)["f1"] == metrics["best_f1"]


def test_a_model_that_knows_no_empty_answer_is_measured_by_the_answers_it_gives() -> None:
    measured = MeasuredAnswers.of(QUESTIONS, no_answers=False)

    metrics = measured.metrics(0.0)
    assert metrics["f1"] == pytest.approx(1 / 4)
    assert metrics["no_ans_f1"] == 0.0
    assert "best_f1" not in metrics
    assert measured.fitted_threshold() is None


@pytest.mark.parametrize(
    ("questions", "absent"), [(QUESTIONS[:2], "no_ans"), (QUESTIONS[2:], "has_ans")]
)
def test_questions_of_a_kind_that_is_not_there_have_no_metrics(
    questions: list[Any], absent: str
) -> None:
    every = MeasuredAnswers.of(QUESTIONS, no_answers=True)
    metrics = MeasuredAnswers.of(questions, no_answers=True).metrics(0.0)

    assert set(every.metrics(0.0)) - set(metrics) == {
        f"{absent}_{name}" for name in ("exact", "f1", "total")
    }
    # Of all questions, a choice of one kind alone has the keys of both.
    assert set(every.metrics(0.0, np.array([0, 1]))) == set(every.metrics(0.0))
