"""How transformers writes BERT and its relatives: classes, keys of config.json, names of weights.

A relative is one Family here, one configuration in ``relatives.py``, and an encoder in modeling/.
Sources: transformers' models/*/modeling_*.py and configuration_*.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

Names = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """Args:
    classes: what the names of its classes begin with.
    encoder: the encoder's name in a class with a head.
    modules: of the encoder, our names to theirs; "{}" stands for a layer's number.  A joint
        projection may be three modules, in the order of its rows.
    heads: BERT's names of heads to theirs, as beginnings; names without one stay.
    heads_of: the same in one class, by BERT's name of it, before ``heads``.
    keys: our fields to the keys of its config.json, where they differ.
    required: keys that would change the computation, with the values that are computed here.
    ignored: keys that say nothing of the encoder.
    begins: our weights of a new head to those of the masked-LM head, as which they begin.
    """

    classes: str
    encoder: str
    modules: Mapping[str, tuple[str, ...]]
    heads: Names = field(default_factory=dict)
    heads_of: Mapping[str, Names] = field(default_factory=dict)
    keys: Names = field(default_factory=dict)
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    begins: Names = field(default_factory=dict)

    def class_name(self, berts: str) -> str:
        """The name of a class by BERT's name of it."""
        is_berts = berts.startswith(_BERT)
        return self.classes + berts.removeprefix(_BERT) if is_berts else berts

    def berts_class(self, name: str) -> str:
        """The inverse of ``class_name``."""
        own = name.startswith(self.classes)
        return _BERT + name.removeprefix(self.classes) if own else name

    def written_name(self, name: str, architecture: str = "") -> str:
        """Names of weights, by BERT's name of the head, or of the encoder before a dot."""
        for berts, theirs in self._heads_in(architecture).items():
            if name.startswith(berts):
                return theirs + name.removeprefix(berts)
        return f"{self.encoder}.{bare}" if (bare := name.removeprefix(PREFIX)) != name else name

    def berts_name(self, name: str, architecture: str = "") -> str:
        """The inverse of ``written_name``."""
        for berts, theirs in self._heads_in(architecture).items():
            if name.startswith(theirs):
                return berts + name.removeprefix(theirs)
        bare = name.removeprefix(f"{self.encoder}.")
        return f"{PREFIX}{bare}" if bare != name else name

    def _heads_in(self, architecture: str) -> Names:
        return {**self.heads_of.get(architecture, {}), **self.heads}


_BERT: Final = "Bert"
PREFIX: Final = "bert."
"""The prefix of the encoder's weights in a model with a head."""
_SEQUENCES: Final = "BertForSequenceClassification"
_CHOICES: Final = "BertForMultipleChoice"
# The dense layer of a relative's head on whole sequences is our pooler.
_POOLER, _TRANSFORM = "bert.pooler.", "cls.predictions.transform."
_DECODER, _BIAS = "cls.predictions.decoder.", "cls.predictions.bias"
_PARTS: Final = (
    "attention.query_key_value",
    "attention.output",
    "attention_layer_norm",
    "intermediate",
    "output",
    "output_layer_norm",
)


def _layers(begin: str, *names: str) -> dict[str, tuple[str, ...]]:
    """The modules of a layer, in the order of _PARTS."""
    return {
        f"encoder.layers.{{}}.{part}": tuple(f"{begin}.{{}}.{each}" for each in named.split())
        for part, named in zip(_PARTS, names, strict=True)
    }


