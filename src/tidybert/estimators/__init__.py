"""BERT as scikit-learn knows estimators: texts in, fit, predict, score."""

from tidybert.estimators.choice_estimator import BertMultipleChoice
from tidybert.estimators.question_answerer import BertQuestionAnswerer
from tidybert.estimators.tagger import BertTagger
from tidybert.estimators.text_estimators import BertClassifier, BertRegressor
from tidybert.estimators.vectorizer import BertVectorizer

__all__ = [
    "BertClassifier",
    "BertMultipleChoice",
    "BertQuestionAnswerer",
    "BertRegressor",
    "BertTagger",
    "BertVectorizer",
]
