"""BertConfig: the sizes of a BERT encoder, checked."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from tidybert.configuration.config_keys import (
    SHAPE_KEYS,
    check_int,
    check_probability,
    encoder_values,
    number,
)
from tidybert.configuration.published_sizes import PUBLISHED
from tidybert.errors import ConfigError, suggestion
from tidybert.storage.json_objects import read_json_object

HIDDEN_ACTS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

# A config file is untrusted input: these bounds keep it from asking for more memory than a machine
# has (5e9 parameters are 20 GB in float32; the largest BERT ever reported has 3.9e9).
MAX_PARAMETERS = 5_000_000_000
MAX_LAYERS = 1_000


@dataclass(frozen=True)
class BertConfig:
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

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        for key in _SIZE_KEYS:
            check_int(key, getattr(self, key), at_least=1)
        check_int("pad_token_id", self.pad_token_id, at_least=0)
        for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            check_probability(key, getattr(self, key))
        if self.classifier_dropout is not None:
            check_probability("classifier_dropout", self.classifier_dropout)
        for key in ("initializer_range", "layer_norm_eps"):
            if not 0.0 < number(key, getattr(self, key)) <= 1.0:
                raise ConfigError(f"{key} is {getattr(self, key)}; it must be above 0, at most 1")
        if self.hidden_act not in HIDDEN_ACTS:
            raise ConfigError(
                f"hidden_act is {self.hidden_act!r}; known are {', '.join(HIDDEN_ACTS)}"
            )
        if self.num_hidden_layers > MAX_LAYERS:
            raise ConfigError(
                f"num_hidden_layers is {self.num_hidden_layers}; at most {MAX_LAYERS} are accepted"
            )
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
    def head_size(self) -> int:
        """Width D of one attention head: hidden_size / num_attention_heads."""
        return self.hidden_size // self.num_attention_heads

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
        nothing about the encoder (id2label, transformers_version, ...).  A key that would change
        the computation must have the value that this encoder computes (model_type "bert",
        "bert-mean" or "causal-lm", position_embedding_type "absolute", is_decoder false, ...).

        Args:
            source: the origin of the values; begins the message of an error.

        Raises:
            ConfigError: an unknown, missing or inconsistent key; the message names it.
        """
        try:
            if not isinstance(values, Mapping):
                raise ConfigError(f"a JSON object was expected, not {type(values).__name__}")
            kind = _CONFIGS.get(str(values.get("model_type")), BertConfig)
            names = [field.name for field in fields(kind)]
            return kind(**encoder_values(values, names, tuple(_CONFIGS)))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error.message}") from None

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
        """The fields by name, without model_type, ready for JSON; ``from_dict`` takes them back."""
        return asdict(self)

    @classmethod
    def from_file(cls, path: str | Path) -> "BertConfig":
        """The configuration in the JSON file ``path``.

        Raises:
            ConfigError: as ``read_json_object`` and ``from_dict``.
        """
        return cls.from_dict(read_json_object(path), source=str(path))


class MeanBertConfig(BertConfig):
    """A BertConfig of modeling/mean_bert.py's encoder, which has no pooler."""

    model_type = "bert-mean"

    @property
    def num_parameters(self) -> int:
        return super().num_parameters - self.hidden_size * (self.hidden_size + 1)


POSITIONS = ("sinusoidal", "learned")


@dataclass(frozen=True)
class CausalConfig(BertConfig):
    """A BertConfig of modeling/causal_model.py's transformer, which reads from left to right.

    Args:
        type_vocab_size: 1; it has no segments.
        positions: "sinusoidal", computed once and never trained, or "learned".
    """

    model_type = "causal-lm"

    type_vocab_size: int = 1
    positions: str = "sinusoidal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type_vocab_size != 1:
            raise ConfigError(
                f"type_vocab_size is {self.type_vocab_size}; a language model has 1, no segments"
            )
        if self.positions not in POSITIONS:
            raise ConfigError(
                f"positions is {self.positions!r:.40}; expected {' or '.join(POSITIONS)}"
            )

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
_KINDS: tuple[type[BertConfig], ...] = (*CONFIG_OF_POOLING.values(), CausalConfig)
_CONFIGS = {each.model_type: each for each in _KINDS}
_FIELD_KEYS = tuple(field.name for field in fields(BertConfig))
_SIZE_KEYS = (*SHAPE_KEYS, "max_position_embeddings", "type_vocab_size")
