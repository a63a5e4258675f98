"""The toy problem as files, for the commands."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def toy_file(tmp_path: Path, toy_examples: Callable[..., list[Any]]) -> Callable[..., Path]:
    """Writes labelled examples to a CSV file with the columns text and label."""

    def write(name: str, count: int, **options: Any) -> Path:
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "label"])
            rows.writerows([one.text, one.label] for one in toy_examples(count, **options))
        return path

    return write


@pytest.fixture(scope="session")
def masked_model(
    tmp_path_factory: pytest.TempPathFactory, tiny_config: Any, tiny_model: Path, reference: Any
) -> str:
    """A directory that transformers saved, with the heads of pre-training."""
    from tidybert.tokenization import BertTokenizer

    directory = tmp_path_factory.mktemp("models") / "pretrained"
    reference(tiny_config(), "BertForPreTraining").save_pretrained(directory)
    BertTokenizer.from_pretrained(tiny_model).save(directory)
    return str(directory)
