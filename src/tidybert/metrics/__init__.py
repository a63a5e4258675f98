"""Scores of predictions against labels, in plain NumPy; equal to scikit-learn's and SciPy's."""

from tidybert.metrics.classification_scores import classification_metrics, confusion_matrix
from tidybert.metrics.confusion_table import confusion_table
from tidybert.metrics.regression_scores import regression_metrics

__all__ = ["classification_metrics", "confusion_matrix", "confusion_table", "regression_metrics"]
