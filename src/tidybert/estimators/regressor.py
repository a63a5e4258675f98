"""BertRegressor: fine-tuning to a score behind scikit-learn's interface."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from tidybert.estimators.base import BertEstimator
from tidybert.estimators.inputs import read_scores
from tidybert.tasks.regression import Regression


class BertRegressor(RegressorMixin, BertEstimator):  # type: ignore[misc]
    """Predict a number from texts, or from pairs of texts, by least squares.

    Parameters and attributes are those of BertClassifier but for ``class_weight`` and ``classes_``;
    Pearson's correlation on the part held out chooses the weights that are kept.
    """

    _task_name = "regress"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune ``model`` on texts X and finite numbers y; see BertClassifier.fit."""
        texts, column, weights = self._read(X, y, sample_weight)
        scores = read_scores(column)
        return self._finetune(
            Regression(), texts, [repr(each) for each in scores.tolist()], weights
        )

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The number predicted for each example, (n,)."""
        return self._outputs(X)[:, 0].astype(np.float64)
