"""Directories that transformers saved, with the heads of pre-training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.configuration import BertConfig
from tidybert.tokenization import BertTokenizer


@pytest.fixture(scope="session")
def pretrained(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
    reference: Callable[..., Any],
) -> Callable[[str], tuple[Path, Any]]:
    """Makes a directory that transformers saved, by class name, and its model, all random."""
    kept: dict[str, tuple[Path, Any]] = {}

    def make(name: str) -> tuple[Path, Any]:
        if name not in kept:
            directory = tmp_path_factory.mktemp(name)
            model = reference(tiny_config(), name)
            model.save_pretrained(directory)
            BertTokenizer.from_pretrained(tiny_model).save(directory)
            kept[name] = directory, model
        return kept[name]

    return make
