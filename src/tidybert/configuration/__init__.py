"""The sizes of an encoder: BertConfig, the keys of a config.json, and the published sizes."""

from tidybert.configuration.bert_config import (
    CONFIG_OF_POOLING,
    HIDDEN_ACTS,
    MAX_PARAMETERS,
    POSITIONS,
    BertConfig,
    CausalConfig,
    MeanBertConfig,
)
from tidybert.configuration.published_sizes import LANGUAGE_MODELS, PUBLISHED, SIZES

__all__ = [
    "CONFIG_OF_POOLING",
    "HIDDEN_ACTS",
    "LANGUAGE_MODELS",
    "MAX_PARAMETERS",
    "POSITIONS",
    "PUBLISHED",
    "SIZES",
    "BertConfig",
    "CausalConfig",
    "MeanBertConfig",
]
