"""BertConfig: the sizes of a BERT encoder, checked."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from tidybert.configuration.family import BERT, Family
from tidybert.errors import ConfigError, UsageError, suggestion
from tidybert.options import Options, option
from tidybert.storage.json_objects import read_json_object

# The published sizes by name, as the fields in which they differ from BertConfig's defaults.
#
# From Devlin et al. 2018, section 3, and Turc et al. 2019 (arXiv 1908.08962), table 1.

Fields = dict[str, Any]


def _shape(layers: int, width: int, **more: Any) -> Fields:
    """Heads are 64 wide, the feed-forward layer has 4 times the width."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        **more,
    }


SIZES: Final[dict[str, Fields]] = {
    "tiny": _shape(2, 128),
    "mini": _shape(4, 256),
    "small": _shape(4, 512),
    "medium": _shape(8, 512),
    "base": _shape(12, 768),
    "large": _shape(24, 1024),
}
"""Names of shapes with random weights; the other names in PUBLISHED also name published weights."""

PUBLISHED: Final[dict[str, Fields]] = {
    **SIZES,
    "bert-base-uncased": _shape(12, 768),
    "bert-base-cased": _shape(12, 768, vocab_size=28996),
    "bert-large-uncased": _shape(24, 1024),
    "bert-large-cased": _shape(24, 1024, vocab_size=28996),
    "bert-base-multilingual-uncased": _shape(12, 768, vocab_size=105879),
    "bert-base-multilingual-cased": _shape(12, 768, vocab_size=119547),
    "bert-base-chinese": _shape(12, 768, vocab_size=21128),
}

LANGUAGE_MODELS: Final[dict[str, Fields]] = {
    "transformer-tiny": _shape(2, 128, hidden_act="relu"),
    "transformer-mini": _shape(4, 256, hidden_act="relu"),
    "transformer": _shape(6, 512, hidden_act="relu"),
}
"""The language models that can be trained, in the form of Vaswani et al. 2017: their base size, and
smaller ones; fields of CausalConfig."""


# The keys of a config.json: which of them say what the encoder computes.
#
# They are those of Google's bert_config.json (google-research/bert, modeling.py, BertConfig) and of
# Hugging Face's config.json.

SHAPE_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
"""The sizes that a file must have."""

MAX_SIZE = 2**31 - 1

_PROBLEM_TYPES = (None, "regression", "single_label_classification", "multi_label_classification")
# Keys that would change the computation, each with the only values that this encoder computes.
_REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
    "auto_map": (None, {}),
    "directionality": ("bidi",),
    "attention_type": (None, "original_full"),
    "relative_attention": (None, False),
    "rope_theta": (None,),
    "rope_scaling": (None,),
    "rotary_value": (None, False),
    "use_rotary_embeddings": (None, False),
    "alibi_starting_size": (None,),
    "sparse_attention": (None, False),
    "num_hidden_groups": (None,),
    "inner_group_num": (None,),
    "trigram_input": (None, False),
    "use_bottleneck": (None, False),
    "pre_norm": (None, False),
    "norm_first": (None, False),
    "use_parallel_residual": (None, False),
    "num_experts": (None, 1),
    "adapters": (None, {}),
    "pooler_type": ("first_token_transform",),
    "problem_type": _PROBLEM_TYPES,
}

# Published encoders that people take for a BERT, by their model_type: their name.
_RELATIVES: dict[str, str] = {
    "albert": "ALBERT",
    "big_bird": "BigBird",
    "convbert": "ConvBERT",
    "deberta": "DeBERTa",
    "deberta-v2": "DeBERTa v2 or v3",
    "ernie": "ERNIE",
    "eurobert": "EuroBERT",
    "longformer": "Longformer",
    "mobilebert": "MobileBERT",
    "mpnet": "MPNet",
    "new": "GTE",
    "nomic_bert": "Nomic BERT",
    "roformer": "RoFormer",
    "squeezebert": "SqueezeBERT",
    "t5": "T5",
    "xlnet": "XLNet",
}

# Keys that do not change the encoder's numbers: they describe the head, the program that wrote the
# file, or how to run; the last lines are what old versions of transformers wrote for generation.
_IGNORED_KEY_LIST = """
    architectures id2label label2id num_labels _num_labels finetuning_task task_specific_params
    tie_word_embeddings tie_encoder_decoder tie_last_hidden_states
    _name_or_path name_or_path transformers_version _commit_hash
    torch_dtype dtype use_bfloat16 torchscript xla_device tf_legacy_loss
    use_cache gradient_checkpointing chunk_size_feed_forward _attn_implementation
    _attn_implementation_autoset attn_implementation _experts_implementation
    output_attentions output_hidden_states output_past return_dict use_return_dict
    tokenizer_class prefix sentence_transformers sbert_ce_default_activation_function
    pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    bos_token_id eos_token_id sep_token_id decoder_start_token_id forced_bos_token_id
    forced_eos_token_id bad_words_ids begin_suppress_tokens suppress_tokens do_sample
    diversity_penalty early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences output_scores remove_invalid_values repetition_penalty
    return_dict_in_generate temperature top_k top_p typical_p
"""
_IGNORED_KEYS = frozenset(_IGNORED_KEY_LIST.split())
# How much a key must be like a field to be taken for it misspelt.
_MISSPELT = 0.85


