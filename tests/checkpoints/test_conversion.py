"""The table of names, held against transformers' own models and read in both directions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from tidybert.checkpoints.tensor_files import read_tensors, write_tensors
from tidybert.checkpoints.weights import (
    encoder_names,
    from_huggingface,
    head_names,
    huggingface_names,
    to_huggingface,
)
from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError

Make = Callable[..., Any]
Save = Callable[..., Path]
Same = Callable[[dict[str, Tensor], dict[str, Tensor]], bool]


def random_state(config: BertConfig, *, prefix: str = "", pooler: bool = True) -> dict[str, Tensor]:
    """A whole state dict of transformers' encoder."""
    theirs = transformers.BertConfig(**config.to_dict())
    with torch.device("meta"):
        shapes = transformers.BertModel(theirs, add_pooling_layer=pooler).state_dict()
    generator = torch.Generator().manual_seed(1)
    return {
        prefix + name: torch.randn(each.shape, generator=generator) for name, each in shapes.items()
    }


def test_the_names_of_one_layer(config: BertConfig) -> None:
    converted = from_huggingface(random_state(config), config)
    assert converted.ignored == ()
    found = {name: tuple(tensor.shape) for name, tensor in converted.tensors.items()}
    assert found == {
        "embeddings.word_embeddings.weight": (23, 8),
        "embeddings.position_embeddings.weight": (16, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
        "embeddings.layer_norm.weight": (8,),
        "embeddings.layer_norm.bias": (8,),
        **{
            f"encoder.layers.{i}.{name}": shape
            for i in range(2)
            for name, shape in {
                "attention.query_key_value.weight": (24, 8),
                "attention.query_key_value.bias": (24,),
                "attention.output.weight": (8, 8),
                "attention.output.bias": (8,),
                "attention_layer_norm.weight": (8,),
                "attention_layer_norm.bias": (8,),
                "intermediate.weight": (12, 8),
                "intermediate.bias": (12,),
                "output.weight": (8, 12),
                "output.bias": (8,),
                "output_layer_norm.weight": (8,),
                "output_layer_norm.bias": (8,),
            }.items()
        },
        "pooler.dense.weight": (8, 8),
        "pooler.dense.bias": (8,),
    }


def test_query_key_and_value_lie_in_this_order(config: BertConfig) -> None:
    theirs = random_state(config)
    ours = from_huggingface(theirs, config).tensors
    query, key, value = ours["encoder.layers.1.attention.query_key_value.weight"].chunk(3)
    assert torch.equal(query, theirs["encoder.layer.1.attention.self.query.weight"])
    assert torch.equal(key, theirs["encoder.layer.1.attention.self.key.weight"])
    assert torch.equal(value, theirs["encoder.layer.1.attention.self.value.weight"])


def test_every_file_of_transformers_round_trips(
    architecture: str, saved: Save, config: BertConfig, same_state: Same
) -> None:
    theirs = load_file(saved(architecture) / "model.safetensors")
    ours, ignored = from_huggingface(theirs, config)
    assert ignored == ()
    assert same_state(to_huggingface(ours, config), theirs)


def test_transformers_opens_what_comes_back(
    architecture: str, saved: Save, make_reference: Make, config: BertConfig, same_state: Same
) -> None:
    model = make_reference(architecture)
    directory = saved(architecture)
    ours = from_huggingface(read_tensors(directory), config).tensors
    write_tensors(directory, to_huggingface(ours, config))
    again, report = type(model).from_pretrained(directory, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert same_state(dict(again.state_dict()), dict(model.state_dict()))


def test_heads_get_our_names(saved: Save, config: BertConfig) -> None:
    def heads(architecture: str) -> set[str]:
        theirs = load_file(saved(architecture) / "model.safetensors")
        ours = from_huggingface(theirs, config).tensors
        return {name for name in ours if not name.startswith("bert.")}

    mlm = {
        "mlm.dense.weight",
        "mlm.dense.bias",
        "mlm.layer_norm.weight",
        "mlm.layer_norm.bias",
        "mlm.bias",
    }
    assert heads("BertForMaskedLM") == mlm
    assert heads("BertForPreTraining") == mlm | {"nsp.weight", "nsp.bias"}
    assert heads("BertForSequenceClassification") == {"classifier.weight", "classifier.bias"}
    assert heads("BertForQuestionAnswering") == {"qa_outputs.weight", "qa_outputs.bias"}
    assert mlm | heads("BertForQuestionAnswering") <= set(head_names())


@given(
    heads=st.integers(1, 3),
    head_size=st.integers(1, 3),
    layers=st.integers(1, 3),
    vocab_size=st.integers(1, 9),
    intermediate_size=st.integers(1, 7),
    prefix=st.sampled_from(["", "bert."]),
    pooler=st.booleans(),
)
def test_round_trip_of_any_shape(
    same_state: Same,
    heads: int,
    head_size: int,
    layers: int,
    vocab_size: int,
    intermediate_size: int,
    prefix: str,
    pooler: bool,
) -> None:
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=heads * head_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate_size,
        max_position_embeddings=5,
    )
    theirs = random_state(config, prefix=prefix, pooler=pooler)
    ours, ignored = from_huggingface(theirs, config)
    assert ignored == ()
    assert all(name.startswith(prefix) for name in ours)
    assert sum(t.numel() for t in ours.values()) == config.num_parameters - (
        0 if pooler else config.hidden_size**2 + config.hidden_size
    )
    back = to_huggingface(ours, config)
    assert same_state(back, theirs)
    assert same_state(from_huggingface(back, config).tensors, ours)


def test_the_table_is_reversible(config: BertConfig) -> None:
    names = [name for table in (encoder_names(config), head_names()) for name in table]
    theirs = [each for name in names for each in huggingface_names(name, config)]
    assert len(set(theirs)) == len(theirs)


def test_old_names_of_layer_norm(config: BertConfig, same_state: Same) -> None:
    theirs = random_state(config, prefix="bert.")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in theirs.items()
    }
    assert old.keys() != theirs.keys()
    ours = from_huggingface(old, config)
    assert ours.ignored == ()
    assert same_state(ours.tensors, from_huggingface(theirs, config).tensors)
    twice = {**theirs, "bert.embeddings.LayerNorm.gamma": torch.ones(8)}
    for names in (twice, dict(reversed(twice.items()))):
        with pytest.raises(WeightsError, match="two names of one tensor"):
            from_huggingface(names, config)


