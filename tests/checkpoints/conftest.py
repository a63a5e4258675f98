"""A tiny configuration and transformers' models of it, each with its files and its state."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

HEADS = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForMultipleChoice",
    "BertForQuestionAnswering",
    "BertForNextSentencePrediction",
)


@pytest.fixture(scope="session")
def config() -> BertConfig:
    return BertConfig(
        vocab_size=23,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )


@pytest.fixture(scope="session", params=HEADS)
def architecture(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def make_reference(config: BertConfig, reference: Callable[..., Any]) -> Callable[..., Any]:
    """transformers' model of a class, every parameter random (biases and LayerNorm too)."""
    return partial(reference, config)


@pytest.fixture(scope="session")
def saved(
    make_reference: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The directory to which transformers saves its model of a class."""

    def save(architecture: str, **options: Any) -> Path:
        directory = tmp_path_factory.mktemp(architecture)
        make_reference(architecture, **options).save_pretrained(directory)
        return directory

    return save


def equal_states(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a
    )


@pytest.fixture(scope="session")
def same_state() -> Callable[[dict[str, Tensor], dict[str, Tensor]], bool]:
    """Whether two state dicts have the same names, dtypes and bits."""
    return equal_states


@pytest.fixture(scope="session")
def save_classifier() -> Callable[..., ModelMetadata]:
    """Save a classifier with a vocabulary of ``config``'s size, in which ``word`` is the first."""

    def save(
        directory: Path,
        model: BertForSequenceClassification,
        *,
        word: str = "a",
        task: str = "classify",
        label_names: tuple[str, ...] | None = ("bad", "fair", "good"),
        problem_type: str | None = "single_label_classification",
    ) -> ModelMetadata:
        vocabulary = Vocabulary([*SPECIAL_TOKENS, word, *"bcdefghijklmnopqr"])
        return save_model_directory(
            directory,
            model_state=model.state_dict(),
            config=model.config,
            tokenizer=BertTokenizer(vocabulary, True),
            metadata=ModelMetadata(task=task, label_names=label_names, max_seq_length=16),
            architecture="BertForSequenceClassification",
            problem_type=problem_type,
        )

    return save
