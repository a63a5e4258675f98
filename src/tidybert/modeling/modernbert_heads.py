"""ModernBERT's heads on tokens, which read its dense layer's output as those on sequences do.

T tokens, B sequences, S longest length, R rows asked for, H width.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tidybert.configuration import BertConfig
from tidybert.modeling.architectures import build_encoder
from tidybert.modeling.heads import (
    BertForQuestionAnswering,
    BertForTokenClassification,
    BertWithTokenHead,
)
from tidybert.modeling.kernels.dropout import dropout


class _ReadsPooler(BertWithTokenHead):
    """A head on tokens over an encoder with a pooler, which works token by token."""

    def __init__(self, config: BertConfig, *given: Any) -> None:
        super().__init__(config, *given)
        self.bert = build_encoder(config, add_pooler=True)

    def head_inputs(self, rows: Any, **named: Any) -> Tensor:
        """The states (T, H), or (R, H), that the linear layer reads."""
        assert self.bert.pooler is not None
        hidden: Tensor = self.bert.pooler(self.bert(rows, **named).last_hidden_state)
        return dropout(hidden, self.config.classifier_dropout_prob, self.training)

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        assert self.bert.pooler is not None
        return super().exported(self.bert.pooler(hidden), pooled)


class ModernBertForTokenClassification(_ReadsPooler, BertForTokenClassification):
    """Dropout and a linear layer on every token's dense layer."""


class ModernBertForQuestionAnswering(_ReadsPooler, BertForQuestionAnswering):
    """A start and an end logit from every token's dense layer."""
