"""Heads on the encoder, which they hold as ``.bert`` (paper sections 3.1 and 4; run_*.py).

A head returns logits; losses belong to the tasks.  Like BertModel, each model takes Rows, or padded
(B, S) tensors and an attention_mask.  T tokens, B sequences, S longest length, R rows asked for,
C choices, M masked positions, V vocabulary, H width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling.architectures import build_encoder
from tidybert.modeling.encoder import ACTIVATIONS, LowerStates
from tidybert.modeling.initialization import initialize
from tidybert.modeling.kernels.dropout import dropout
from tidybert.modeling.kernels.linear import Linear, linear
from tidybert.modeling.kernels.masked_lm_loss import SummedLoss, masked_lm_loss
from tidybert.modeling.rows import Rows, pad


class BertForSequenceClassification(nn.Module):
    """Dropout and a linear layer on the pooled [CLS]: classes, or a score with num_labels=1."""

    def __init__(self, config: BertConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        self.num_labels = num_labels
        self.bert = build_encoder(config)
        self.classifier = Linear(config.hidden_size, num_labels)
        initialize(self.classifier, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        lower_states: LowerStates | None = None,
    ) -> Tensor:
        """Logits (B, num_labels)."""
        rows = as_rows(input_ids, attention_mask, token_type_ids)[0]
        pooled = dropout(
            self.bert.pooled(rows, lower_states), self.config.classifier_dropout_prob, self.training
        )
        logits: Tensor = self.classifier(pooled)
        return logits


class BertForMultipleChoice(nn.Module):
    """One logit a sequence; the softmax is over the sequences of one question (paper 4.4)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = build_encoder(config)
        self.classifier = Linear(config.hidden_size, 1)
        initialize(self.classifier, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        lower_states: LowerStates | None = None,
    ) -> Tensor:
        """Logits (B,) over Rows; (B, C) over padded (B, C, S) tensors."""
        if not isinstance(input_ids, Rows) and input_ids.dim() == 3:
            shape = input_ids.shape
            flat = (
                None if each is None else each.reshape(-1, shape[2])
                for each in (input_ids, attention_mask, token_type_ids)
            )
            ids, mask, types = flat
            assert ids is not None
            return self.forward(ids, mask, types).view(shape[:2])
        rows = as_rows(input_ids, attention_mask, token_type_ids)[0]
        pooled = dropout(
            self.bert.pooled(rows, lower_states), self.config.classifier_dropout_prob, self.training
        )
        logits: Tensor = self.classifier(pooled)
        return logits[:, 0]