def encoder_values(values: Mapping[str, Any], kind: "type[BertConfig]") -> dict[str, Any]:
    """The fields of ``kind`` among the keys of a config.json, after a check of every other key.

    Raises ConfigError for a key that is a misspelt field, a missing size, and a value of a known
    key that would change the computation.  ``unknown_keys`` names the others.
    """
    _check_kind(values.get("model_type", kind.model_type), tuple(_CONFIGS))
    names, keys = [each.name for each in fields(kind)], kind.family.keys
    ours = {theirs: name for name, theirs in keys.items()}
    values = {ours.get(key, key): value for key, value in values.items()}
    required = {**_REQUIRED_VALUES, **kind.family.required}
    width = values.get("hidden_size")
    for key, value in values.items():
        if key in names:
            continue
        if key == "embedding_size" and value != width:
            raise ConfigError(
                f"embedding_size is {value!r:.80} and hidden_size {width!r:.80}; only embeddings "
                "of the layers' width can be read"
            )
        if key in _berts_fields():
            raise ConfigError(f"unknown key {key!r}: models of another model_type have it")
        import difflib

        similar = difflib.get_close_matches(key, names, n=1, cutoff=_MISSPELT)
        if similar and key not in kind.family.ignored and isinstance(value, int | float):
            raise ConfigError(
                f"unknown key {key!r}; did you mean {similar[0]!r}? Rename it, or remove it if the "
                "encoder does not depend on it"
            )
        allowed = required.get(key)
        if allowed is not None and value not in allowed:
            raise ConfigError(
                f"{key} is {value!r:.80}; only {' or '.join(map(repr, allowed))} can be read"
            )
    missing = [keys.get(key, key) for key in SHAPE_KEYS if key not in values]
    if missing:
        raise ConfigError(f"missing key {', '.join(map(repr, missing))}")
    chosen = {key: values[key] for key in names if key in values}
    # A null pad_token_id means that no row of the table is special, which always holds here.
    if "pad_token_id" in chosen and chosen["pad_token_id"] is None:
        del chosen["pad_token_id"]
    return chosen


def _berts_fields() -> set[str]:
    """The fields of a BERT's configuration and of a language model's."""
    return {each.name for kind in (BertConfig, CausalConfig) for each in fields(kind)}


def unknown_keys(values: Mapping[str, Any]) -> list[str]:
    """The keys of a config.json that nothing here reads and that no BERT is known to have."""
    kind = _kind(values)
    own = (each.name for each in fields(kind))
    known = {"model_type", "embedding_size", *_berts_fields(), *_REQUIRED_VALUES, *_IGNORED_KEYS}
    known |= {*own, *kind.family.keys.values(), *kind.family.required, *kind.family.ignored}
    return [key for key in values if key not in known]


def family_of(values: Mapping[str, Any]) -> Family:
    """How transformers writes the encoder of a config.json."""
    return _kind(values).family


def _kind(values: Mapping[str, Any]) -> "type[BertConfig]":
    return _CONFIGS.get(str(values.get("model_type")), BertConfig)


def _check_kind(model_type: Any, known: tuple[str, ...]) -> None:
    """Raise ConfigError, which says what the checkpoint is, unless it is one of ours."""
    if isinstance(model_type, str) and model_type in known:
        return
    relative = _RELATIVES.get(model_type) if isinstance(model_type, str) else None
    kind = f": the checkpoint is {relative}, which computes something else than BERT" * bool(
        relative
    )
    raise ConfigError(
        f"model_type is {model_type!r:.80}{kind}; tidybert reads only "
        f"{' or '.join(map(repr, known))}: open it with transformers, or with "
        "sentence-transformers if it embeds texts"
    )


HIDDEN_ACTS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

# A config file is untrusted input: these bounds keep it from asking for more memory than a machine
# has (5e9 parameters are 20 GB in float32; the largest BERT ever reported has 3.9e9).
MAX_PARAMETERS = 5_000_000_000
MAX_LAYERS = 1_000

_SIZE: Final[dict[str, Any]] = {"at_least": 1, "at_most": MAX_SIZE}
_PROBABILITY: Final[dict[str, Any]] = {"at_least": 0, "below": 1}


