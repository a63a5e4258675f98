"""A tiny classifier over random ids, and a loop that trains it, for tests of the loop alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.modeling import BertForSequenceClassification
from tidybert.system.reporter import Reporter
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.loop import TrainingLoop
from tidybert.training.training_arguments import TrainingArguments


def weighted_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The sum of each example's cross-entropy times its weight."""
    logits = model(batch.rows, lower_states=batch.lower_states)
    labels = torch.tensor([one.label for one in batch.features], device=logits.device)
    weights = torch.tensor([one.weight for one in batch.features], device=logits.device)
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return (losses * weights).sum()


@pytest.fixture(scope="session")
def loss() -> Callable[[nn.Module, Batch], Tensor]:
    return weighted_loss


@pytest.fixture(scope="session")
def make_features() -> Callable[..., list[Features]]:
    """Makes ``count`` examples of 3 to 20 ids of a vocabulary of 24, with labels 0, 1, 2."""

    def make(count: int) -> list[Features]:
        random = np.random.default_rng(0)
        features = []
        for number in range(count):
            length = int(random.integers(3, 21))
            # Ids from 20 on are never used, as in a real vocabulary.
            ids = random.integers(0, 20, length, dtype=np.int32)
            types = (np.arange(length) >= length // 2).astype(np.uint8)
            features.append(Features(ids, types, length, label=number % 3, example=number))
        return features

    return make


@pytest.fixture(scope="session")
def make_model(tiny_config: Callable[..., BertConfig]) -> Callable[..., nn.Module]:
    """Makes the same classifier each time; ``dropout`` of 0 leaves nothing to chance."""

    def make(dropout: float = 0.1) -> nn.Module:
        torch.manual_seed(0)
        config = tiny_config(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        return BertForSequenceClassification(config, 3)

    return make


@pytest.fixture(scope="session")
def make_trainer(
    make_model: Callable[..., nn.Module], make_features: Callable[..., list[Features]]
) -> Callable[..., TrainingLoop]:
    """Makes a loop of fine-tuning; keywords are its own, ``dropout``, or training arguments."""

    def make(**given: Any) -> TrainingLoop:
        options = {name: given.pop(name) for name in ("evaluate", "metric") if name in given}
        of_run = {name: given.pop(name) for name in ("run", "identity") if name in given}
        called = {"report": "step", "report_metrics": "metrics", "note": "note"}
        reporter = {called[name]: given.pop(name) for name in called if name in given}
        model = given.pop("model", None) or make_model(given.pop("dropout", 0.1))
        features = given.pop("features", None) or make_features(26)
        loss = given.pop("loss", weighted_loss)
        arguments = TrainingArguments(
            **{"train_batch_size": 4, "num_train_epochs": 2, "learning_rate": 1e-3, **given}
        )
        told = Reporter(**reporter)
        tuning = FineTuning(
            model,
            features,
            loss,
            arguments,
            reporter=Reporter(note=told.tell, spell=str),
            **options,
        )
        return TrainingLoop(tuning, reporter=told, **of_run)

    return make


@pytest.fixture(scope="session")
def same_weights() -> Callable[[nn.Module, nn.Module], bool]:
    """Whether two models have the same weights, bit for bit."""

    def same(a: nn.Module, b: nn.Module) -> bool:
        left, right = a.state_dict(), b.state_dict()
        return left.keys() == right.keys() and all(
            torch.equal(left[name], right[name]) for name in left
        )

    return same
