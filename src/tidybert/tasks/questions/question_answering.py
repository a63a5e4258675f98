"""answer: which span of a text answers a question (SQuAD, paper 4.2 and 4.3; run_squad.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from tidybert.checkpoints.example_kinds import QUESTION
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features
from tidybert.errors import DataError, UsageError, param
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.squad_scores import QuestionScores, answer_scores
from tidybert.tasks.answer import Answered
from tidybert.tasks.answers import Answers, Indices, Judgement, only_numbers
from tidybert.tasks.questions.question_features import (
    add_answers,
    check_questions,
    question_features,
)
from tidybert.tasks.questions.question_files import QuestionExample, read_questions
from tidybert.tasks.questions.span_answers import (
    MeasuredAnswers,
    RankedAnswers,
    SpanScores,
    all_span_scores,
    fit_span_temperature,
    right_texts,
)
from tidybert.tasks.targets import Explained, Target
from tidybert.tasks.task import Task, softmax_divergence, tensor_on
from tidybert.tasks.task_options import QuestionOptions
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    from torch import Tensor

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
        return found if chosen is None else only_numbers(found)

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
