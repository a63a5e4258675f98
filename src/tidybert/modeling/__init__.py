"""Tensors: the encoder over rows of tokens, and the heads on it."""

from tidybert.modeling.bert import BertModel, BertModelOutput
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.modeling.rows import Rows

__all__ = ["BertForSequenceClassification", "BertModel", "BertModelOutput", "Rows"]
