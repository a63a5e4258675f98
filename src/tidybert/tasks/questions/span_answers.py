"""From the scores of spans to what is told of questions: answers, probabilities, and metrics.

A probability is a share of all answers that could be given, the softmax over every span of the text
and, where the model knows it, "no answer".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.metrics.calibration import fit_temperature_ragged
from tidybert.metrics.squad_scores import (
    answer_scores,
    best_threshold,
    no_answer_metrics,
    squad_metrics,
)
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.questions.span_scores import SpanScores

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MeasuredAnswers:
    """How right the best answer to each of B questions is, before a threshold takes some back.

    Args:
        scores: (B, 2) exact match and F1.
        has_answer: (B,) whether there is an answer.
        answered: (B,) whether there was a text to answer with.
        differences: (B,) by how much "no answer" scores above the answer; None where the model
            knows nothing of it.
        no_answers: whether the rules of SQuAD 2.0 hold.
    """

    scores: Floats
    has_answer: Bools
    answered: Bools
    differences: Floats | None
    no_answers: bool

    @classmethod
    def of(
        cls, questions: Iterable[tuple[QuestionExample, SpanScores]], *, no_answers: bool
    ) -> "MeasuredAnswers":
        """``no_answers`` is whether the model has learned to give none."""
        texts, differences, rights = [], [], []
        for example, scores in questions:
            text, difference = best_answer(example, scores)
            texts.append(text)
            differences.append(difference)
            rights.append(right_texts(example))
        has_answer = np.array([bool(right) for right in rights])
        by_rules_of_2_0 = no_answers or not has_answer.all()
        return cls(
            answer_scores(texts, rights, no_answers=by_rules_of_2_0),
            has_answer,
            np.array([bool(text) for text in texts]),
            np.array(differences) if no_answers else None,
            by_rules_of_2_0,
        )

    def metrics(self, threshold: float, chosen: Ints | None = None) -> dict[str, float]:
        """The metrics of all questions, or of a choice of them."""
        which = slice(None) if chosen is None else chosen
        if not self.no_answers:
            return squad_metrics(self.scores[which])
        found = no_answer_metrics(
            self.scores[which],
            self.has_answer[which],
            self.answered[which],
            None if self.differences is None else self.differences[which],
            threshold,
        )
        # Which keys there are must not depend on the choice.
        absent = "no_ans" if self.has_answer.all() else "" if self.has_answer.any() else "has_ans"
        return {key: value for key, value in found.items() if not absent or absent not in key}

    def fitted_threshold(self) -> float | None:
        """The threshold with the best F1; None where nothing tells one."""
        if self.differences is None or self.has_answer.all():
            return None
        f1 = self.scores[:, 1]
        return best_threshold(f1, self.has_answer, self.answered, self.differences).middle


def right_texts(example: QuestionExample) -> list[str]:
    """The texts of the right answers."""
    return [text for text, _ in example.answers]


def best_answer(example: QuestionExample, scores: SpanScores) -> tuple[str, float]:
    """The best answer's text, and by how much "no answer" scores above it.

    "" and inf where the text has no token.
    """
    tokens, values = scores.best(1)
    if not len(values):
        return "", np.inf
    start, end = scores.characters(*tokens[0])
    return example.context[start:end], scores.null - float(values[0])


def prediction(
    example: QuestionExample,
    scores: SpanScores,
    *,
    no_answers: bool,
    n_best_size: int,
    threshold: float,
    temperature: float,
) -> dict[str, Any]:
    """The answer to a question as ``tidybert predict`` prints it."""
    total = scores.log_total(temperature, with_null=no_answers)
    tokens, values = scores.best(n_best_size)
    n_best = []
    for (first, last), value in zip(tokens.tolist(), values.tolist(), strict=True):
        start, end = scores.characters(first, last)
        n_best.append(
            {
                "answer": example.context[start:end],
                "start": start,
                "end": end,
                "score": float(np.exp(value / temperature - total)),
            }
        )
    none: dict[str, Any] = {"answer": "", "start": None, "end": None, "score": 0.0}
    found = {"id": example.id, **(n_best[0] if n_best else none)}
    if no_answers:
        null_score = float(np.exp(scores.null / temperature - total))
        difference = scores.null - float(values[0]) if len(values) else None
        if difference is None or difference > threshold:
            found |= {**none, "score": null_score}
        found |= {"null_score": null_score, "null_score_diff": difference}
    return {**found, "n_best": n_best}


def probability_of_right(
    example: QuestionExample, scores: SpanScores, *, no_answers: bool, temperature: float
) -> float | None:
    """The probability of the likeliest right answer, or of none where that is right.

    None where the model knows nothing of no answer.
    """
    if not example.answers and not no_answers:
        return None
    right = [scores.score_of(*found) for found in _right_tokens(example, scores)]
    best = max(right, default=-np.inf) if example.answers else scores.null
    return float(np.exp(best / temperature - scores.log_total(temperature, with_null=no_answers)))


def fit_span_temperature(
    questions: Iterable[tuple[QuestionExample, SpanScores]], *, no_answers: bool
) -> float:
    """The temperature with which the first right answers are likeliest among all.

    Questions whose right answer cannot be given are left out; 1 where none is left.
    """
    logits, labels = [], []
    for example, one in questions:
        if example.answers:
            found = _right_tokens(example, one)[:1]
            value = one.score_of(*found[0]) if found else -np.inf
        else:
            value = one.null if no_answers else -np.inf
        if value > -np.inf:
            logits.append(one.candidates(with_null=no_answers))
            # Where another answer scores the same, it does as well.
            labels.append(int(np.argmax(logits[-1] == value)))
    return fit_temperature_ragged(logits, labels) if labels else 1.0


def _right_tokens(example: QuestionExample, scores: SpanScores) -> list[tuple[int, int]]:
    found = (scores.tokens.covering(start, start + len(text)) for text, start in example.answers)
    return [each for each in found if each is not None]
