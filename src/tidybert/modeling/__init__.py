"""Tensors: the encoder over rows of tokens, and the heads on it."""

from tidybert.modeling.bert import BertModel as BertModel
from tidybert.modeling.bert import BertModelOutput as BertModelOutput
from tidybert.modeling.heads import BertForMaskedLM as BertForMaskedLM
from tidybert.modeling.heads import BertForMultipleChoice as BertForMultipleChoice
from tidybert.modeling.heads import BertForNextSentencePrediction as BertForNextSentencePrediction
from tidybert.modeling.heads import BertForPreTraining as BertForPreTraining
from tidybert.modeling.heads import BertForPreTrainingOutput as BertForPreTrainingOutput
from tidybert.modeling.heads import BertForQuestionAnswering as BertForQuestionAnswering
from tidybert.modeling.heads import BertForSequenceClassification as BertForSequenceClassification
from tidybert.modeling.heads import BertForTokenClassification as BertForTokenClassification
from tidybert.modeling.heads import CausalLM as CausalLM
from tidybert.modeling.rows import Rows as Rows
