"""A MODEL directory: its files belong together, and each is read once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import HeadDescription, ModelDirectory
from tidybert.configuration import BertConfig
from tidybert.errors import (
    ConfigError,
    LimitError,
    ModelNotFoundError,
    VocabularyError,
    WeightsError,
)
from tidybert.modeling.bert import BertModel
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

Make = Callable[..., Any]
Save = Callable[..., Path]


def test_a_pickle_only_on_request(make_reference: Make, saved: Save, config: BertConfig) -> None:
    directory = saved("BertModel")
    (directory / "model.safetensors").unlink()
    torch.save(make_reference("BertModel").state_dict(), directory / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="allow_pickle=True"):
        ModelDirectory(directory).load_into(BertModel(config))
    assert ModelDirectory(directory, allow_pickle=True).load_into(BertModel(config)).new == ()


def test_a_swapped_vocabulary_is_refused(
    save_classifier: Callable[..., ModelMetadata], tmp_path: Path, config: BertConfig
) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    save_classifier(tmp_path, model)
    (tmp_path / "vocab.txt").write_text("[PAD]\nother\n")
    with pytest.raises(WeightsError, match=r"changed since the model was saved: vocab\.txt"):
        ModelDirectory(tmp_path).load_into(model)


def test_the_head_of_a_foreign_model(saved: Save) -> None:
    names = {0: "low", 1: "high"}
    directory = saved("BertForTokenClassification", id2label=names)
    assert ModelDirectory(directory).head == HeadDescription(
        ("BertForTokenClassification",), ("low", "high"), None
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id2label": ["a"]}, "id2label"),
        ({"id2label": {"0": "a", "2": "b"}}, "0 to 1"),
        ({"id2label": {"0": "a", "1": 3}}, "0 to 1"),
        ({"label2id": {"a": 1, "b": 0}}, "label2id"),
        ({"label2id": 3}, "label2id"),
        ({"num_labels": 5}, "num_labels"),
        ({"architectures": "BertModel"}, "architectures"),
        ({"id2label": {str(each): "a" for each in range(100_001)}}, "limit for labels"),
    ],
)
def test_a_head_that_contradicts_itself(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    values = {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}, "num_labels": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    assert ModelDirectory(tmp_path).head == HeadDescription((), ("a", "b"), None)
    path.write_text(json.dumps({**values, **changes}))
    with pytest.raises((ConfigError, LimitError), match=said):
        _ = ModelDirectory(tmp_path).head


def test_each_file_is_read_once(
    save_classifier: Callable[..., ModelMetadata],
    tmp_path: Path,
    config: BertConfig,
) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    sealed = save_classifier(tmp_path, model)
    directory = ModelDirectory(tmp_path)
    directory.load_into(model)
    read = directory.config, directory.metadata, directory.tokenizer, directory.head
    for path in tmp_path.iterdir():
        path.unlink()

    directory.verify()
    assert (directory.config, directory.metadata, directory.tokenizer, directory.head) == read
    assert (directory.config, directory.metadata) == (config, sealed)
    assert directory.head.label_names == ("bad", "fair", "good")


def test_a_vocabulary_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    vocabulary = Vocabulary([*SPECIAL_TOKENS, *(f"w{each}" for each in range(95))])
    vocabulary.save(tmp_path / "vocab.txt")
    sizes = BertConfig(vocab_size=1123, hidden_size=12).to_dict()
    path = tmp_path / "config.json"

    path.write_text(json.dumps(sizes))
    assert ModelDirectory(tmp_path).tokenizer.vocab_size == 100
    for vocab_size in (99, 1124):
        path.write_text(json.dumps({**sizes, "vocab_size": vocab_size}))
        with pytest.raises(VocabularyError, match=f"100 entries, config.json says {vocab_size}"):
            _ = ModelDirectory(tmp_path).tokenizer


def test_a_directory_of_other_things_is_named_with_what_it_has(tmp_path: Path) -> None:
    def said() -> str:
        with pytest.raises(ConfigError) as raised:
            _ = ModelDirectory.open(tmp_path).config
        return raised.value.message

    where = f"{tmp_path} is not a MODEL: it has"
    assert said().startswith(f"{where} no config.json; name a directory with config.json and")
    (tmp_path / "index.json").write_text("{}")
    assert said().startswith(f"{where} index.json, but no config.json; name")
    for name in "abc":
        (tmp_path / name).write_text("")
    assert said().startswith(f"{where} a, b, c and 1 more, but no config.json; name")


def test_a_size_has_no_directory() -> None:
    with pytest.raises(ModelNotFoundError, match="is a size with random weights"):
        ModelDirectory.open("mini")
