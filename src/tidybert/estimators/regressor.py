"""BertRegressor: numbers of texts and of pairs behind scikit-learn's interface."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from tidybert.estimators import checked_inputs as inputs
from tidybert.estimators.base import Begun
from tidybert.estimators.text_estimator import TextEstimator, example_of
from tidybert.files.text_examples import TextExample
from tidybert.tasks.regression import Regression


class BertRegressor(RegressorMixin, TextEstimator):  # type: ignore[misc]
    """Predict a number from texts, or from pairs of texts, by least squares.

    X are n texts or pairs, see BertClassifier, and y finite numbers.  Parameters and attributes are
    those of BertClassifier but for ``class_weight`` and ``classes_``; Pearson's correlation on the
    part held out chooses which weights to keep.
    """

    _task_names = ("regress",)

    def _begin(self, read: Sequence[Any], y: Any, kept: npt.NDArray[np.int64]) -> Begun:
        scores = inputs.read_scores(inputs.read_column(y, len(read))[kept])
        examples = [
            example_of(place, read[place], repr(score))
            for place, score in zip(kept.tolist(), scores.tolist(), strict=True)
        ]
        return Begun(Regression(self._long_texts()), examples)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The number predicted for each example, (n,)."""
        return self._outputs(X)[:, 0].astype(np.float64)

    def _labelled(self, X: Any, y: Any, begun: Begun | None = None) -> list[TextExample]:
        texts = self._texts(X, begun)
        scores = inputs.read_scores(inputs.read_column(y, len(texts)))
        return [
            example_of(at, text, repr(score))
            for at, (text, score) in enumerate(zip(texts, scores.tolist(), strict=True))
        ]
