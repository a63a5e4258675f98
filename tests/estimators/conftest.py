"""Quick estimators of the tiny model, and the toy problem as scikit-learn's X and y."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.estimators import BertClassifier, BertRegressor

Data = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture(scope="session")
def quick(tiny_model: Path) -> dict[str, Any]:
    """Parameters of a fit that takes a blink, and learns little."""
    return {
        "model": tiny_model,
        "max_seq_length": 32,
        "learning_rate": 1e-2,
        "train_batch_size": 16,
        "num_train_epochs": 2,
        "head_start": "random",
    }


@pytest.fixture(scope="session")
def thorough(quick: dict[str, Any]) -> dict[str, Any]:
    """Parameters with which the tiny model learns the toy problems."""
    return {**quick, "num_train_epochs": 15}


@pytest.fixture(scope="session")
def toy(toy_examples: Any) -> Data:
    """Texts and their labels, "animal" and "colour" in turn."""

    def build(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
        examples = toy_examples(count, seed)
        return [one.text for one in examples], [one.label for one in examples]

    return build


@pytest.fixture(scope="session")
def classifier(thorough: dict[str, Any], toy: Data) -> BertClassifier:
    """A classifier fitted on the toy problem; not to be changed."""
    return BertClassifier(**thorough).fit(*toy(96))


@pytest.fixture(scope="session")
def regressor(thorough: dict[str, Any], toy_examples: Any) -> BertRegressor:
    """A regressor fitted on the number of colours; not to be changed."""
    examples = toy_examples(96, scores=True)
    return BertRegressor(**thorough).fit(
        [one.text for one in examples], [float(one.label) for one in examples]
    )
