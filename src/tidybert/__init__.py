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
from typing import Final

from tidybert.system.cores import prepare_threads

_NAMES: Final = {
    "tidybert.configuration": ("BertConfig",),
    "tidybert.estimators": (
        "BertClassifier",
        "BertMultipleChoice",
        "BertQuestionAnswerer",
        "BertRegressor",
        "BertTagger",
        "BertVectorizer",
    ),
    "tidybert.explain": ("Explainer",),
    "tidybert.files.text_examples": ("TextExample",),
    "tidybert.finetuning.api": ("evaluate", "finetune"),
    "tidybert.finetuning.finetuned_model": ("FinetunedModel",),
    "tidybert.inference.embedding": ("Embedder",),
    "tidybert.inference.language_model": ("TextGenerator", "TextScorer"),
    "tidybert.inference.loading": ("load",),
    "tidybert.inference.predictor": ("Predictor",),
    "tidybert.inference.pretraining_heads": ("MaskFiller", "NextSentencePredictor"),
    "tidybert.inference.zero_shot": ("zero_shot",),
    "tidybert.modeling": (
        "BertForMaskedLM",
        "BertForMultipleChoice",
        "BertForNextSentencePrediction",
        "BertForPreTraining",
        "BertForQuestionAnswering",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "BertModel",
    ),
    "tidybert.search.index": ("Index",),
    "tidybert.tasks.multiple_choice": ("ChoiceExample",),
    "tidybert.tasks.labelled_examples": ("load_data",),
    "tidybert.tasks.questions.question_files": ("QuestionExample",),
    "tidybert.tasks.tags.tag_files": ("TaggedExample",),
    "tidybert.tokenization": ("BertTokenizer",),
    "tidybert.unlabelled.topics": ("keywords", "topics"),
}
"""The public names by module; ``python tests/test_public_names.py`` writes __init__.pyi from it."""
_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_MODULE_OF, "__version__"])

prepare_threads()


def __getattr__(name: str) -> object:
    if name == "__version__":
        value = import_module("tidybert.system.version").installed_version()
    elif name in _MODULE_OF:
        try:
            value = getattr(import_module(_MODULE_OF[name]), name)
        except ModuleNotFoundError as error:
            from tidybert.errors import missing_package

            raise missing_package(error) or error from None
    else:
        raise AttributeError(f"module 'tidybert' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
