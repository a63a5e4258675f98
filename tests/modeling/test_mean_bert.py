"""The encoder whose pooled output is the mean of its tokens' states."""

from collections.abc import Callable
from typing import Any

import torch

from tidybert.configuration import BertConfig
from tidybert.modeling import BertForSequenceClassification
from tidybert.modeling.rows import Rows


def test_the_head_reads_the_mean_of_all_tokens(tiny_config: Callable[..., BertConfig]) -> None:
    config = tiny_config().with_pooling("mean")
    model = BertForSequenceClassification(config, num_labels=2).eval()
    rows = Rows.from_lists([[2, 5, 6, 3], [2, 7, 3]])

    states = model.bert(rows).last_hidden_state
    expected = torch.stack([states[:4].mean(0), states[4:].mean(0)])

    torch.testing.assert_close(model.head_inputs(rows), expected)
    assert model(rows).sum().requires_grad
    assert config.num_parameters == sum(each.numel() for each in model.bert.parameters())


def test_a_file_names_the_encoder(tiny_config: Callable[..., Any]) -> None:
    config = tiny_config()
    given = {**config.to_dict(), "model_type": "bert-mean"}

    assert BertConfig.from_dict(given) == config.with_pooling("mean") != config
    assert BertConfig.from_dict(given).with_pooling("cls") == config
