"""The sizes of an encoder: BertConfig, the keys of a config.json, and the published sizes."""

from tidybert.configuration.bert_config import (
    CONFIG_OF_POOLING,
    HIDDEN_ACTS,
    LANGUAGE_MODELS,
    MAX_PARAMETERS,
    POSITIONS,
    PUBLISHED,
    SIZES,
    BertConfig,
    CausalConfig,
    MeanBertConfig,
    Pooling,
)
from tidybert.configuration.family import PREFIX, Family
from tidybert.configuration.relatives import RobertaConfig

__all__ = [
    "CONFIG_OF_POOLING",
    "HIDDEN_ACTS",
    "LANGUAGE_MODELS",
    "MAX_PARAMETERS",
    "POSITIONS",
    "PREFIX",
    "PUBLISHED",
    "SIZES",
    "BertConfig",
    "CausalConfig",
    "Family",
    "MeanBertConfig",
    "Pooling",
    "RobertaConfig",
]
