"""Scores of predictions against labels; plain NumPy, equal to scikit-learn and SciPy."""

from tidybert.metrics.classification_scores import (
    classification_metrics,
    confusion_matrix,
    confusion_table,
)
from tidybert.metrics.regression_scores import regression_metrics

__all__ = [
    "classification_metrics",
    "confusion_matrix",
    "confusion_table",
    "regression_metrics",
]
