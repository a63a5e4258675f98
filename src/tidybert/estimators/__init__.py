"""BERT as scikit-learn knows estimators: texts in, fit, predict, score."""

from tidybert.estimators.tagger import BertTagger
from tidybert.estimators.text_estimators import BertClassifier, BertRegressor
from tidybert.estimators.vectorizer import BertVectorizer

__all__ = ["BertClassifier", "BertRegressor", "BertTagger", "BertVectorizer"]
