"""BERT, whole: rows of tokens, no padding, on PyTorch.

The public names are looked up when they are first used (PEP 562), so that ``import tidybert`` is
cheap and loads neither torch nor scikit-learn.
"""

import _signal  # type: ignore[import-not-found]
import sys

if sys.argv[:1] == ["-m"] and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # ``python -m tidybert`` loads what follows before __main__ can handle Ctrl-C: without this it
    # would show a traceback.  (The module signal itself takes ten milliseconds to load.)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from importlib import import_module
from typing import TYPE_CHECKING, Final

from tidybert.system.cores import prepare_threads

if TYPE_CHECKING:
    from tidybert.configuration import BertConfig
    from tidybert.estimators import (
        BertClassifier,
        BertMultipleChoice,
        BertQuestionAnswerer,
        BertRegressor,
        BertTagger,
        BertVectorizer,
    )
    from tidybert.explain import Explainer
    from tidybert.files.text_examples import TextExample
    from tidybert.finetuning.entrance import evaluate, finetune
    from tidybert.finetuning.finetuned_model import FinetunedModel
    from tidybert.inference.embedding import Embedder
    from tidybert.inference.language_model import TextGenerator, TextScorer
    from tidybert.inference.loading import load
    from tidybert.inference.predictor import Predictor
    from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor
    from tidybert.modeling import (
        BertForMaskedLM,
        BertForMultipleChoice,
        BertForNextSentencePrediction,
        BertForPreTraining,
        BertForQuestionAnswering,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertModel,
    )
    from tidybert.search.index import Index
    from tidybert.tasks.choices.choice_files import ChoiceExample
    from tidybert.tasks.labelled_examples import load_data
    from tidybert.tasks.questions.question_files import QuestionExample
    from tidybert.tasks.tags.tag_files import TaggedExample
    from tidybert.tokenization import BertTokenizer

    __version__: str

__all__ = [
    "BertClassifier",
    "BertConfig",
    "BertForMaskedLM",
    "BertForMultipleChoice",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
    "BertMultipleChoice",
    "BertQuestionAnswerer",
    "BertRegressor",
    "BertTagger",
    "BertTokenizer",
    "BertVectorizer",
    "ChoiceExample",
    "Embedder",
    "Explainer",
    "FinetunedModel",
    "Index",
    "MaskFiller",
    "NextSentencePredictor",
    "Predictor",
    "QuestionExample",
    "TaggedExample",
    "TextExample",
    "TextGenerator",
    "TextScorer",
    "__version__",
    "evaluate",
    "finetune",
    "load",
    "load_data",
]

_HEADS: Final = tuple(name for name in __all__ if name.startswith("BertFor"))
_ESTIMATORS: Final = (
    "BertClassifier",
    "BertMultipleChoice",
    "BertQuestionAnswerer",
    "BertRegressor",
    "BertTagger",
    "BertVectorizer",
)
_MODULE_OF: Final = {
    "BertConfig": "tidybert.configuration",
    "BertTokenizer": "tidybert.tokenization",
    **dict.fromkeys(("BertModel", *_HEADS), "tidybert.modeling"),
    "Explainer": "tidybert.explain",
    "Embedder": "tidybert.inference.embedding",
    **dict.fromkeys(("TextGenerator", "TextScorer"), "tidybert.inference.language_model"),
    "load": "tidybert.inference.loading",
    "Predictor": "tidybert.inference.predictor",
    **dict.fromkeys(
        ("MaskFiller", "NextSentencePredictor"), "tidybert.inference.pretraining_heads"
    ),
    **dict.fromkeys(_ESTIMATORS, "tidybert.estimators"),
    "FinetunedModel": "tidybert.finetuning.finetuned_model",
    **dict.fromkeys(("evaluate", "finetune"), "tidybert.finetuning.entrance"),
    "Index": "tidybert.search.index",
    "ChoiceExample": "tidybert.tasks.choices.choice_files",
    "QuestionExample": "tidybert.tasks.questions.question_files",
    "TaggedExample": "tidybert.tasks.tags.tag_files",
    "TextExample": "tidybert.files.text_examples",
    "load_data": "tidybert.tasks.labelled_examples",
}

prepare_threads()

if not TYPE_CHECKING:  # else a misspelt name would have a type

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = import_module("importlib.metadata").version("tidybert")
        elif name in _MODULE_OF:
            value = getattr(import_module(_MODULE_OF[name]), name)
        else:
            raise AttributeError(f"module 'tidybert' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
