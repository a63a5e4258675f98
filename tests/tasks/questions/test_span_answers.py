"""What is told of questions: answers, probabilities, thresholds, metrics."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.data.features import Features
from tidybert.data.long_texts import most_context, windows_of
from tidybert.tasks.questions.question_answering import (
    MeasuredAnswers,
    RankedAnswers,
    SpanScores,
    all_span_scores,
    fit_span_temperature,
    span_scores,
)
from tidybert.tasks.questions.question_features import ContextTokens, ContextWindow
from tidybert.tasks.questions.question_files import QuestionExample

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