def test_position_ids_are_no_weights(config: BertConfig) -> None:
    for prefix in ("", "bert."):
        theirs = random_state(config, prefix=prefix)
        theirs[f"{prefix}embeddings.position_ids"] = torch.arange(16)[None]
        assert from_huggingface(theirs, config).ignored == ()


def masked_lm_state(make_reference: Make, config: BertConfig) -> dict[str, Tensor]:
    """The full state dict of a masked LM, the tied decoder in it."""
    theirs = dict(make_reference("BertForMaskedLM").state_dict())
    assert {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"} <= theirs.keys()
    return theirs


def test_a_tied_decoder_is_folded_away(make_reference: Make, config: BertConfig) -> None:
    theirs = masked_lm_state(make_reference, config)
    ours, ignored = from_huggingface(theirs, config)
    assert ignored == ()
    assert torch.equal(ours["mlm.bias"], theirs["cls.predictions.bias"])
    assert not any("decoder" in name for name in to_huggingface(ours, config))


def test_the_decoder_bias_stands_for_a_missing_bias(
    make_reference: Make, config: BertConfig
) -> None:
    theirs = masked_lm_state(make_reference, config)
    bias = theirs.pop("cls.predictions.bias")
    assert torch.equal(from_huggingface(theirs, config).tensors["mlm.bias"], bias)


@pytest.mark.parametrize("name", ["decoder.weight", "decoder.bias"])
def test_an_untied_decoder_is_an_error(make_reference: Make, config: BertConfig, name: str) -> None:
    theirs = masked_lm_state(make_reference, config)
    changed = theirs[f"cls.predictions.{name}"].clone()
    changed[-1] += 1
    theirs[f"cls.predictions.{name}"] = changed
    with pytest.raises(WeightsError, match=f"{name} differs"):
        from_huggingface(theirs, config)


def test_unknown_tensors_are_reported(config: BertConfig) -> None:
    theirs = random_state(config)
    theirs["lm_head.weight"] = torch.ones(1)
    theirs["encoder.layer.2.output.dense.bias"] = torch.ones(8)
    ours, ignored = from_huggingface(theirs, config)
    assert ignored == ("encoder.layer.2.output.dense.bias", "lm_head.weight")
    assert ignored[0] not in ours


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"encoder.layer.0.attention.self.key.bias": None},
            r"self.query.bias is there without [^,]*self.key.bias$",
        ),
        (
            {"encoder.layer.0.attention.self.key.weight": torch.ones(8, 7)},
            r"self.key.weight has the shape \(8, 7\); the configuration makes it \(8, 8\)",
        ),
        ({"encoder.layer.1.attention.self.value.bias": torch.tensor(1.0)}, r"the shape \(\)"),
        ({"bert.pooler.dense.bias": torch.ones(8)}, "both with and without the prefix"),
    ],
)
def test_an_inconsistent_file_is_an_error(
    config: BertConfig, changes: dict[str, Tensor | None], said: str
) -> None:
    theirs = {**random_state(config), **changes}
    present = {name: tensor for name, tensor in theirs.items() if tensor is not None}
    with pytest.raises(WeightsError, match=said):
        from_huggingface(present, config)


@pytest.mark.parametrize("name", ["encoder.layers.2.output.bias", "bert.classifier.bias", "x"])
def test_a_parameter_outside_the_table_is_an_error(config: BertConfig, name: str) -> None:
    with pytest.raises(WeightsError, match="has no name in a Hugging Face BERT"):
        to_huggingface({name: torch.ones(8)}, config)
