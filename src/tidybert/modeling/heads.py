"""Heads on the encoder, which they hold as ``.bert`` (paper section 4.1; run_classifier.py).

Losses belong to the tasks; a head returns logits.  Each model is called with Rows, or with padded
(B, S) tensors and an attention_mask, like BertModel.
"""

from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling.bert import BertModel, initialize
from tidybert.modeling.dropout import dropout
from tidybert.modeling.rows import Rows


class BertForSequenceClassification(nn.Module):
    """Dropout and a linear layer on the pooled [CLS]: classes, or a score with num_labels=1."""

    def __init__(self, config: BertConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        self.num_labels = num_labels
        self.bert = BertModel(config)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        initialize(self.classifier, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, num_labels)."""
        rows = as_rows(input_ids, attention_mask, token_type_ids)[0]
        pooled = dropout(self.bert.pooled(rows), self.config.hidden_dropout_prob, self.training)
        logits: Tensor = self.classifier(pooled)
        return logits


def as_rows(
    input_ids: Rows | Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None
) -> tuple[Rows, Tensor | None]:
    """Rows as they are, or padded tensors unpadded, with the (T,) cells they came from."""
    if isinstance(input_ids, Rows):
        return input_ids, None
    return Rows.from_padded(input_ids, attention_mask, token_type_ids)