_CONFIGS: "Final[dict[str, type[BertConfig]]]" = {}


@dataclass(frozen=True)
class BertConfig(Options):
    """Sizes and constants of an encoder, checked and frozen.

    Args:
        vocab_size: number of WordPiece ids, V.
        hidden_size: width of a hidden state, H; a multiple of num_attention_heads.
        num_hidden_layers: number of encoder layers, L.
        num_attention_heads: heads of each attention, N; each is hidden_size / N wide.
        intermediate_size: width of the feed-forward layer (4 H in every published model).
        hidden_act: its activation: "gelu" (with erf), "gelu_new" or "gelu_pytorch_tanh" (both
            the tanh approximation), or "relu".
        hidden_dropout_prob: dropout probability of a layer's outputs, in [0, 1).
        attention_probs_dropout_prob: dropout probability of the attention probabilities.
        classifier_dropout: dropout probability of a classifier's input; None: hidden_dropout_prob.
        max_position_embeddings: longest sequence in tokens.
        type_vocab_size: number of token types (segments).
        initializer_range: standard deviation of the truncated normal for new weights.
        layer_norm_eps: added to the variance inside LayerNorm.
        pad_token_id: id of [PAD], below vocab_size.

    Raises:
        ConfigError: a value has the wrong type, is out of its range, or does not fit another;
            the message names the key.
    """

    #: The key of config.json that names the encoder; modeling/architectures.py has its class.
    model_type: ClassVar[str] = "bert"
    #: How transformers writes it.
    family: ClassVar[Family] = BERT
    #: Whether a token's embedding says which of two texts it is in.
    reads_segments: ClassVar[bool] = True
    #: The activation of the dense layer below a head on whole sequences; None where more follows.
    pooler_act: ClassVar[str | None] = "tanh"
    #: Whether the dense layer and the LayerNorm of a head on tokens have biases.
    head_biases: ClassVar[bool] = True
    #: How many rows of transformers' position table no token reads, which are not held here.
    first_position: ClassVar[int] = 0

    vocab_size: int = option(30522, **_SIZE)
    hidden_size: int = option(768, **_SIZE)
    num_hidden_layers: int = option(12, at_least=1, at_most=MAX_LAYERS)
    num_attention_heads: int = option(12, **_SIZE)
    intermediate_size: int = option(3072, **_SIZE)
    hidden_act: str = option("gelu", choices=HIDDEN_ACTS)
    hidden_dropout_prob: float = option(0.1, **_PROBABILITY)
    attention_probs_dropout_prob: float = option(0.1, **_PROBABILITY)
    classifier_dropout: float | None = option(None, **_PROBABILITY)
    max_position_embeddings: int = option(512, **_SIZE)
    type_vocab_size: int = option(2, **_SIZE)
    initializer_range: float = option(0.02, above=0, at_most=1)
    layer_norm_eps: float = option(1e-12, above=0, at_most=1)
    pad_token_id: int = option(0, at_least=0, at_most=MAX_SIZE)

    def __init_subclass__(cls) -> None:
        _CONFIGS.setdefault(cls.model_type, cls)

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except UsageError as error:
            # Its name is a key of config.json, and no flag.
            raise ConfigError(str(error)) from None
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}, so its heads cannot have one width"
            )
        if self.pad_token_id >= self.vocab_size:
            raise ConfigError(
                f"pad_token_id is {self.pad_token_id}; it must be below vocab_size "
                f"{self.vocab_size}"
            )
        if self.num_parameters > MAX_PARAMETERS:
            sizes = ", ".join(f"{key} {getattr(self, key)}" for key in _SIZE_KEYS)
            raise ConfigError(
                f"{sizes} make a model of {self.num_parameters:.1e} parameters; at most "
                f"{MAX_PARAMETERS:.0e} are accepted"
            )

    @property
    def pooling(self) -> str:
        """The state that a head on whole sequences reads: a key of CONFIG_OF_POOLING."""
        return "cls"

    @property
    def head_act(self) -> str:
        """The activation of the masked-LM head."""
        return self.hidden_act

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings of words, positions and segments."""
        return self.hidden_size

    @property
    def classifier_dropout_prob(self) -> float:
        """Dropout probability of a classifier's input."""
        given = self.classifier_dropout
        return self.hidden_dropout_prob if given is None else given

    @property
    def num_parameters(self) -> int:
        """Exact number of parameters of embeddings, encoder and pooler, without any head."""
        h, i = self.hidden_size, self.intermediate_size
        tables = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        dense, layer_norm = h * h + h, 2 * h
        attention = 4 * dense + layer_norm
        feed_forward = (h * i + i) + (i * h + h) + layer_norm
        layers = self.num_hidden_layers * (attention + feed_forward)
        return tables * h + layer_norm + layers + dense

    @classmethod
    def from_name(cls, name: str, **overrides: Any) -> "BertConfig":
        """The published configuration ``name`` ("mini", "bert-base-cased", ...), with overrides.

        Raises:
            ConfigError: no such name, or an override names no key or has a value out of range.
        """
        if name not in PUBLISHED:
            raise ConfigError(
                f"no published size is named {name!r}{suggestion(name, PUBLISHED)}; "
                f"there are {', '.join(PUBLISHED)}"
            )
        for key in overrides:
            if key not in _FIELD_KEYS:
                raise ConfigError(f"unknown key {key!r}{suggestion(key, _FIELD_KEYS)}")
        return cls(**{**PUBLISHED[name], **overrides})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config") -> "BertConfig":
        """The configuration in ``values``, the content of a config.json or bert_config.json.

        It needs the five sizes vocab_size, hidden_size, num_hidden_layers, num_attention_heads and
        intermediate_size; other fields have the defaults above.  It skips known keys that say
        nothing about the encoder (id2label, transformers_version, ...), and unknown ones, which
        ``unknown_keys`` names.  A key that would change the computation must have the value that
        this encoder computes (model_type "bert", "bert-mean", "causal-lm" or a relative's,
        position_embedding_type "absolute", is_decoder false, ...).

        Args:
            source: the origin of the values; begins the message of an error.

        Raises:
            ConfigError: a misspelt, missing or inconsistent key; the message names it.
        """
        try:
            if not isinstance(values, Mapping):
                raise ConfigError(f"a JSON object was expected, not {type(values).__name__}")
            kind = _kind(values)
            return kind(**kind.fields_in(values))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error.message}") from None

    @classmethod
    def fields_in(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """The fields by name that a config.json gives; raises as ``from_dict``."""
        return encoder_values(written, cls)

    def written(self) -> dict[str, Any]:
        """The fields of this configuration under transformers' keys, as a config.json has them."""
        keys = self.family.keys
        values = {keys.get(name, name): value for name, value in self.to_dict().items()}
        return {"model_type": self.model_type, **values}

    def with_dropout(self, probability: float) -> "BertConfig":
        """The same sizes with one probability for every dropout."""
        return replace(
            self,
            hidden_dropout_prob=probability,
            attention_probs_dropout_prob=probability,
            classifier_dropout=None,
        )

    def with_pooling(self, pooling: str) -> "BertConfig":
        """The same sizes for an encoder that pools by ``pooling``, a key of CONFIG_OF_POOLING."""
        return CONFIG_OF_POOLING[pooling](**self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, without model_type, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_file(cls, path: str | Path) -> "BertConfig":
        """The configuration in the JSON file ``path``.

        Raises:
            ConfigError: as ``read_json_object`` and ``from_dict``.
        """
        return cls.from_dict(read_json_object(path), source=str(path))


_CONFIGS[BertConfig.model_type] = BertConfig


class MeanBertConfig(BertConfig):
    """A BertConfig of modeling/architectures.py's encoder, which has no pooler."""

    model_type = "bert-mean"
    pooling = "mean"

    @property
    def num_parameters(self) -> int:
        return super().num_parameters - self.hidden_size * (self.hidden_size + 1)


POSITIONS = ("sinusoidal", "learned")
Pooling = Literal["mean", "cls", "max"]
"""How the states of a text's tokens become one vector."""


@dataclass(frozen=True)
class CausalConfig(BertConfig):
    """A BertConfig of modeling/architectures.py's transformer, which reads from left to right.

    Args:
        type_vocab_size: 1; it has no segments.
        positions: "sinusoidal", computed once and never trained, or "learned".
    """

    model_type = "causal-lm"

    type_vocab_size: int = option(
        1, at_least=1, at_most=1, expected="1: a language model has no segments"
    )
    positions: str = option("sinusoidal", choices=POSITIONS)

    @property
    def num_parameters(self) -> int:
        """Exact number of parameters of embeddings and layers, fixed positions included."""
        width = self.hidden_size
        return super().num_parameters - width * (width + 1) - width * self.type_vocab_size

    def with_pooling(self, pooling: str) -> BertConfig:
        """Raise ConfigError: its first token has seen nothing that a head could pool."""
        raise ConfigError(
            "a language model reads from left to right (model_type causal-lm), and this needs a "
            "BERT, which reads both sides"
        )


#: The configurations by the state that a head on whole sequences reads.
CONFIG_OF_POOLING: dict[str, type[BertConfig]] = {"cls": BertConfig, "mean": MeanBertConfig}
_FIELD_KEYS = tuple(field.name for field in fields(BertConfig))
_SIZE_KEYS = (*SHAPE_KEYS, "max_position_embeddings", "type_vocab_size")
