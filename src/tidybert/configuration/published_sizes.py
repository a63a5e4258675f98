"""The published sizes by name, as the fields in which they differ from BertConfig's defaults.

From Devlin et al. 2018, section 3, and Turc et al. 2019 (arXiv 1908.08962), table 1.
"""

from typing import Any, Final

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
