"""BERT, whole: rows of tokens, no padding, on PyTorch."""

from tidybert.configuration import BertConfig as BertConfig
from tidybert.estimators import BertClassifier as BertClassifier
from tidybert.estimators import BertMultipleChoice as BertMultipleChoice
from tidybert.estimators import BertQuestionAnswerer as BertQuestionAnswerer
from tidybert.estimators import BertRegressor as BertRegressor
from tidybert.estimators import BertTagger as BertTagger
from tidybert.estimators import BertVectorizer as BertVectorizer
from tidybert.explain import Explainer as Explainer
from tidybert.files.text_examples import TextExample as TextExample
from tidybert.finetuning.api import evaluate as evaluate
from tidybert.finetuning.api import finetune as finetune
from tidybert.finetuning.finetuned_model import FinetunedModel as FinetunedModel
from tidybert.inference.embedding import Embedder as Embedder
from tidybert.inference.language_model import TextGenerator as TextGenerator
from tidybert.inference.language_model import TextScorer as TextScorer
from tidybert.inference.loading import load as load
from tidybert.inference.predictor import Predictor as Predictor
from tidybert.inference.pretraining_heads import MaskFiller as MaskFiller
from tidybert.inference.pretraining_heads import NextSentencePredictor as NextSentencePredictor
from tidybert.inference.zero_shot import zero_shot as zero_shot
from tidybert.modeling import BertForMaskedLM as BertForMaskedLM
from tidybert.modeling import BertForMultipleChoice as BertForMultipleChoice
from tidybert.modeling import BertForNextSentencePrediction as BertForNextSentencePrediction
from tidybert.modeling import BertForPreTraining as BertForPreTraining
from tidybert.modeling import BertForQuestionAnswering as BertForQuestionAnswering
from tidybert.modeling import BertForSequenceClassification as BertForSequenceClassification
from tidybert.modeling import BertForTokenClassification as BertForTokenClassification
from tidybert.modeling import BertModel as BertModel
from tidybert.search.index import Index as Index
from tidybert.tasks.multiple_choice import ChoiceExample as ChoiceExample
from tidybert.tasks.labelled_examples import load_data as load_data
from tidybert.tasks.questions.question_files import QuestionExample as QuestionExample
from tidybert.tasks.tags.tag_files import TaggedExample as TaggedExample
from tidybert.tokenization import BertTokenizer as BertTokenizer
from tidybert.unlabelled.topics import keywords as keywords
from tidybert.unlabelled.topics import topics as topics

__version__: str
