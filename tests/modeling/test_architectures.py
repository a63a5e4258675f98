"""The table of encoders: what a configuration names, and how the encoder of a model is found."""

from collections.abc import Callable
from typing import Any

import pytest

from tidybert.configuration import BertConfig, bert_config
from tidybert.modeling import BertForSequenceClassification, BertModel
from tidybert.modeling import architectures as module
from tidybert.modeling.architectures import build_encoder, encoder_of


class LaterModel(BertModel):
    """An encoder as somebody may add one."""


def test_bert_is_built_and_found(tiny_config: Callable[..., BertConfig]) -> None:
    config = tiny_config()
    model = BertForSequenceClassification(config, num_labels=2)

    assert type(build_encoder(config)) is BertModel
    assert build_encoder(config, add_pooler=False).pooler is None
    assert encoder_of(model) is model.bert
    assert encoder_of(model.bert) is model.bert
    assert len(model.bert.layers) == config.num_hidden_layers
    assert model.bert.word_embeddings.weight.shape == (config.vocab_size, config.hidden_size)


def test_a_later_encoder_is_a_class_and_a_line_in_the_table(
    tiny_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.ENCODERS, "later", LaterModel)
    # A configuration is known from then on.
    monkeypatch.setattr(bert_config, "_CONFIGS", dict(bert_config._CONFIGS))

    class LaterConfig(BertConfig):
        model_type = "later"

    config = LaterConfig(**tiny_config().to_dict())

    model = BertForSequenceClassification(config, num_labels=2)

    assert type(encoder_of(model)) is LaterModel
