"""The published sizes and counts, and every way in which a configuration can be wrong."""

import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.configuration import HIDDEN_ACTS, MAX_PARAMETERS, PUBLISHED, SIZES, BertConfig
from tidybert.configuration.bert_config import SHAPE_KEYS
from tidybert.configuration.relatives import ModernBertConfig
from tidybert.errors import ConfigError
from tidybert.modeling.architectures import ENCODERS, build_encoder

# config.json of bert-base-uncased as an old version of transformers wrote it.
OLD_HUGGING_FACE: dict[str, Any] = {
    "_name_or_path": "bert-base-uncased",
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "classifier_dropout": None,
    "finetuning_task": None,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "id2label": {"0": "no", "1": "yes"},
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "is_decoder": False,
    "label2id": {"no": 0, "yes": 1},
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "num_labels": 2,
    "output_past": True,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "problem_type": "single_label_classification",
    "pruned_heads": {},
    "torch_dtype": "float32",
    "torchscript": False,
    "transformers_version": "4.8.2",
    "type_vocab_size": 2,
    "use_bfloat16": False,
    "use_cache": True,
    "vocab_size": 30522,
}

# bert_config.json of Google's Chinese model.
GOOGLE_CHINESE: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 21128,
}


def with_heads(config: BertConfig) -> int:
    """Parameters of the encoder with the masked-LM head and the next-sentence head."""
    h = config.hidden_size
    return config.num_parameters + (h * h + h) + 2 * h + config.vocab_size + (2 * h + 2)


@pytest.mark.parametrize(
    ("name", "layers", "width", "heads", "vocab_size", "num_parameters"),
    [
        ("tiny", 2, 128, 2, 30522, 4_385_920),
        ("mini", 4, 256, 4, 30522, 11_170_560),
        ("small", 4, 512, 8, 30522, 28_763_648),
        ("medium", 8, 512, 8, 30522, 41_373_184),
        ("base", 12, 768, 12, 30522, 109_482_240),
        ("large", 24, 1024, 16, 30522, 335_141_888),
        ("bert-base-uncased", 12, 768, 12, 30522, 109_482_240),
        ("bert-base-cased", 12, 768, 12, 28996, 108_310_272),
        ("bert-large-uncased", 24, 1024, 16, 30522, 335_141_888),
        ("bert-large-cased", 24, 1024, 16, 28996, 333_579_264),
        ("bert-base-multilingual-uncased", 12, 768, 12, 105879, 167_356_416),
        ("bert-base-multilingual-cased", 12, 768, 12, 119547, 177_853_440),
        ("bert-base-chinese", 12, 768, 12, 21128, 102_267_648),
    ],
)
def test_published_shapes(
    name: str, layers: int, width: int, heads: int, vocab_size: int, num_parameters: int
) -> None:
    config = BertConfig.from_name(name)
    assert config.num_hidden_layers == layers
    assert config.hidden_size == width
    assert config.num_attention_heads == heads
    assert config.hidden_size // heads == 64
    assert config.intermediate_size == 4 * width
    assert config.vocab_size == vocab_size
    assert config.max_position_embeddings == 512
    assert config.num_parameters == num_parameters


def test_every_published_name_has_a_row_above() -> None:
    assert len(PUBLISHED) == 13
    assert list(SIZES) == ["tiny", "mini", "small", "medium", "base", "large"]


def test_counts_that_the_paper_rounds() -> None:
    assert float(f"{BertConfig.from_name('base').num_parameters:.1e}") == 110e6
    assert float(f"{BertConfig.from_name('large').num_parameters:.1e}") == 340e6


@pytest.mark.parametrize(
    ("name", "millions"),
    [("tiny", 4.4), ("mini", 11.3), ("small", 29.1), ("medium", 41.7), ("base", 110.1)],
)
def test_counts_of_the_small_models_with_their_heads(name: str, millions: float) -> None:
    assert round(with_heads(BertConfig.from_name(name)) / 1e6, 1) == millions


@pytest.mark.real_data
def test_vocabulary_sizes_are_those_of_the_published_files(real_data: Path) -> None:
    paths = sorted((real_data / "vocab").rglob("vocab.txt"))
    assert len(paths) == 5
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            assert BertConfig.from_name(path.parent.name).vocab_size == sum(1 for _ in lines)


def test_num_parameters_against_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = BertConfig(
        vocab_size=31,
        hidden_size=12,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=7,
        max_position_embeddings=9,
        type_vocab_size=3,
    )
    model = transformers.BertModel(transformers.BertConfig(**config.to_dict()))
    assert config.num_parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("model_type", ENCODERS)
