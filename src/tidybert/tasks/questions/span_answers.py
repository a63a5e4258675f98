"""From start and end logits to answers, probabilities and metrics.

Every span of tokens is scored, over all windows of a text.  This follows write_predictions of
run_squad.py (paper 4.2 and 4.3), with two differences.  All spans are looked at, and not only those
between the best starts and ends of each window.  A probability is a share of all answers that could
be given, the softmax over every span of the text and, where the model knows it, "no answer"; so it
can be compared between questions.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.squad_scores import (
    answer_scores,
    best_threshold,
    no_answer_metrics,
    squad_metrics,
)
from tidybert.tasks.answer import Answered, RankedSpan
from tidybert.tasks.questions.question_features import ContextTokens, ContextWindow
from tidybert.tasks.questions.question_files import QuestionExample

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SpanScores:
    """The scores of all answers to one question.

    Args:
        tokens: those of the text, n in number.
        spans: (n, L) the sum of start and end logit of the answer from token i to token i + l; -inf
            where there is no answer: past the end of its window, or where other tokens with the
            same characters score higher.
        null: the score of "no answer": of [CLS] in the window that has most against it.
    """

    tokens: ContextTokens
    spans: Floats
    null: float

    def best(self, count: int) -> tuple[Ints, Floats]:
        """(k, 2) first and last token and (k,) score of at most ``count`` answers, the best first.

        Among equal scores the answer that begins first, then ends first, is the better.
        """
        flat = self.spans.reshape(-1)
        chosen = np.arange(flat.size)
        if flat.size > count:
            least = np.partition(flat, -count)[-count]
            chosen = np.flatnonzero(flat >= least)
        chosen = chosen[flat[chosen] > -np.inf]
        first, length = np.divmod(chosen, self.spans.shape[1])
        places = self.tokens.ends[first + length], self.tokens.starts[first], -flat[chosen]
        order = np.lexsort(places)[:count]
        first, length = first[order], length[order]
        return np.stack([first, first + length], axis=1), flat[chosen[order]]

    def candidates(self, *, with_null: bool) -> Floats:
        """(C,) the scores of all answers, then that of none."""
        found = self.spans[self.spans > -np.inf]
        return np.append(found, self.null) if with_null else found

    def log_total(self, temperature: float, *, with_null: bool) -> float:
        """The logarithm of the sum of exp(score / temperature) over all answers."""
        scaled = self.candidates(with_null=with_null) / temperature
        if not len(scaled):
            return -np.inf
        highest = scaled.max()
        return float(highest + np.log(np.exp(scaled - highest).sum()))

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Where in the text the answer between two tokens begins and ends."""
        return int(self.tokens.starts[first]), int(self.tokens.ends[last])

    def score_of(self, first: int, last: int) -> float:
        """The score of the answer between two tokens; -inf where it cannot be given."""
        found = self.tokens.pairs(first, last)
        lengths = found[:, 1] - found[:, 0]
        found, lengths = (each[lengths < self.spans.shape[1]] for each in (found, lengths))
        return float(self.spans[found[:, 0], lengths].max(initial=-np.inf))


def span_scores(
    outputs: Sequence[npt.NDArray[np.float32]],
    windows: Sequence[ContextWindow],
    max_answer_length: int,
) -> SpanScores:
    """The scores of one question's answers, of at most ``max_answer_length`` tokens.

    outputs: for each window the logits (rows, 2), start and end.  A span is scored in the window
    that has most context for its first token, so that it counts once.
    """
    tokens = windows[0].tokens
    # No window is longer than the first.
    length = max(1, min(max_answer_length, windows[0].end))
    spans = np.full((len(tokens.starts), length), -np.inf)
    for logits, window in zip(outputs, windows, strict=True):
        size = window.end - window.begin
        rows = logits[window.first_row : window.first_row + size].astype(np.float64)
        ends = np.full(size + length, -np.inf)
        ends[:size] = rows[:, 1]
        following = np.lib.stride_tricks.sliding_window_view(ends, length)
        chosen = np.flatnonzero(window.owned)
        spans[window.begin + chosen] = rows[chosen, :1] + following[chosen]
    null = min(float(logits[0].astype(np.float64).sum()) for logits in outputs)
    _keep_best(spans, tokens)
    return SpanScores(tokens, spans, null)


def _keep_best(spans: Floats, tokens: ContextTokens) -> None:
    """Of cells with the same characters leave the best its score, and give the others -inf."""
    begins, ends = (
        counts[number] > 1
        for each in (tokens.starts, tokens.ends)
        for _, number, counts in [np.unique(each, return_inverse=True, return_counts=True)]
    )
    if not (begins.any() or ends.any()):
        return
    padded = np.append(ends, np.zeros(spans.shape[1] - 1, dtype=np.bool_))
    shared = np.lib.stride_tricks.sliding_window_view(padded, spans.shape[1]) | begins[:, None]
    first, length = np.nonzero(shared & (spans > -np.inf))
    places = np.stack([tokens.starts[first], tokens.ends[first + length]])
    order = np.lexsort((-spans[first, length], *places))
    is_worse = (np.diff(places[:, order]) == 0).all(0)
    worse = order[1:][is_worse]
    spans[first[worse], length[worse]] = -np.inf


