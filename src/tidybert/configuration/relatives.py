"""The configurations of BERT's relatives, with the fields that BERT has and their own.

A config.json of theirs has other keys (``family.py``) and, as here, other meanings of some.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tidybert.configuration.bert_config import HIDDEN_ACTS, MAX_SIZE, BertConfig
from tidybert.configuration.family import DISTILBERT, ELECTRA, MODERNBERT, ROBERTA, Family
from tidybert.errors import ConfigError
from tidybert.options import option


class RelativeConfig(BertConfig):
    """A configuration whose head on whole sequences reads the first token."""

    #: Whether that head drops a part of the first token's state before its dense layer.
    drops_first: ClassVar[bool] = True

    def with_pooling(self, pooling: str) -> BertConfig:
        """The same; ConfigError for another pooling than cls, for which no form has a place."""
        if pooling != "cls":
            raise ConfigError(
                f"a head on the {pooling} of all tokens needs a BERT, and this model's model_type "
                f"is {self.model_type}: leave pooling out, or give cls"
            )
        return self


@dataclass(frozen=True)
class RobertaConfig(RelativeConfig):
    """RoBERTa (Liu et al. 2019): one type of token, and positions that begin after [PAD]'s.

    Args:
        max_position_embeddings: longest sequence in tokens; transformers counts the rows before
            the first token's too, which no token reads.
    """

    model_type = "roberta"
    family: ClassVar[Family] = ROBERTA
    reads_segments = False

    head_act = "gelu"

    pad_token_id: int = option(1, at_least=0, at_most=MAX_SIZE)

    @property
    def first_position(self) -> int:  # type: ignore[override]
        return self.pad_token_id + 1

    @classmethod
    def fields_in(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        values = super().fields_in(written)
        rows = values.get("max_position_embeddings", cls.max_position_embeddings)
        pad = values.get("pad_token_id", cls.pad_token_id)
        if type(rows) is int and type(pad) is int:
            values["max_position_embeddings"] = rows - pad - 1
        return values

    def written(self) -> dict[str, Any]:
        rows = self.max_position_embeddings + self.first_position
        return {**super().written(), "max_position_embeddings": rows}


class CamembertConfig(RobertaConfig):
    """CamemBERT (Martin et al. 2020): a RoBERTa by another name."""

    model_type = "camembert"
    family = replace(ROBERTA, classes="Camembert")


class XLMRobertaConfig(RobertaConfig):
    """XLM-RoBERTa (Conneau et al. 2020): a RoBERTa by another name."""

    model_type = "xlm-roberta"
    family = replace(ROBERTA, classes="XLMRoberta")


@dataclass(frozen=True)
class DistilBertConfig(RelativeConfig):
    """DistilBERT (Sanh et al. 2019): BERT's layers, no segments, and no pooler.

    Args:
        classifier_dropout: of every head; transformers has a value of its own for each.
        type_vocab_size: 2; the types of tokens are read as BERT's, and nothing depends on them.
        layer_norm_eps: 1e-12.
    """

    model_type = "distilbert"
    family: ClassVar[Family] = DISTILBERT
    reads_segments = False
    pooler_act = "relu"
    drops_first = False

    classifier_dropout: float | None = option(0.2, at_least=0, below=1)
    type_vocab_size: int = option(2, at_least=2, at_most=2)
    layer_norm_eps: float = option(1e-12, at_least=1e-12, at_most=1e-12)

    @property
    def num_parameters(self) -> int:
        """Exact number of parameters of embeddings and layers."""
        width = self.hidden_size
        return super().num_parameters - width * (width + 1) - width * self.type_vocab_size

    def written(self) -> dict[str, Any]:
        values = super().written()
        del values["type_vocab_size"], values["layer_norm_eps"]
        return {**values, "seq_classif_dropout": self.classifier_dropout_prob}


@dataclass(frozen=True)
class ElectraConfig(RelativeConfig):
    """ELECTRA (Clark et al. 2020): embeddings may be narrower than the layers; no pooler.

    Args:
        embedding_size: width of the embeddings.
    """

    model_type = "electra"
    family: ClassVar[Family] = ELECTRA
    pooler_act = "gelu"
    head_act = "gelu"

    embedding_size: int = option(128, at_least=1, at_most=MAX_SIZE)

    @property
    def embedding_width(self) -> int:
        return self.embedding_size

    @property
    def num_parameters(self) -> int:
        """Exact number of parameters of embeddings and layers."""
        width, narrow = self.hidden_size, self.embedding_size
        tables = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        saved = (tables + 2) * (width - narrow) + width * (width + 1)
        return super().num_parameters - saved + (narrow != width) * (narrow + 1) * width


_GLOBAL, _LOCAL = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class ModernBertConfig(BertConfig):
    """ModernBERT (Warner et al. 2024): rotary positions, windows, norms before layers, no biases.

    Args:
        hidden_dropout_prob: of the embeddings and within the feed-forward layer.
        type_vocab_size: 2; the types of tokens are read as BERT's, and nothing depends on them.
        global_attn_every_n_layers: every n-th layer sees all tokens, others a window.
        local_attention: width of that window, half of it on each side of a token.
        global_rope_theta, local_rope_theta: base of the rotations' wavelengths in these layers.
        classifier_pooling: what a head on whole sequences reads, "cls" or "mean".
        classifier_activation: of the dense layer in every head.
    """

    model_type = "modernbert"
    family: ClassVar[Family] = MODERNBERT
    reads_segments = False
    pooler_act = None
    head_biases = False

    hidden_dropout_prob: float = option(0.0, at_least=0, below=1)
    attention_probs_dropout_prob: float = option(0.0, at_least=0, below=1)
    classifier_dropout: float | None = option(0.0, at_least=0, below=1)
    max_position_embeddings: int = option(8192, at_least=1, at_most=MAX_SIZE)
    type_vocab_size: int = option(2, at_least=2, at_most=2)
    layer_norm_eps: float = option(1e-5, above=0, at_most=1)
    pad_token_id: int = option(50283, at_least=0, at_most=MAX_SIZE)
    global_attn_every_n_layers: int = option(3, at_least=1, at_most=MAX_SIZE)
    local_attention: int = option(128, at_least=2, at_most=MAX_SIZE)
    global_rope_theta: float = option(160_000.0, above=0, at_most=1e12)
    local_rope_theta: float = option(10_000.0, above=0, at_most=1e12)
    classifier_pooling: str = option("cls", choices=("cls", "mean"))
    classifier_activation: str = option("gelu", choices=HIDDEN_ACTS)

    def is_global(self, layer: int) -> bool:
        """Whether every token of this layer sees all others; layers count from 0."""
        return layer % self.global_attn_every_n_layers == 0

    @property
    def num_parameters(self) -> int:
        """Exact number of parameters of embeddings and layers."""
        width, layers = self.hidden_size, self.num_hidden_layers
        norms = 1 + 2 * layers
        layer = 4 * width * width + 3 * width * self.intermediate_size
        return self.vocab_size * width + layers * layer + norms * width

    @property
    def pooling(self) -> str:
        return self.classifier_pooling

    @property
    def head_act(self) -> str:
        return self.classifier_activation

    def with_pooling(self, pooling: str) -> BertConfig:
        return replace(self, classifier_pooling=pooling)

    @classmethod
    def fields_in(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        values = super().fields_in(written)
        # As transformers 5 writes them.
        rotary = written.get("rope_parameters") or {}
        for key, kind in (("global_rope_theta", _GLOBAL), ("local_rope_theta", _LOCAL)):
            given = (rotary.get(kind) or {}) if isinstance(rotary, Mapping) else None
            if (
                not isinstance(given, Mapping)
                or rotary.keys() - {_GLOBAL, _LOCAL}
                or {"rope_type": "default", **given}.keys() - {"rope_type", "rope_theta"}
                or given.get("rope_type", "default") != "default"
            ):
                raise ConfigError(
                    f"rope_parameters is {rotary!r:.200}; only an object with {_GLOBAL} and "
                    f"{_LOCAL}, each with the rope_type 'default' and a rope_theta, can be read"
                )
            theta = given.get("rope_theta", values.get(key, getattr(cls, key)))
            # Null is the other layers', as in transformers 4.
            theta = values["global_rope_theta"] if theta is None and kind == _LOCAL else theta
            values[key] = float(theta) if type(theta) is int else theta
        types = written.get("layer_types")
        if types is not None:
            every = types.index(_GLOBAL, 1) if _GLOBAL in types[1:] else len(types)
            values["global_attn_every_n_layers"] = every
            if types != [_LOCAL if at % every else _GLOBAL for at in range(len(types))]:
                raise ConfigError(
                    f"layer_types is {types!r:.120}; only {_GLOBAL} in the first of every few "
                    f"layers and {_LOCAL} in the others can be read"
                )
        return values

    def written(self) -> dict[str, Any]:
        values = super().written()
        del values["type_vocab_size"]
        types = [_GLOBAL if self.is_global(at) else _LOCAL for at in range(self.num_hidden_layers)]
        thetas = {_GLOBAL: self.global_rope_theta, _LOCAL: self.local_rope_theta}
        return {
            **values,
            "classifier_dropout": self.classifier_dropout_prob,
            "embedding_dropout": self.hidden_dropout_prob,
            "layer_types": types,
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": theta}
                for kind, theta in thetas.items()
            },
        }
