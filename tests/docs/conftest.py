"""Pages run as after a plain install, which has no minilm.

A tiny model under the name of tidybert-small is for blocks that only have to run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert import catalog
from tidybert.configuration import BertConfig

WriteModel = Callable[[Path, Callable[[BertConfig], Any]], None]


@pytest.fixture(scope="session")
def write_model(tiny_config: Callable[..., BertConfig]) -> WriteModel:
    """Writes a MODEL with random weights that knows letters and the pages' words for [MASK]."""
    import torch

    from tidybert.checkpoints.tensor_files import write_tensors
    from tidybert.checkpoints.weights import to_huggingface
    from tidybert.tokenization import BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [
        *special,
        *letters,
        *(f"##{letter}" for letter in letters),
        "capital",
        "heart",
        "states",
    ]
    sizes = {"vocab_size": len(words), "max_position_embeddings": 512, "num_hidden_layers": 4}

    def write(directory: Path, build: Callable[[BertConfig], Any]) -> None:
        directory.mkdir()
        torch.manual_seed(0)
        config = tiny_config(**sizes)
        write_tensors(directory, to_huggingface(build(config).state_dict(), config))
        (directory / "config.json").write_text(json.dumps(config.to_dict()))
        BertTokenizer(words).save(directory)

    return write


@pytest.fixture(scope="session")
def small_weights(tmp_path_factory: pytest.TempPathFactory, write_model: WriteModel) -> Path:
    """A tiny model of sentence vectors, with pre-training's heads, 512 positions and few words."""
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.sentence_form import SentenceForm, write_sentence_form
    from tidybert.modeling import BertForPreTraining

    directory = tmp_path_factory.mktemp("models") / "small"
    write_model(directory, BertForPreTraining)
    width = ModelDirectory(directory).config.hidden_size
    write_sentence_form(directory, SentenceForm(normalize=True), width)
    return directory


@pytest.fixture
def small_weights_for_all(
    small_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool], None]:
    """Says whether ``tidybert-small`` is the tiny model from now on; no other is installed."""
    find = catalog.PretrainedPackage.find

    def choose(is_small: bool) -> None:
        def find_here(package: catalog.PretrainedPackage) -> Path | None:
            if not package.is_part_of_tidybert:
                return None
            return small_weights if is_small else find(package)

        monkeypatch.setattr(catalog.PretrainedPackage, "find", find_here)

    return choose
