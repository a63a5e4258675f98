"""BertRegressor: fine-tuning to a score behind scikit-learn's interface."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from tidybert.estimators.checked_inputs import read_column, read_scores
from tidybert.estimators.text_estimator import TextEstimator, example_of
from tidybert.tasks.regression import Regression


class BertRegressor(RegressorMixin, TextEstimator):  # type: ignore[misc]
    """Predict a number from texts, or from pairs of texts, by least squares.

    Parameters and attributes are those of BertClassifier but for ``class_weight`` and ``classes_``;
    Pearson's correlation on the part held out chooses which weights to keep.
    """

    _task_names = ("regress",)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune ``model`` on texts X and finite numbers y; see BertClassifier.fit."""
        texts, kept, weights = self._read(X, y, sample_weight)
        scores = read_scores(read_column(y, len(texts))[kept])
        examples = [
            example_of(place, texts[place], repr(score))
            for place, score in zip(kept.tolist(), scores.tolist(), strict=True)
        ]
        return self._finetune(Regression(self._long_texts()), examples, weights)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The number predicted for each example, (n,)."""
        return self._outputs(X)[:, 0].astype(np.float64)