_TABLES: Final = {
    f"embeddings.{kind}_embeddings": (f"embeddings.{kind}_embeddings",)
    for kind in ("word", "position", "token_type")
}
_DENSE: Final = {"pooler.dense": ("pooler.dense",)}
_BERTS_LAYERS: Final = _layers(
    "encoder.layer",
    "attention.self.query attention.self.key attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
BERT: Final = Family(
    classes="Bert",
    encoder="bert",
    modules={**_TABLES, "embeddings.layer_norm": ("embeddings.LayerNorm",)}
    | _BERTS_LAYERS
    | _DENSE,
)
ROBERTA: Final = replace(
    BERT,
    classes="Roberta",
    encoder="roberta",
    heads={
        f"{_TRANSFORM}dense.": "lm_head.dense.",
        f"{_TRANSFORM}LayerNorm.": "lm_head.layer_norm.",
        _DECODER: "lm_head.decoder.",
        _BIAS: "lm_head.bias",
    },
    heads_of={
        _SEQUENCES: {f"{_POOLER}dense.": "classifier.dense.", "classifier.": "classifier.out_proj."}
    },
)
ELECTRA: Final = replace(
    BERT,
    classes="Electra",
    encoder="electra",
    modules={**BERT.modules, "embeddings.projection": ("embeddings_project",)},
    heads={
        f"{_TRANSFORM}dense.": "generator_predictions.dense.",
        f"{_TRANSFORM}LayerNorm.": "generator_predictions.LayerNorm.",
        f"{_DECODER}weight": "generator_lm_head.weight",
        _BIAS: "generator_lm_head.bias",
    },
    heads_of={**ROBERTA.heads_of, _CHOICES: {f"{_POOLER}dense.": "sequence_summary.summary."}},
    required={
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
    ignored=frozenset({"summary_last_dropout"}),
)
DISTILBERT: Final = Family(
    classes="DistilBert",
    encoder="distilbert",
    modules={
        **BERT.modules,
        **_layers(
            "transformer.layer",
            "attention.q_lin attention.k_lin attention.v_lin",
            "attention.out_lin",
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
    },
    heads={
        f"{_POOLER}dense.": "pre_classifier.",
        f"{_TRANSFORM}dense.": "vocab_transform.",
        f"{_TRANSFORM}LayerNorm.": "vocab_layer_norm.",
        f"{_DECODER}weight": "vocab_projector.weight",
        _BIAS: "vocab_projector.bias",
    },
    keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
    # Positions that began as sines are in the weights as others are.
    ignored=frozenset({"sinusoidal_pos_embds", "qa_dropout"}),
)
_MODERNBERTS_OWN: Final = """
    embedding_dropout cls_token_id deterministic_flash_attn initializer_cutoff_factor layer_types
    rope_parameters reference_compile repad_logits_with_grad sparse_prediction
    sparse_pred_ignore_index
"""
_HEAD: Final = {f"{_POOLER}dense.": "head.dense.", f"{_POOLER}norm.": "head.norm."}
_MLM: Final = {f"{_TRANSFORM}dense.": "head.dense.", f"{_TRANSFORM}LayerNorm.": "head.norm."}
MODERNBERT: Final = Family(
    classes="ModernBert",
    encoder="model",
    modules={
        "embeddings.word_embeddings": ("embeddings.tok_embeddings",),
        "embeddings.layer_norm": ("embeddings.norm",),
        **_layers("layers", "attn.Wqkv", "attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm"),
        "encoder.layers.{last}.final_layer_norm": ("final_norm",),
        "pooler.norm": ("pooler.norm",),
        **_DENSE,
    },
    heads={f"{_DECODER}weight": "decoder.weight", _BIAS: "decoder.bias"},
    heads_of={
        "BertForMaskedLM": _MLM,
        _SEQUENCES: _HEAD,
        _CHOICES: _HEAD,
        "BertForTokenClassification": _HEAD,
        "BertForQuestionAnswering": {**_HEAD, "qa_outputs.": "classifier."},
    },
    keys={
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
        "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    required={
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), (False,)),
        **dict.fromkeys(("decoder_bias", "tie_word_embeddings"), (True,)),
    },
    ignored=frozenset(_MODERNBERTS_OWN.split()),
    begins={
        "pooler.dense.weight": "mlm.dense.weight",
        "pooler.norm.weight": "mlm.layer_norm.weight",
    },
)
