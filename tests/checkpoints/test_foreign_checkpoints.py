"""Checkpoints as other programs leave them: prefixes, wrappers, and keys of their own."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.cli import main as shell
from tidybert.errors import ConfigError, WeightsError
from tidybert.modeling import BertForSequenceClassification, BertModel, Rows

# What configurations of published BERTs have beside the encoder's sizes.
KEYS: list[dict[str, Any]] = [
    {"language": "german", "name": "Bert"},
    {"max_seq_length": 384, "doc_stride": 128},
    {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
    {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    {"gradient_checkpointing": False, "output_past": True, "pad_token": "[PAD]"},
    {"embedding_size": 16, "finetuning_task": "mnli", "num_labels": 2},
    {"adapters": {}, "custom_pipelines": {"a": 1}, "domain": "biomedical"},
    {"classifiers_size": [], "model_max_length": 512, "vocab_size_or_config_json_file": 30522},
    {"torch_dtype": "float16", "attn_implementation": "sdpa", "my_dropout": 0.1},
    {"unsloth_fixed": True, "loss_type": "ForSequenceClassification", "tie_weights_": True},
]


@pytest.fixture
def theirs(tmp_path: Path) -> tuple[Path, Any]:
    """A MODEL that transformers saved, and its model."""
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(config).eval()
    folder = tmp_path / "theirs"
    model.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 122))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder, model


def logits(folder: Path, **options: Any) -> torch.Tensor:
    directory = ModelDirectory(folder, **options)
    model, _ = directory.build(lambda config: BertForSequenceClassification(config, num_labels=2))
    with torch.no_grad():
        found: torch.Tensor = model.eval()(Rows.from_lists([[2, 7, 8, 9, 3]]))
    return found


def expected(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([[2, 7, 8, 9, 3]])).logits
    return found


@pytest.mark.parametrize("prefix", ["module.", "model.", "model.module."])
def test_a_prefix_of_all_names_is_left_out_and_said(theirs: tuple[Path, Any], prefix: str) -> None:
    folder, model = theirs
    path = folder / "model.safetensors"
    save_file({f"{prefix}{name}": each for name, each in load_file(path).items()}, path)

    assert torch.allclose(logits(folder), expected(model), atol=1e-5)
    _, report = ModelDirectory(folder).build(BertModel)
    assert f"names without {prefix!r}" in report.summary()


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_a_wrapped_pickle_is_read(theirs: tuple[Path, Any], key: str) -> None:
    folder, model = theirs
    weights = {f"model.{name}": each for name, each in model.state_dict().items()}
    torch.save({key: weights, "epoch": 3, "lr": 0.1}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()

    assert torch.allclose(logits(folder, allow_pickle=True), expected(model), atol=1e-5)


def test_two_models_in_one_file_are_refused(theirs: tuple[Path, Any]) -> None:
    folder, _ = theirs
    weights = load_file(folder / "model.safetensors")
    both = {
        f"{side}.{name}": each.clone()
        for side in ("query", "doc")
        for name, each in weights.items()
    }
    save_file(both, folder / "model.safetensors")

    with pytest.raises(WeightsError, match=r"2 encoders, below 'doc\.', 'query\.'"):
        logits(folder)
    torch.save({"model": weights, "state_dict": weights}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="weights under 'state_dict' and 'model'"):
        logits(folder, allow_pickle=True)


@pytest.mark.parametrize("keys", KEYS)
def test_a_key_that_computes_nothing_is_left_out_and_named(
    theirs: tuple[Path, Any], keys: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model = theirs
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))
    reopened = transformers.BertForSequenceClassification.from_pretrained(folder).eval()

    assert torch.equal(expected(reopened), expected(model))
    assert torch.allclose(logits(folder), expected(model), atol=1e-5)
    _, report = ModelDirectory(folder).build(BertModel)
    unread = [each for each in keys if each in report.summary()]
    assert shell.run(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).get("unread_keys", []) == unread


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"embedding_size": 8}, "embedding_size is 8 and hidden_size 16"),
        ({"rope_theta": 10000.0}, "rope_theta is 10000.0"),
        ({"num_hidden_groups": 1}, "num_hidden_groups is 1"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is"),
        ({"layer_norm_epsilon": 1e-5}, "did you mean 'layer_norm_eps'"),
        ({"hiden_dropout_prob": 0.2}, "did you mean 'hidden_dropout_prob'"),
    ],
)
def test_a_key_that_changes_the_computation_is_an_error(
    theirs: tuple[Path, Any], keys: dict[str, Any], said: str
) -> None:
    folder, _ = theirs
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))

    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        logits(folder)


def test_numbers_of_labels_may_be_texts(theirs: tuple[Path, Any]) -> None:
    folder, _ = theirs
    config = json.loads((folder / "config.json").read_text())
    labels = {"id2label": {"0": "neg", "1": "pos"}, "label2id": {"neg": "0", "pos": "1"}}
    (folder / "config.json").write_text(json.dumps({**config, **labels}))

    assert ModelDirectory(folder).head.label_names == ("neg", "pos")
