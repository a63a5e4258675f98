"""BertQuestionAnswerer: the span of a text that answers a question, as a scikit-learn estimator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tidybert.errors import DataError, DataWarning
from tidybert.estimators.base import Begun, BertEstimator
from tidybert.estimators.checked_inputs import is_missing, read_texts
from tidybert.estimators.keywords import QuestionParameters
from tidybert.files.reading import moved_spans
from tidybert.options import documented
from tidybert.system.terminal import warn_user
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_files import (
    GoldAnswers,
    QuestionExample,
    gold_answers,
)
from tidybert.tasks.task_options import QuestionOptions
from tidybert.training.interruption import as_in_python

_ANSWERS = (
    "expected the answer as its text, (text, start), a list of these, or an empty text where the "
    "question has no answer"
)


@documented(QuestionParameters)
@dataclass(eq=False, repr=False, kw_only=True)
class BertQuestionAnswerer(QuestionParameters, BertEstimator):
    """Answer questions by a span of a text, as in SQuAD 1.1 and 2.0.

    X are pairs (question, context), as a list or of shape (n, 2).  y has for each the answer's
    text, or (text, start) where the context has it more than once, or a list of such answers, or an
    object as SQuAD and datasets have it.  An empty text means that the context has no answer; a
    model that was trained on such questions gives "" where it finds none.  ``score`` is the mean F1
    of SQuAD.

    The parameters are those of BertClassifier without ``long``, ``pooling`` and ``class_weight``,
    and three more.  The model reads a context longer than ``max_seq_length`` in windows,
    ``doc_stride`` tokens apart.

    Args:
        max_query_length: tokens that a question is cut to.
        max_answer_length: tokens of the longest answer that is considered.
        null_score_diff_threshold: by how much "no answer" must score above the best answer; None
            fits it to the examples that are measured on, and is 0 without them.

    Attributes:
        model_: the BertForQuestionAnswering, in evaluation mode.
        task_, tokenizer_, result_, n_iter_, history_, validation_indices_: see BertClassifier.
    """

    max_seq_length: int = QuestionAnswering.default_max_seq_length

    _task_names = ("answer",)
    task_: QuestionAnswering = field(init=False)

    def _read(self, X: Any) -> list[tuple[str, ...]]:
        return _pairs(X)

    def _begin(self, read: Sequence[Any], y: Any, kept: npt.NDArray[np.int64]) -> Begun:
        every = _answered(read, y)
        examples = [every[place] for place in kept.tolist()]
        options = self._task_options(QuestionOptions)
        with as_in_python():
            task = QuestionAnswering.from_examples(examples, options)
        return Begun(task, examples, fitted={"n_features_in_": 2})

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The text of each answer, (n,) of str objects."""
        return np.array([each["answer"] for each in self.predict_answers(X)], dtype=object)

    def predict_answers(self, X: Any) -> list[dict[str, Any]]:
        """For each question its answer, its start and end in the context, its score and n_best.

        As ``tidybert predict`` prints them; "score" is the answer's probability.
        """
        check_is_fitted(self)
        answers = self._run([_example(*each) for each in enumerate(_pairs(X))])
        return [each.own() for each in answers.predictions()]

    def score(self, X: Any, y: Any) -> float:
        """The mean F1 of the answers, word by word, as SQuAD counts it."""
        check_is_fitted(self)
        return float(self._run(self._labelled(X, y)).metrics()["f1"])

    def _labelled(self, X: Any, y: Any, begun: Begun | None = None) -> list[QuestionExample]:
        return _answered(_pairs(X), y)

    def _restore(self, values: Mapping[str, Any]) -> None:
        for name in ("max_query_length", "max_answer_length"):
            setattr(self, name, getattr(self.task_, name))
        self.n_features_in_ = 2


def _pairs(X: Any) -> list[tuple[str, ...]]:
    pairs = read_texts(X)
    if len(pairs[0]) != 2:
        raise DataError(
            "X holds single texts: expected pairs (question, context), as a list or of shape (n, 2)"
        )
    return pairs


def _example(place: int, pair: Sequence[str], found: GoldAnswers | None = None) -> QuestionExample:
    answers, is_impossible = ((), None) if found is None else (found.answers, found.is_impossible)
    return QuestionExample(str(place), pair[0], pair[1], answers, is_impossible, place)


def _answered(pairs: Sequence[tuple[str, ...]], y: Any) -> list[QuestionExample]:
    """Examples with their answers; DataError where one cannot be taken."""
    given = list(y)
    if len(pairs) != len(given):
        raise DataError(f"X has {len(pairs)} questions and y has {len(given)} answers")
    examples = []
    moved: list[int] = []
    for place, (pair, value) in enumerate(zip(pairs, given, strict=True)):
        try:
            record = value if isinstance(value, Mapping) else {"answers": _listed(value)}
            found = gold_answers(_squad(record), pair[1])
        except DataError as error:
            raise DataError(f"y[{place}]: {error.message}; {_ANSWERS}") from None
        moved += found.moved
        examples.append(_example(place, pair, found))
    if moved:
        warn_user(f"y: {moved_spans(moved)}", DataWarning)
    return examples


def _listed(value: Any) -> list[Any]:
    """One answer or several as a list of them, as files have it."""
    if is_missing(value):
        raise DataError("the answer is missing (None or NaN)")
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, tuple) and len(value) == 2 and not isinstance(value[1], str):
        value = [value]
    if not isinstance(value, list | tuple | np.ndarray):
        raise DataError(f"the answer is {value!r:.40}, of type {type(value).__name__}")
    return [
        {"text": one[0], "answer_start": int(one[1])}
        if isinstance(one, tuple) and len(one) == 2
        else one
        for one in value
    ]


def _squad(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The lists {"text", "answer_start"} of datasets, which have no key of their own."""
    if "text" not in record:
        return record
    lists = {name: list(record[name]) for name in ("text", "answer_start") if name in record}
    return {"answers": lists}