def test_num_parameters_are_those_of_the_encoder(model_type: str) -> None:
    sizes = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 3, "intermediate_size": 7}
    shape = {"num_attention_heads": 2, "max_position_embeddings": 19, "pad_token_id": 0, **sizes}
    narrow = {"embedding_size": 5} if model_type == "electra" else {}
    config = BertConfig.from_dict({"model_type": model_type, **shape, **narrow})
    encoder = build_encoder(config, model_type not in ("distilbert", "electra", "modernbert"))
    fixed = sum(each.numel() for each in encoder.buffers() if each.is_floating_point())
    assert config.num_parameters == fixed + sum(each.numel() for each in encoder.parameters())


def test_defaults_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertConfig().to_dict()
    assert BertConfig().to_dict() == {key: theirs[key] for key in BertConfig().to_dict()}


def test_reads_what_transformers_writes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertConfig(
        hidden_size=8,
        num_attention_heads=2,
        num_labels=3,
        problem_type="regression",
        classifier_dropout=0.25,
    )
    theirs.save_pretrained(tmp_path)
    ours = BertConfig.from_file(tmp_path / "config.json")
    assert ours == BertConfig(hidden_size=8, num_attention_heads=2, classifier_dropout=0.25)
    ours_alone = {key: getattr(theirs, key) for key in ours.to_dict()}
    assert ours.to_dict() == ours_alone


def test_reads_old_and_original_files() -> None:
    assert BertConfig.from_dict(OLD_HUGGING_FACE) == BertConfig.from_name("bert-base-uncased")
    assert BertConfig.from_dict(GOOGLE_CHINESE) == BertConfig.from_name("bert-base-chinese")


@pytest.mark.weights
def test_reads_minilm(minilm_directory: Path) -> None:
    config = BertConfig.from_file(minilm_directory / "config.json")
    assert (config.num_hidden_layers, config.hidden_size) == (6, 384)
    assert config.num_parameters == 22_713_216


@pytest.mark.real_data
def test_reads_google_files(real_data: Path) -> None:
    paths = sorted((real_data / "tf").glob("*/bert_config.json"))
    assert paths
    for path in paths:
        assert BertConfig.from_file(path).layer_norm_eps == 1e-12


def test_from_name_takes_overrides() -> None:
    config = BertConfig.from_name("mini", vocab_size=1000, hidden_dropout_prob=0.0)
    assert (config.hidden_size, config.vocab_size, config.hidden_dropout_prob) == (256, 1000, 0.0)


def test_is_frozen_and_can_be_a_key() -> None:
    config = BertConfig.from_name("tiny")
    with pytest.raises(FrozenInstanceError):
        config.hidden_size = 3  # type: ignore[misc]
    assert {config: 1}[BertConfig.from_name("tiny")] == 1