def all_span_scores(
    outputs: Sequence[npt.NDArray[np.float32]],
    features: Sequence[Features],
    max_answer_length: int,
    step: int = 1,
) -> Iterator[SpanScores]:
    """``span_scores`` of every ``step``-th question in turn; its windows follow each other."""
    pairs = zip(outputs, features, strict=True)
    for number, (_, group) in enumerate(groupby(pairs, key=lambda pair: pair[1].example)):
        if number % step == 0:
            logits, windows = zip(*group, strict=True)
            yield span_scores(logits, [one.place for one in windows], max_answer_length)


@dataclass(frozen=True, slots=True)
class RankedAnswers:
    """The best answers to one question, with their scores.

    Args:
        example: the question.
        spans: the characters of the k best answers in the text, the best first.
        scores: (k,) of each.
        probabilities: (k,) of each.
        null_score: the score of "no answer".
        null_probability: its probability; None where the model knows nothing of it.
        probability_of_right: that of the likeliest right answer, or of none where that is right;
            None where none is right and the model knows nothing of it.
    """

    example: QuestionExample
    spans: list[tuple[int, int]]
    scores: Floats
    probabilities: list[float]
    null_score: float
    null_probability: float | None
    probability_of_right: float | None

    @classmethod
    def of(
        cls,
        example: QuestionExample,
        scores: SpanScores,
        *,
        n_best_size: int,
        no_answers: bool,
        temperature: float,
    ) -> "RankedAnswers":
        """The ``n_best_size`` best; ``no_answers`` is whether the model may give none."""
        total = scores.log_total(temperature, with_null=no_answers)

        def probability(score: float) -> float:
            return float(np.exp(score / temperature - total))

        tokens, values = scores.best(n_best_size)
        right = None
        if example.answers:
            found = [scores.score_of(*each) for each in _right_tokens(example, scores)]
            right = probability(max(found, default=-np.inf))
        elif no_answers:
            right = probability(scores.null)
        return cls(
            example,
            [scores.characters(*each) for each in tokens.tolist()],
            values,
            [probability(score) for score in values.tolist()],
            scores.null,
            probability(scores.null) if no_answers else None,
            right,
        )

    @property
    def text(self) -> str:
        """The best answer; "" where the text has no token."""
        return self.example.context[slice(*self.spans[0])] if self.spans else ""

    @property
    def difference(self) -> float:
        """By how much "no answer" scores above the best answer; inf where the text has no token."""
        return self.null_score - float(self.scores[0]) if self.spans else np.inf

    def prediction(self, threshold: float) -> Answered:
        """It is empty where "no answer" scores more than ``threshold`` above the best one."""
        context, null = self.example.context, self.null_probability
        n_best = [
            RankedSpan(answer=context[start:end], start=start, end=end, score=score)
            for (start, end), score in zip(self.spans, self.probabilities, strict=True)
        ]
        is_null = null is not None and self.difference > threshold
        given: dict[str, Any] = {"answer": "", "start": None, "end": None, "score": null or 0.0}
        if n_best and not is_null:
            given = {**n_best[0]}
        if null is not None:
            given["null_score"] = null
            given["null_score_diff"] = self.difference if n_best else None
        return Answered(self.example.id, n_best=n_best, **given)


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
    def of(cls, questions: Sequence[RankedAnswers], *, no_answers: bool) -> "MeasuredAnswers":
        """``no_answers`` is whether the model has learned to give none."""
        texts = [one.text for one in questions]
        rights = [right_texts(one.example) for one in questions]
        has_answer = np.array([bool(right) for right in rights])
        by_rules_of_2_0 = no_answers or not has_answer.all()
        return cls(
            answer_scores(texts, rights, no_answers=by_rules_of_2_0),
            has_answer,
            np.array([bool(text) for text in texts]),
            np.array([one.difference for one in questions]) if no_answers else None,
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
        # Every choice of examples must have the same keys.
        absent = "no_ans" if self.has_answer.all() else "" if self.has_answer.any() else "has_ans"
        return {key: value for key, value in found.items() if not absent or absent not in key}

    def fitted_threshold(self) -> float | None:
        """The threshold with the best F1; None where the questions cannot fit one."""
        if self.differences is None or self.has_answer.all():
            return None
        f1 = self.scores[:, 1]
        return best_threshold(f1, self.has_answer, self.answered, self.differences).middle


def right_texts(example: QuestionExample) -> list[str]:
    """The texts of the right answers."""
    return [text for text, _ in example.answers]


def fit_span_temperature(
    questions: Iterable[tuple[QuestionExample, SpanScores]], *, no_answers: bool
) -> float:
    """The temperature with which the first right answers are likeliest among all.

    It skips questions whose right answer the model cannot give; 1 where no other is left.
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
    return fit_temperature(logits, labels) if labels else 1.0


def _right_tokens(example: QuestionExample, scores: SpanScores) -> list[tuple[int, int]]:
    found = (scores.tokens.covering(start, start + len(text)) for text, start in example.answers)
    return [each for each in found if each is not None]
