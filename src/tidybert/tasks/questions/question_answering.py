"""answer: which span of a text answers a question (SQuAD, paper 4.2 and 4.3; run_squad.py).

Every span of tokens is scored, over all windows of a text.  This follows write_predictions of
run_squad.py, with two differences.  All spans are looked at, and not only those between the best
starts and ends of each window.  A probability is a share of all answers that could be given, the
softmax over every span of the text and, where the model knows it, "no answer"; so it can be
compared between questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.example_kinds import QUESTION
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features
from tidybert.errors import DataError, UsageError, param
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.squad_scores import (
    QuestionScores,
    answer_scores,
    best_threshold,
    no_answer_metrics,
    squad_metrics,
)
from tidybert.tasks.answer import Answered, RankedSpan
from tidybert.tasks.answers import Answers, Indices, Judgement
from tidybert.tasks.questions.question_features import (
    ContextTokens,
    ContextWindow,
    add_answers,
    check_questions,
    question_features,
)
from tidybert.tasks.questions.question_files import QuestionExample, read_questions
from tidybert.tasks.targets import Explained, Target
from tidybert.tasks.task import Task, softmax_divergence, tensor_on
from tidybert.tasks.task_options import QuestionOptions
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    from torch import Tensor

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
    ) -> RankedAnswers:
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
    def of(cls, questions: Sequence[RankedAnswers], *, no_answers: bool) -> MeasuredAnswers:
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


# These fit the temperature well enough; each has thousands of possible answers.
CALIBRATION_QUESTIONS: Final = 500
NO_ANSWER: Final = "no answer"


class SpanAnswers(Answers["QuestionAnswering", QuestionExample]):
    """The best spans of each text, over all of its windows."""

    @cached_property
    def ranked(self) -> list[RankedAnswers]:
        """The best answers to each question; the scores of all spans are too many to be kept."""
        task = self.task
        return [
            RankedAnswers.of(
                example,
                scores,
                n_best_size=task.n_best_size,
                no_answers=task.no_answers,
                temperature=task.temperature,
            )
            for example, scores in self.scored()
        ]

    @cached_property
    def measured(self) -> MeasuredAnswers:
        """How right the best answer to each question is."""
        return MeasuredAnswers.of(self.ranked, no_answers=self.task.no_answers)

    def scored(self, step: int = 1) -> Iterator[tuple[QuestionExample, SpanScores]]:
        """Every ``step``-th question with the scores of all spans of its text."""
        length = self.task.max_answer_length
        scores = all_span_scores(self.outputs, self.features, length, step)
        return zip(self.examples[::step], scores, strict=True)

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        found = self.measured.metrics(self.task.threshold, chosen)
        if chosen is None:
            return found
        return {name: value for name, value in found.items() if isinstance(value, float)}

    def prediction(self, number: int) -> Answered:
        """The answer with its characters in the text, its probability, and the next best ones.

        "" without characters means no answer.  A model that has learned to give none adds
        "null_score", its probability, and "null_score_diff", which the threshold limits.
        """
        return self.ranked[number].prediction(self.task.threshold)

    def judgement(self, number: int) -> Judgement:
        """``correct`` is the F1 of the answer."""
        example, answer = self.examples[number], self.prediction(number)
        right = right_texts(example)
        ((_, f1),) = answer_scores([answer.answer], [right], no_answers=self.measured.no_answers)
        return Judgement(
            text=example.question,
            expected=" / ".join(dict.fromkeys(right)) or NO_ANSWER,
            predicted=answer.answer or NO_ANSWER,
            correct=float(f1),
            confidence=answer.score,
            expected_probability=self.ranked[number].probability_of_right,
            num_tokens=self.first_features[number].num_tokens,
            row=example.row,
            id=example.own_id,
        )


@dataclass(kw_only=True, eq=False)
class QuestionAnswering(Task[QuestionExample]):
    """Cross-entropy over the tokens that may begin and end the answer.

    Where several pairs of tokens have the answer's characters, their probabilities add up.
    """

    no_answers: bool = False
    """Whether the model has learned to leave questions without an answer."""
    doc_stride: int | None = None
    """Tokens from window to window over a long text; None as in ``windows_of``."""
    max_query_length: int = 64
    """Tokens that a question is cut to."""
    max_answer_length: int = 30
    """Tokens of the longest answer that is considered."""
    n_best_size: int = 20
    """Answers to give to each question."""
    null_score_diff_threshold: float | None = None
    """A question has no answer where [CLS] scores by more than this above the best answer; None is
    0 until ``calibrated`` fits it."""
    temperature: float = 1.0
    """Answers divide logits by this before the softmax."""

    name = "answer"
    inputs = QUESTION
    answer, answers_class = Answered, SpanAnswers
    architecture = "BertForQuestionAnswering"
    read = read_questions
    options_class = QuestionOptions
    unit = "token"
    head = "qa_outputs"
    meanings = meanings_of(QuestionScores)
    default_max_seq_length = 384

    def __post_init__(self) -> None:
        # An unsure model answers nothing at the threshold 0, so its F1 would not change.
        self.metric = "best_f1" if self.no_answers else "f1"
        self.correctness = "F1 of the answer"

    @property
    def truncation(self) -> str:
        return f"had their question cut to {param('max_query_length')}"

    @classmethod
    def from_texts(
        cls, texts: Sequence[Any], text_pairs: Sequence[Any] | None
    ) -> list[QuestionExample]:
        """Examples from questions and their texts, or from QuestionExamples, which have both."""
        if text_pairs is None:
            if all(isinstance(one, QuestionExample) for one in texts):
                return list(texts)
            raise DataError("only questions were given; give the text of each as a second list")
        pairs = enumerate(zip(texts, text_pairs, strict=True), start=1)
        return [QuestionExample(str(row), *pair, row=row) for row, pair in pairs]

    @classmethod
    def shown(cls, example: QuestionExample) -> Sequence[str]:
        return (example.question,)

    @classmethod
    def identity(cls, example: QuestionExample) -> str:
        """The text: questions on one text give hints to each other."""
        return example.context

    @classmethod
    def from_examples(
        cls, examples: Sequence[QuestionExample], options: QuestionOptions = QuestionOptions()
    ) -> Self:
        no_answers = any(not one.answers for one in examples)
        if options.null_score_diff_threshold is not None and not no_answers:
            raise UsageError(
                f"{param('null_score_diff_threshold')} has no meaning where every training "
                "question has an answer: leave it out, or train on questions without one too"
            )
        given = {name: getattr(options, name) for name in QuestionOptions.field_names()}
        given = {name: value for name, value in given.items() if value is not None}
        return cls(no_answers=no_answers, **given)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        """With the defaults for what tidybert.json does not say, as of another program's model."""
        given = metadata.settings
        return cls(**{each.name: given[each.name] for each in fields(cls) if each.name in given})

    def settings(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "null_score_diff_threshold": self.threshold}

    @property
    def threshold(self) -> float:
        """The null_score_diff_threshold in force."""
        given = self.null_score_diff_threshold
        return 0.0 if given is None else given

    def features(
        self, examples: Sequence[QuestionExample], tokenizer: BertTokenizer, max_seq_length: int
    ) -> list[Features]:
        return question_features(
            examples, tokenizer, max_seq_length, self.max_query_length, self.doc_stride
        )

    def examine(self, data: TrainingData[QuestionExample], report: DataReport) -> None:
        check_questions(report, data, self.max_query_length, self.max_answer_length)

    def add_labels(self, features: Sequence[Features], examples: Sequence[QuestionExample]) -> None:
        add_answers(features, examples)

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        pairs = [np.array(one.label).reshape(-1, 2) for one in batch.features]
        counts = np.array([len(each) for each in pairs])
        most = np.arange(counts.max(initial=1))
        # The last pair fills up, and does not count.
        filled = np.stack([each[np.minimum(most, len(each) - 1)] for each in pairs])
        rows, absent = (
            tensor_on(outputs.device, each) for each in (filled, most >= counts[:, None])
        )
        found = _padded(outputs, batch).log_softmax(1).gather(1, rows).sum(2)
        return -found.masked_fill(absent, float("-inf")).logsumexp(1) / 2

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        ours, theirs = (_padded(each, batch).transpose(1, 2) for each in (outputs, taught))
        return softmax_divergence(ours, theirs, temperature).mean(1)

    def target(self, asked: Explained) -> Target:
        """The sum of the start and end logits of the answer."""
        if asked.label is not None:
            raise UsageError(f"{param('target')}: a question's own answer is explained")
        values, encoding = asked.logits.float().numpy(), asked.encoding
        inside = np.array([side == 1 for side in encoding.sequence_ids])
        # Pairs of a start and an end that is not before it, both in the text.
        sums = values[:, None, 0] + values[None, :, 1]
        too_long = np.triu(np.ones_like(sums, dtype=bool), self.max_answer_length)
        allowed = np.triu(np.outer(inside, inside)) & ~too_long
        if not allowed.any():
            raise DataError("the text has no token that could be an answer")
        start, end = np.unravel_index(np.where(allowed, sums, -np.inf).argmax(), sums.shape)
        words = " ".join(encoding.tokens[start : end + 1]).replace(" ##", "")
        return Target(words, (int(start), int(end)), lambda each: each[:, 0, 0] + each[:, 1, 1])

    def calibrated(self, answers: SpanAnswers) -> Self:
        """Fits the temperature to the right answers, and the threshold to the best F1."""
        threshold = self.null_score_diff_threshold
        if threshold is None:
            threshold = answers.measured.fitted_threshold()
        step = -(-len(answers.examples) // CALIBRATION_QUESTIONS)
        temperature = fit_span_temperature(answers.scored(step), no_answers=self.no_answers)
        fitted = {"null_score_diff_threshold": threshold, "temperature": temperature}
        return type(self)(**{**self.settings(), **fitted})


def _padded(outputs: Tensor, batch: Batch) -> Tensor:
    """(B, S, 2) of outputs (T, 2), -inf past a window's end."""
    # The logits alone are padded, two numbers a token.
    rows = batch.rows
    begins = np.arange(rows.num_sequences) * rows.max_seqlen - np.cumsum([0, *rows.lengths[:-1]])
    cells = np.arange(rows.num_tokens) + np.repeat(begins, rows.lengths)
    padded = outputs.new_full((rows.num_sequences * rows.max_seqlen, 2), float("-inf"))
    padded = padded.index_copy(0, tensor_on(outputs.device, cells), outputs)
    return padded.view(rows.num_sequences, rows.max_seqlen, 2)
