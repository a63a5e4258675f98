"""BertMultipleChoice: which of some texts continues or answers another, in scikit-learn's terms."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from tidybert.errors import DataError
from tidybert.estimators.base import Begun, BertEstimator
from tidybert.estimators.checked_inputs import RaggedRows
from tidybert.files.rows import Problem
from tidybert.tasks.multiple_choice import (
    ChoiceExample,
    ChosenAnswers,
    MultipleChoice,
    choice_example,
)

_ROWS = (
    "expected examples (context, [choice, choice, …]), or rows of a context and its choices, such "
    "as a DataFrame of these columns"
)


@dataclass(eq=False, repr=False, kw_only=True)
class BertMultipleChoice(BertEstimator):
    """Choose which of some texts continues or answers another, as in SWAG.

    X are examples (context, [choice, choice, …]), with two choices at least and as many as each
    has; or rows of a context and its choices, of shape (n, 1 + C).  y is the number of the right
    choice, from 0, or its text.  Predictions are numbers; ``score`` is the share that is right.

    The parameters are those of BertClassifier without ``long`` and ``class_weight``.

    Attributes:
        model_: the BertForMultipleChoice, in evaluation mode.
        task_, tokenizer_, result_, n_iter_, history_, validation_indices_: see BertClassifier.
    """

    _task_names = ("choose",)
    task_: MultipleChoice = field(init=False)

    def _read(self, X: Any) -> list[Any]:
        return _rows(X)

    def _begin(self, read: Sequence[Any], y: Any, kept: npt.NDArray[np.int64]) -> Begun:
        every = _choices(read, y)
        return Begun(MultipleChoice(), [every[place] for place in kept.tolist()])

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """(n,) the number of the likeliest choice of each example, from 0."""
        chosen = [each.argmax() for each in self._chosen(X).log_probabilities]
        return np.array(chosen, dtype=np.int64)

    def predict_proba(self, X: Any) -> RaggedRows[npt.NDArray[np.float64]]:
        """For each example (C,), the probabilities of its choices."""
        return RaggedRows([np.exp(each) for each in self._chosen(X).log_probabilities])

    def score(self, X: Any, y: Any) -> float:
        """The share of the examples whose right choice is chosen."""
        return float(self._measured(X, y).metrics()["accuracy"])

    def _chosen(self, X: Any) -> ChosenAnswers:
        check_is_fitted(self)
        answers = self._run(_choices(_rows(X)))
        assert isinstance(answers, ChosenAnswers)
        return answers

    def _labelled(self, X: Any, y: Any, begun: Begun | None = None) -> list[ChoiceExample]:
        return _choices(_rows(X), y)


def _rows(X: Any) -> list[Any]:
    rows = np.asarray(X).tolist() if hasattr(X, "columns") or isinstance(X, np.ndarray) else X
    if isinstance(rows, str) or not hasattr(rows, "__iter__"):
        raise DataError(f"X is {X!r:.40}, of type {type(X).__name__}: {_ROWS}")
    rows = list(rows)
    if not rows:
        raise DataError(f"X is empty: {_ROWS}")
    return rows


def _choices(rows: Sequence[Any], y: Any = None) -> list[ChoiceExample]:
    """Examples, with the right choices where ``y`` is given; DataError for other values."""
    answers: Sequence[Any] = [None] * len(rows) if y is None else list(y)
    if len(answers) != len(rows):
        raise DataError(f"X has {len(rows)} examples and y has {len(answers)}")
    examples = []
    for place, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        if not isinstance(row, list | tuple | np.ndarray) or len(row) < 2:
            raise DataError(f"X[{place}] is {row!r:.40}: {_ROWS}")
        context, *rest = row
        given = rest[0] if len(rest) == 1 and not isinstance(rest[0], str) else rest
        if isinstance(answer, np.generic):
            answer = answer.item()
        made = choice_example(place, context, "", list(given), answer, need_label=y is not None)
        if isinstance(made, Problem):
            raise DataError(f"X[{place}], y[{place}]: {made.message}; {_ROWS}")
        examples.append(made)
    return examples
