"""Scores of predictions against labels, in plain NumPy; equal to scikit-learn's and SciPy's."""

from tidybert.metrics.text_scores import (
    classification_metrics,
    confusion_matrix,
    confusion_table,
    regression_metrics,
)

__all__ = ["classification_metrics", "confusion_matrix", "confusion_table", "regression_metrics"]
