"""Weights loaded into modules: what fits is taken, what does not is an error or reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.checkpoints.weights import (
    LoadReport,
    UndrawnWeights,
    as_berts,
    from_huggingface,
    load_weights,
)
from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError
from tidybert.modeling.bert import BertModel
from tidybert.modeling.heads import BertForPreTraining, BertForSequenceClassification

Make = Callable[..., Any]
Save = Callable[..., Path]
Same = Callable[[dict[str, Tensor], dict[str, Tensor]], bool]


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


INPUT_IDS = torch.tensor([[2, 7, 9, 3], [2, 11, 3, 0]])
ATTENTION_MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def test_an_encoder_takes_an_encoder(saved: Save, config: BertConfig, same_state: Same) -> None:
    directory = saved("BertModel")
    model = BertModel(config)
    report = ModelDirectory(directory).load_into(model)
    assert report.new == report.ignored == ()
    assert len(report.loaded) == 5 + 2 * 16 + 2
    assert report.num_parameters == config.num_parameters
    assert same_state(state(model), from_huggingface(read_tensors(directory), config).tensors)


def test_parameters_are_the_tensors_unless_those_share_memory(config: BertConfig) -> None:
    model = BertModel(config)
    tensors = as_berts(model.state_dict(), config)
    tensors = {name: each.clone() for name, each in tensors.items()}
    words, first, second = (
        "embeddings.word_embeddings.weight",
        "encoder.layer.0.output.dense.bias",
        "encoder.layer.1.output.dense.bias",
    )
    tensors[second] = tensors[first]

    load_weights(model, tensors, config, source="tensors")

    assert model.get_parameter(words).data_ptr() == tensors[words].data_ptr()
    biases = [layer.output.bias for layer in model.layers]
    assert torch.equal(biases[0], biases[1])
    assert biases[0].data_ptr() != biases[1].data_ptr()


def test_a_head_model_takes_an_encoder_without_prefix(saved: Save, config: BertConfig) -> None:
    model = BertForSequenceClassification(config, num_labels=3)
    before = state(model)
    report = ModelDirectory(saved("BertModel")).load_into(model)
    assert report.new == ("classifier.weight", "classifier.bias")
    assert report.ignored == ()
    assert torch.equal(model.state_dict()["classifier.weight"], before["classifier.weight"])
    assert not torch.equal(
        model.state_dict()["bert.pooler.dense.weight"], before["bert.pooler.dense.weight"]
    )


def test_an_encoder_takes_the_encoder_of_a_head_model(saved: Save, config: BertConfig) -> None:
    report = ModelDirectory(saved("BertForPreTraining")).load_into(
        BertModel(config, add_pooler=False)
    )
    assert report.new == ()
    assert set(report.ignored) == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "cls.predictions.bias",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    }


def test_a_pooler_that_the_file_lacks_is_new(saved: Save, config: BertConfig) -> None:
    model = BertForSequenceClassification(config, num_labels=2)
    report = ModelDirectory(saved("BertForMaskedLM")).load_into(model)
    assert report.new == (
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
        "classifier.weight",
        "classifier.bias",
    )


def test_logits_of_a_classifier_are_those_of_transformers(
    saved: Save, make_reference: Make, config: BertConfig
) -> None:
    reference = make_reference("BertForSequenceClassification", num_labels=3)
    model = BertForSequenceClassification(config, num_labels=3)
    ModelDirectory(saved("BertForSequenceClassification", num_labels=3)).load_into(model)
    with torch.no_grad():
        ours = model.eval()(INPUT_IDS, ATTENTION_MASK)
        theirs = reference(INPUT_IDS, attention_mask=ATTENTION_MASK).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_another_head_is_an_error_or_new(saved: Save, config: BertConfig) -> None:
    directory = saved("BertForSequenceClassification", num_labels=3)
    model = BertForSequenceClassification(config, num_labels=2)
    before = state(model)
    with pytest.raises(
        WeightsError, match=r"classifier.weight has the shape \(3, 8\).*\(2, 8\)"
    ) as caught:
        ModelDirectory(directory).load_into(model)
    assert "new_head=True" in str(caught.value)
    # Nothing is copied before everything fits.
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    report = ModelDirectory(directory).load_into(model, new_head=True)
    assert report.new == report.ignored == ("classifier.weight", "classifier.bias")


def test_another_width_is_an_error_with_both_shapes(saved: Save) -> None:
    directory = saved("BertModel")
    wide = BertConfig(
        vocab_size=24,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    with pytest.raises(
        WeightsError, match=r"word_embeddings.weight has the shape \(23, 8\).*\(24, 8\)"
    ):
        ModelDirectory(directory).load_into(BertModel(wide))


def test_a_missing_encoder_weight_is_named(saved: Save, config: BertConfig) -> None:
    directory = saved("BertModel")
    deeper = BertConfig.from_dict({**config.to_dict(), "num_hidden_layers": 3})
    with pytest.raises(
        WeightsError, match=r"lacks encoder\.layers\.2\..* 8 more; its own configuration has 2"
    ):
        ModelDirectory(directory).load_into(BertModel(deeper))


def test_fewer_layers_are_taken_and_the_rest_reported(saved: Save, config: BertConfig) -> None:
    shallow = BertConfig.from_dict({**config.to_dict(), "num_hidden_layers": 1})
    report = ModelDirectory(saved("BertModel")).load_into(BertModel(shallow))
    assert len(report.ignored) == 16
    assert all(name.startswith("encoder.layer.1.") for name in report.ignored)


def test_unknown_tensors_are_reported(saved: Save, config: BertConfig) -> None:
    from safetensors.torch import load_file, save_file

    directory = saved("BertModel")
    tensors = load_file(directory / "model.safetensors")
    save_file({**tensors, "adapter.weight": torch.ones(1)}, directory / "model.safetensors")
    assert ModelDirectory(directory).load_into(BertModel(config)).ignored == ("adapter.weight",)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files_load_into_float32(
    make_reference: Make, tmp_path: Path, config: BertConfig, dtype: torch.dtype
) -> None:
    reference = make_reference("BertModel").to(dtype)
    reference.save_pretrained(tmp_path)
    model = BertModel(config)
    ModelDirectory(tmp_path).load_into(model)
    weight = model.state_dict()["pooler.dense.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, reference.pooler.dense.weight.float())


def test_the_summary_is_one_line() -> None:
    report = LoadReport(
        source="minilm",
        loaded=tuple(f"t{i}" for i in range(103)),
        new=("classifier.weight", "classifier.bias"),
        ignored=(),
        num_parameters=22_713_216,
    )
    assert report.summary() == (
        "loaded 103 tensors (22.7 M parameters) from minilm; "
        "new: classifier.weight, classifier.bias; ignored: none"
    )
    many = LoadReport("x", (), (), tuple("abcdefg"), 0)
    assert many.summary().endswith("new: none; ignored: a, b, c, d and 3 more")


@pytest.mark.weights
def test_minilm_loads_whole(minilm_directory: Path) -> None:
    config = BertConfig.from_file(minilm_directory / "config.json")
    model = BertForSequenceClassification(config, num_labels=2)
    report = ModelDirectory(minilm_directory).load_into(model)
    assert report.summary() == (
        f"loaded 103 tensors (22.7 M parameters) from {minilm_directory}; "
        f"new: classifier.weight, classifier.bias; ignored: none"
    )


class Called(TorchDispatchMode):
    """Lists the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def names_of(build: Callable[[], nn.Module]) -> set[str]:
    with Called() as called:
        build()
    return {name.split(".")[1].rstrip("_") for name in called.names}


def test_nothing_is_drawn(tiny_config: Callable[..., BertConfig]) -> None:
    def build() -> nn.Module:
        with torch.device("meta"):
            model = nn.Sequential(BertForPreTraining(tiny_config()), nn.Linear(2, 3))
        return model.to_empty(device="cpu")

    draws = {"normal", "uniform", "empty_like"}
    assert names_of(build) & draws, "the test sees no draws"

    with UndrawnWeights():
        assert not names_of(build) & draws
        model = build()

    assert {each.device.type for each in model.parameters()} == {"cpu"}
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    drawn = torch.zeros(2).normal_()
    assert drawn.all()