@given(
    heads=st.integers(1, 16),
    head_size=st.integers(1, 64),
    layers=st.integers(1, 48),
    vocab_size=st.integers(1, 200_000),
    act=st.sampled_from(HIDDEN_ACTS),
    dropout=st.floats(0, 1, exclude_max=True),
)
def test_dictionary_round_trip(
    heads: int, head_size: int, layers: int, vocab_size: int, act: str, dropout: float
) -> None:
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=heads * head_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        hidden_act=act,
        hidden_dropout_prob=dropout,
    )
    assert BertConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocab_size", 0),
        ("vocab_size", -1),
        ("vocab_size", 30522.0),
        ("vocab_size", "30522"),
        ("vocab_size", 10**300),
        ("vocab_size", None),
        ("hidden_size", True),
        ("hidden_size", 770),
        ("num_hidden_layers", 1001),
        ("num_attention_heads", 7),
        ("intermediate_size", []),
        ("hidden_act", "swish"),
        ("hidden_act", None),
        ("hidden_act", ["gelu"]),
        ("hidden_dropout_prob", 1.0),
        ("hidden_dropout_prob", -0.1),
        ("hidden_dropout_prob", float("nan")),
        ("hidden_dropout_prob", 10**400),
        ("attention_probs_dropout_prob", "0.1"),
        ("attention_probs_dropout_prob", False),
        ("max_position_embeddings", 0),
        ("type_vocab_size", 0),
        ("initializer_range", 0.0),
        ("layer_norm_eps", -1e-12),
        ("layer_norm_eps", float("inf")),
        ("pad_token_id", -1),
        ("pad_token_id", 30522),
        ("model_type", "albert"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("is_encoder_decoder", True),
        ("add_cross_attention", True),
        ("pruned_heads", {"1": [0]}),
        ("quantization_config", {"bits": 8}),
        ("auto_map", {"AutoModel": "modeling.Bert"}),
        ("directionality", "left"),
        ("pooler_type", "mean"),
        ("problem_type", "guess"),
        ("classifier_dropout", 2),
        ("classifier_dropout", 1.0),
        ("classifier_dropout", "0.1"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        BertConfig.from_dict({**OLD_HUGGING_FACE, key: value}, source="config.json")


@pytest.mark.parametrize("key", ["vocab_size", "max_position_embeddings", "type_vocab_size"])
def test_no_file_makes_a_model_of_terabytes(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} 2000000000.*at most 5e"):
        BertConfig.from_dict({**OLD_HUGGING_FACE, key: 2_000_000_000})
    assert MAX_PARAMETERS == 5_000_000_000


def test_an_unknown_key_is_named_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="'hiden_size'; did you mean 'hidden_size'") as caught:
        BertConfig.from_dict({**OLD_HUGGING_FACE, "hiden_size": 3}, source="here/config.json")
    assert str(caught.value).startswith("here/config.json: ")


# What transformers writes for each; T5 has other keys for its sizes.
RELATIVES = {
    "albert": ("ALBERT", "AlbertConfig"),
    "deberta-v2": ("DeBERTa v2 or v3", "DebertaV2Config"),
    "mobilebert": ("MobileBERT", "MobileBertConfig"),
    "mpnet": ("MPNet", "MPNetConfig"),
    "t5": ("T5", "T5Config"),
}


@pytest.mark.parametrize("model_type", RELATIVES)
def test_a_relative_is_named_with_the_program_that_opens_it(
    model_type: str, tmp_path: Path
) -> None:
    import transformers

    name, kind = RELATIVES[model_type]
    getattr(transformers, kind)().save_pretrained(tmp_path)

    with pytest.raises(ConfigError) as caught:
        BertConfig.from_file(tmp_path / "config.json")

    assert str(caught.value) == (
        f"{tmp_path / 'config.json'}: model_type is {model_type!r}: the checkpoint is {name}, "
        "which computes something else than BERT; tidybert reads only 'bert' or 'bert-mean' or "
        "'causal-lm' or 'roberta' or 'camembert' or 'xlm-roberta' or 'distilbert' or 'electra' or "
        "'modernbert': open it with transformers, or with sentence-transformers if it embeds texts"
    )


@pytest.mark.parametrize("model_type", ["llama", 3, None, ["bert"], {}])
def test_another_model_type_is_refused(model_type: Any) -> None:
    with pytest.raises(ConfigError, match=r"model_type is .*: open it with transformers"):
        BertConfig.from_dict({**OLD_HUGGING_FACE, "model_type": model_type})


def test_a_missing_size_is_named() -> None:
    values = {key: value for key, value in OLD_HUGGING_FACE.items() if key != "hidden_size"}
    with pytest.raises(ConfigError, match="missing key 'hidden_size'"):
        BertConfig.from_dict(values)


def test_a_null_pad_token_id_is_accepted() -> None:
    assert BertConfig.from_dict({**OLD_HUGGING_FACE, "pad_token_id": None}).pad_token_id == 0


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mini'"):
        BertConfig.from_name("minni")
    with pytest.raises(ConfigError, match="did you mean 'hidden_size'"):
        BertConfig.from_name("mini", hidden_sise=3)


def test_a_missing_file_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ConfigError, match="no such file"):
        BertConfig.from_file(path)
    path.write_text("\ufeff" + json.dumps(GOOGLE_CHINESE), encoding="utf-8")
    assert BertConfig.from_file(path) == BertConfig.from_name("bert-base-chinese")


@given(
    st.dictionaries(
        st.sampled_from(sorted(OLD_HUGGING_FACE)) | st.text(max_size=12),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        max_size=4,
    )
)
def test_anything_else_is_a_config_error_or_a_config(changes: dict[str, Any]) -> None:
    try:
        config = BertConfig.from_dict({**OLD_HUGGING_FACE, **changes})
    except ConfigError:
        return
    assert config.num_parameters <= MAX_PARAMETERS
    assert config.hidden_size % config.num_attention_heads == 0


def test_thetas_of_modernbert_are_read_or_refused() -> None:
    sizes = dict.fromkeys(SHAPE_KEYS, 8)
    base = {"model_type": "modernbert", "pad_token_id": 0, **sizes, "global_rope_theta": 5e4}

    def thetas(**more: object) -> tuple[float, float]:
        config = BertConfig.from_dict({**base, **more})
        assert isinstance(config, ModernBertConfig)
        return config.global_rope_theta, config.local_rope_theta

    assert thetas() == (5e4, 1e4)
    # As transformers 4: null is the theta of the layers that see all.
    assert thetas(local_rope_theta=None) == (5e4, 5e4)
    of_kind = {"full_attention": {"rope_type": "default", "rope_theta": 7}, "sliding_attention": {}}
    assert thetas(rope_parameters=of_kind, local_rope_theta=3) == (7, 3)
    for wrong in (
        {"rope_type": "default", "rope_theta": 10_000.0},
        {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
        {"full_attention": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        {"full_attention": 1e4},
        [1e4],
    ):
        with pytest.raises(ConfigError, match=r"rope_parameters is .*only an object with full_att"):
            thetas(rope_parameters=wrong)
    for key, value in (("global_rope_theta", None), ("local_rope_theta", "10000")):
        with pytest.raises(ConfigError, match="rope_theta is"):
            thetas(**{key: value})