class BertForTokenClassification(nn.Module):
    """Dropout and a linear layer on every token (paper 5.3, table 7)."""

    def __init__(self, config: BertConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        self.num_labels = num_labels
        self.bert = build_encoder(config, add_pooler=False)
        self.classifier = Linear(config.hidden_size, num_labels)
        initialize(self.classifier, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        output_rows: Tensor | None = None,
        lower_states: LowerStates | None = None,
    ) -> Tensor:
        """Logits (T, num_labels), padded (B, S, num_labels), or only those of ``output_rows``."""
        rows, cells = as_rows(input_ids, attention_mask, token_type_ids)
        hidden = self.bert(
            rows, output_rows=output_rows, lower_states=lower_states
        ).last_hidden_state
        hidden = dropout(hidden, self.config.classifier_dropout_prob, self.training)
        return _as_given(self.classifier(hidden), input_ids, cells)


class BertForQuestionAnswering(nn.Module):
    """A start and an end logit for every token (paper 4.2; run_squad.py, create_model)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = build_encoder(config, add_pooler=False)
        self.qa_outputs = Linear(config.hidden_size, 2)
        initialize(self.qa_outputs, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        lower_states: LowerStates | None = None,
    ) -> Tensor:
        """Logits (T, 2), start and end; padded (B, S, 2)."""
        rows, cells = as_rows(input_ids, attention_mask, token_type_ids)
        return _as_given(
            self.qa_outputs(self.bert(rows, lower_states=lower_states).last_hidden_state),
            input_ids,
            cells,
        )


class BertMLMHead(nn.Module):
    """Dense, activation, LayerNorm, and a product with the word embeddings plus a bias.

    Paper 3.1, task 1; run_pretraining.py, get_masked_lm_output.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = ACTIVATIONS[config.hidden_act]
        initialize(self, config.initializer_range)

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """(M, H) states and (V, H) embeddings to logits (M, V)."""
        return linear(self._transformed(hidden), word_embeddings, self.bias)

    def loss(self, hidden: Tensor, word_embeddings: Tensor, labels: Tensor) -> SummedLoss:
        """The loss of labels (M,), without all logits in memory at once."""
        return masked_lm_loss(self._transformed(hidden), word_embeddings, self.bias, labels)

    def _transformed(self, hidden: Tensor) -> Tensor:
        states: Tensor = self.layer_norm(self.activation(self.dense(hidden)))
        return states


class BertForMaskedLM(nn.Module):
    """The encoder with the masked-LM head, whose decoder is the word embeddings."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = build_encoder(config, add_pooler=False)
        self.mlm = BertMLMHead(config)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        masked_lm_positions: Tensor | None = None,
        masked_lm_labels: Tensor | None = None,
    ) -> Tensor | SummedLoss:
        """Logits (T, V) or padded (B, S, V), or (M, V) at the rows that the positions (M,) name.

        With labels of those rows, (M,) int64 and -100 for none, returns their loss instead.
        """
        rows, cells = as_rows(input_ids, attention_mask, token_type_ids)
        hidden = self.bert(rows, output_rows=masked_lm_positions).last_hidden_state
        embeddings = self.bert.word_embeddings.weight
        if masked_lm_labels is not None:
            return self.mlm.loss(hidden, embeddings, masked_lm_labels)
        return _as_given(self.mlm(hidden, embeddings), input_ids, cells)


class BertForNextSentencePrediction(nn.Module):
    """Two classes on the pooled [CLS]: 0 B follows A, 1 it does not (paper 3.1, task 2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = build_encoder(config)
        self.nsp = Linear(config.hidden_size, 2)
        initialize(self.nsp, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, 2)."""
        rows = as_rows(input_ids, attention_mask, token_type_ids)[0]
        logits: Tensor = self.nsp(self.bert.pooled(rows))
        return logits


@dataclass(frozen=True)
class BertForPreTrainingOutput:
    """prediction_logits: (M, V) or as BertForMaskedLM.  seq_relationship_logits: (B, 2).

    With labels, masked_lm_loss replaces prediction_logits.
    """

    prediction_logits: Tensor | None
    seq_relationship_logits: Tensor
    masked_lm_loss: SummedLoss | None = None


class BertForPreTraining(nn.Module):
    """The encoder with both heads of pre-training (paper 3.1; run_pretraining.py)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = build_encoder(config)
        self.mlm = BertMLMHead(config)
        self.nsp = Linear(config.hidden_size, 2)
        initialize(self.nsp, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        masked_lm_positions: Tensor | None = None,
        masked_lm_labels: Tensor | None = None,
    ) -> BertForPreTrainingOutput:
        """Both logits; with positions (M,) the last layer computes only those rows and [CLS].

        With labels of those rows, (M,) int64 and -100 for none, returns their loss instead of the
        words' logits.
        """
        rows, cells = as_rows(input_ids, attention_mask, token_type_ids)
        assert self.bert.pooler is not None
        first = rows.first_rows
        if masked_lm_positions is None:
            hidden = self.bert(rows).last_hidden_state
            first_hidden, masked_hidden = hidden[first], hidden
        else:
            wanted = torch.cat((first, masked_lm_positions))
            hidden = self.bert(rows, output_rows=wanted).last_hidden_state
            first_hidden, masked_hidden = hidden[: len(first)], hidden[len(first) :]
        embeddings = self.bert.word_embeddings.weight
        pairs = self.nsp(self.bert.pooler(first_hidden))
        if masked_lm_labels is not None:
            loss = self.mlm.loss(masked_hidden, embeddings, masked_lm_labels)
            return BertForPreTrainingOutput(None, pairs, loss)
        logits = self.mlm(masked_hidden, embeddings)
        return BertForPreTrainingOutput(_as_given(logits, input_ids, cells), pairs)


def reorder_labels(model: nn.Module, order: Sequence[int]) -> None:
    """Reorder a classifier's outputs: the new output i is the old output ``order[i]``."""
    with torch.no_grad():
        for parameter in model.get_submodule("classifier").parameters():
            parameter.copy_(parameter[torch.tensor(order, device=parameter.device)])


def as_rows(
    input_ids: Rows | Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None
) -> tuple[Rows, Tensor | None]:
    """Rows as they are, or padded tensors unpadded, with the (T,) cells they came from."""
    if isinstance(input_ids, Rows):
        return input_ids, None
    return Rows.from_padded(input_ids, attention_mask, token_type_ids)


def _as_given(logits: Tensor, input_ids: Rows | Tensor, cells: Tensor | None) -> Tensor:
    """(T, C) over Rows; (B, S, C) over padded tensors, with zeros as padding."""
    if isinstance(input_ids, Rows) or cells is None or len(logits) != len(cells):
        return logits
    return pad(logits, cells, input_ids.shape)
