"""Heads on the encoder, which they hold as ``.bert`` (paper sections 3.1 and 4; run_*.py).

A head returns logits; losses belong to the tasks.  It also says what its parameters are called at
transformers, what hubs call its work, and its outputs in ONNX; ARCHITECTURES has every head.
T tokens, B sequences, S longest length, R rows asked for, C choices, M masked positions, V
vocabulary, H width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling.architectures import build_encoder
from tidybert.modeling.bert import initialize, initialize_part
from tidybert.modeling.encoder import ACTIVATIONS, LowerStates
from tidybert.modeling.kernels.dropout import LayerNorm, dropout
from tidybert.modeling.kernels.linear import Linear, linear
from tidybert.modeling.kernels.masked_lm_loss import SummedLoss, masked_lm_loss
from tidybert.modeling.rows import Rows, pad


@dataclass(frozen=True, eq=False)
class HeadPart:
    """The layers of a head that stand in the weights together.

    Args:
        words: what a person calls it.
        prefix: what its parameters' names at transformers begin with.
        modules: of a weight and a bias each, our names to transformers'.
        parameters: the others.
        is_fine_tuned: whether fine-tuning adds it, and no pre-training.
    """

    words: str
    prefix: str
    modules: Mapping[str, str]
    parameters: Mapping[str, str] = field(default_factory=dict)
    is_fine_tuned: bool = False


_MLM: Final = HeadPart(
    "the masked-LM head",
    "cls.predictions",
    {
        "mlm.dense": "cls.predictions.transform.dense",
        "mlm.layer_norm": "cls.predictions.transform.LayerNorm",
    },
    {"mlm.bias": "cls.predictions.bias"},
)
NEXT_SENTENCE: Final = HeadPart(
    "the next-sentence head", "cls.seq_relationship", {"nsp": "cls.seq_relationship"}
)
_CLASSIFIER: Final = HeadPart(
    "the classification head", "classifier", {"classifier": "classifier"}, is_fine_tuned=True
)
_ANSWER: Final = HeadPart(
    "the question-answering head", "qa_outputs", {"qa_outputs": "qa_outputs"}, is_fine_tuned=True
)
# transformers does not open language models.
_NEXT_TOKEN: Final = HeadPart("the next-token head", "lm_head", {}, {"output_bias": "lm_head.bias"})

ARCHITECTURES: "Final[dict[str, type[BertWithHead]]]" = {}
"""By the name of its class at transformers, each head on a BERT."""
# By that name, the heads on relatives that are not BERT's, and others that nobody asks for.
_OF_RELATIVES: "Final[dict[str, type[BertWithHead]]]" = {}


class BertWithHead(nn.Module):
    """An encoder, as ``.bert``; a subclass adds a head, and ``of_rows`` to compute its logits."""

    parts: ClassVar[tuple[HeadPart, ...]] = ()
    """The layers above the encoder."""
    pipeline_tag: ClassVar[str | None] = None
    """What model hubs call its work."""
    has_labels: ClassVar[bool] = False
    """Whether its outputs are labels, whose number it is built with."""
    takes_choices: ClassVar[bool] = False
    """Whether several sequences are one example."""

    of_rows: Callable[..., Any]

    def __init_subclass__(cls) -> None:
        if cls.__name__.startswith("BertFor"):
            # PyTorch's tracing makes classes of the same names.
            ARCHITECTURES.setdefault(cls.__name__, cls)
        _OF_RELATIVES.setdefault(cls.__name__, cls)

    @classmethod
    def built(cls, config: BertConfig, num_labels: int) -> Self:
        """The model with random weights; ``num_labels`` where its outputs are labels."""
        own: Any = _OF_RELATIVES.get(config.family.class_name(cls.__name__), cls)
        return own(config, num_labels) if cls.has_labels else own(config)  # type: ignore[no-any-return]

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        """Its outputs in ONNX, by optimum's names.

        Args:
            hidden: (B, S, H) the last layer's states, with padding.
            pooled: gives (B, 1, H), what a head on whole sequences reads.
        """
        raise NotImplementedError

    def __init__(self, config: BertConfig, add_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.bert = build_encoder(config, add_pooler)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **named: Any,
    ) -> Any:
        """``of_rows`` of Rows, or of padded (B, S) tensors; ``named`` are its other arguments."""
        if isinstance(input_ids, Rows):
            return self.of_rows(input_ids, **named)
        rows, cells = Rows.from_padded(input_ids, attention_mask, token_type_ids)
        return self.padded(self.of_rows(rows, **named), cells, input_ids.shape)

    def padded(self, found: Any, cells: Tensor, shape: torch.Size) -> Any:
        """The result of ``of_rows`` for padded tensors, as ``forward`` returns it."""
        return found


class BertWithTokenHead(BertWithHead):
    """A head on every token, without a pooler: logits (T, C), or padded (B, S, C)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, add_pooler=False)

    def padded(self, found: Any, cells: Tensor, shape: torch.Size) -> Any:
        return _padded(found, cells, shape)


class BertForSequenceClassification(BertWithHead):
    """Dropout and a linear layer on the pooled [CLS]: classes, or a score with num_labels=1."""

    parts = (_CLASSIFIER,)
    pipeline_tag = "text-classification"
    has_labels = True

    def __init__(self, config: BertConfig, num_labels: int) -> None:
        super().__init__(config)
        self.num_labels = num_labels
        self.classifier = Linear(config.hidden_size, num_labels)
        initialize_part(self.classifier, config.initializer_range, is_truncated=False)

    def of_rows(self, rows: Rows, *, lower_states: LowerStates | None = None) -> Tensor:
        """Logits (B, num_labels)."""
        logits: Tensor = self.classifier(self.head_inputs(rows, lower_states=lower_states))
        return logits

    def head_inputs(self, rows: Rows, *, lower_states: LowerStates | None = None) -> Tensor:
        """The states (B, H) that the linear layer reads."""
        pooled = self.bert.pooled(rows, lower_states)
        return dropout(pooled, self.config.classifier_dropout_prob, self.training)

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        return {"logits": self.classifier(pooled())[:, 0]}


class BertForMultipleChoice(BertForSequenceClassification):
    """One logit a sequence; the softmax is over the sequences of one question (paper 4.4)."""

    pipeline_tag = "multiple-choice"
    has_labels = False
    takes_choices = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, num_labels=1)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **named: Any,
    ) -> Any:
        """Logits (B,) over Rows; (B, C) over padded (B, C, S) tensors."""
        if isinstance(input_ids, Rows) or input_ids.dim() != 3:
            return super().forward(input_ids, attention_mask, token_type_ids, **named)
        shape = input_ids.shape
        mask, types = (
            None if each is None else each.reshape(-1, shape[2])
            for each in (attention_mask, token_type_ids)
        )
        flat = input_ids.reshape(-1, shape[2])
        return super().forward(flat, mask, types, **named).view(shape[:2])

    def of_rows(self, rows: Rows, *, lower_states: LowerStates | None = None) -> Tensor:
        """Logits (B,)."""
        return super().of_rows(rows, lower_states=lower_states)[:, 0]


class BertForTokenClassification(BertWithTokenHead):
    """Dropout and a linear layer on every token (paper 5.3, table 7)."""

    parts = (_CLASSIFIER,)
    pipeline_tag = "token-classification"
    has_labels = True

    def __init__(self, config: BertConfig, num_labels: int) -> None:
        super().__init__(config)
        self.num_labels = num_labels
        self.classifier = Linear(config.hidden_size, num_labels)
        initialize_part(self.classifier, config.initializer_range, is_truncated=False)

    def of_rows(
        self,
        rows: Rows,
        *,
        output_rows: Tensor | None = None,
        lower_states: LowerStates | None = None,
    ) -> Tensor:
        """Logits (T, num_labels), or only those of ``output_rows`` (R,)."""
        hidden = self.head_inputs(rows, output_rows=output_rows, lower_states=lower_states)
        logits: Tensor = self.classifier(hidden)
        return logits

    def head_inputs(
        self,
        rows: Rows,
        *,
        output_rows: Tensor | None = None,
        lower_states: LowerStates | None = None,
    ) -> Tensor:
        """The states (T, H), or (R, H), that the linear layer reads."""
        states = self.bert(rows, output_rows=output_rows, lower_states=lower_states)
        hidden = states.last_hidden_state
        return dropout(hidden, self.config.classifier_dropout_prob, self.training)

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        return {"logits": self.classifier(hidden)}


class BertForQuestionAnswering(BertWithTokenHead):
    """A start and an end logit for every token (paper 4.2; run_squad.py, create_model)."""

    parts = (_ANSWER,)
    pipeline_tag = "question-answering"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.qa_outputs = Linear(config.hidden_size, 2)
        initialize_part(self.qa_outputs, config.initializer_range, is_truncated=False)

    def of_rows(self, rows: Rows, *, lower_states: LowerStates | None = None) -> Tensor:
        """Logits (T, 2): start and end."""
        logits: Tensor = self.qa_outputs(self.head_inputs(rows, lower_states=lower_states))
        return logits

    def head_inputs(self, rows: Rows, *, lower_states: LowerStates | None = None) -> Tensor:
        """The states (T, H) that the linear layer reads."""
        hidden: Tensor = self.bert(rows, lower_states=lower_states).last_hidden_state
        return hidden

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        start, end = self.qa_outputs(hidden).unbind(-1)
        return {"start_logits": start, "end_logits": end}


class BertMLMHead(nn.Module):
    """Dense, activation, LayerNorm, and a product with the word embeddings plus a bias.

    Paper 3.1, task 1; run_pretraining.py, get_masked_lm_output.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, bias = config.embedding_width, config.head_biases
        self.dense = Linear(config.hidden_size, width, bias)
        self.layer_norm = LayerNorm(width, eps=config.layer_norm_eps, bias=bias)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = ACTIVATIONS[config.head_act]
        initialize(self, config.initializer_range)

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """(M, H) states and (V, E) embeddings to logits (M, V)."""
        return linear(self._transformed(hidden), word_embeddings, self.bias)

    def loss(self, hidden: Tensor, word_embeddings: Tensor, labels: Tensor) -> SummedLoss:
        """The loss of labels (M,), without all logits in memory at once."""
        return masked_lm_loss(self._transformed(hidden), word_embeddings, self.bias, labels)

    def _transformed(self, hidden: Tensor) -> Tensor:
        states: Tensor = self.layer_norm(self.activation(self.dense(hidden)))
        return states


class BertForMaskedLM(BertWithTokenHead):
    """The encoder with the masked-LM head, whose decoder is the word embeddings."""

    parts = (_MLM,)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.mlm = BertMLMHead(config)

    def of_rows(
        self,
        rows: Rows,
        *,
        masked_lm_positions: Tensor | None = None,
        masked_lm_labels: Tensor | None = None,
    ) -> Tensor | SummedLoss:
        """Logits (T, V), or (M, V) at the rows that the positions (M,) name.

        With labels of those rows, (M,) int64 and -100 for none, returns their loss instead.
        """
        hidden = self.bert(rows, output_rows=masked_lm_positions).last_hidden_state
        embeddings = self.bert.word_embeddings.weight
        if masked_lm_labels is not None:
            return self.mlm.loss(hidden, embeddings, masked_lm_labels)
        logits: Tensor = self.mlm(hidden, embeddings)
        return logits

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        return {"logits": self.mlm(hidden, self.bert.word_embeddings.weight)}


class CausalLM(BertWithTokenHead):
    """The left-to-right transformer with its output layer, which is the word embeddings and a bias.

    The logits of a row are those of the token after it.
    """

    parts = (_NEXT_TOKEN,)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))

    def of_rows(
        self,
        rows: Rows,
        *,
        masked_lm_positions: Tensor | None = None,
        masked_lm_labels: Tensor | None = None,
    ) -> Tensor | SummedLoss:
        """As ``BertForMaskedLM.of_rows``; the labels are the next tokens."""
        hidden = self.bert(rows, output_rows=masked_lm_positions).last_hidden_state
        if masked_lm_labels is None:
            return self.logits(hidden)
        embeddings = self.bert.word_embeddings.weight
        return masked_lm_loss(hidden, embeddings, self.output_bias, masked_lm_labels)

    def logits(self, hidden: Tensor) -> Tensor:
        """(M, H) states to (M, V)."""
        return linear(hidden, self.bert.word_embeddings.weight, self.output_bias)


class BertForNextSentencePrediction(BertWithHead):
    """Two classes on the pooled [CLS]: 0 B follows A, 1 it does not (paper 3.1, task 2)."""

    parts = (NEXT_SENTENCE,)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.nsp = Linear(config.hidden_size, 2)
        initialize(self.nsp, config.initializer_range)

    def of_rows(self, rows: Rows) -> Tensor:
        """Logits (B, 2)."""
        logits: Tensor = self.nsp(self.bert.pooled(rows))
        return logits

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        return {"logits": self.nsp(pooled())[:, 0]}


@dataclass(frozen=True)
class BertForPreTrainingOutput:
    """prediction_logits: (M, V) or as BertForMaskedLM.  seq_relationship_logits: (B, 2).

    With labels, masked_lm_loss replaces prediction_logits.
    """

    prediction_logits: Tensor | None
    seq_relationship_logits: Tensor
    masked_lm_loss: SummedLoss | None = None


class BertForPreTraining(BertWithHead):
    """The encoder with both heads of pre-training (paper 3.1; run_pretraining.py)."""

    parts = (_MLM, NEXT_SENTENCE)

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.mlm = BertMLMHead(config)
        self.nsp = Linear(config.hidden_size, 2)
        initialize(self.nsp, config.initializer_range)

    def of_rows(
        self,
        rows: Rows,
        *,
        masked_lm_positions: Tensor | None = None,
        masked_lm_labels: Tensor | None = None,
    ) -> BertForPreTrainingOutput:
        """Both logits; with positions (M,) the last layer computes only those rows and [CLS].

        With labels of those rows, (M,) int64 and -100 for none, returns their loss instead of the
        words' logits.
        """
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
        return BertForPreTrainingOutput(self.mlm(masked_hidden, embeddings), pairs)

    def padded(self, found: Any, cells: Tensor, shape: torch.Size) -> Any:
        return replace(found, prediction_logits=_padded(found.prediction_logits, cells, shape))

    def exported(self, hidden: Tensor, pooled: Callable[[], Tensor]) -> dict[str, Tensor]:
        words = self.mlm(hidden, self.bert.word_embeddings.weight)
        return {"logits": words, "seq_relationship_logits": self.nsp(pooled())[:, 0]}


_HEADS: Final[list[type[BertWithHead]]] = [*ARCHITECTURES.values(), CausalLM]
HEAD_PARTS: Final = tuple(dict.fromkeys(part for each in _HEADS for part in each.parts))
"""The layers of all heads."""


# ModernBERT's heads on tokens read its dense layer's output, as those on sequences do.


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


def reorder_labels(model: nn.Module, order: Sequence[int]) -> None:
    """Reorder a classifier's outputs: the new output i is the old output ``order[i]``."""
    with torch.no_grad():
        for parameter in model.get_submodule("classifier").parameters():
            parameter.copy_(parameter[torch.tensor(order, device=parameter.device)])


def _padded(found: Any, cells: Tensor, shape: torch.Size) -> Any:
    """Logits (T, C) of all tokens to (B, S, C), with zeros as padding; else ``found`` itself."""
    is_per_token = isinstance(found, Tensor) and len(found) == len(cells)
    return pad(found, cells, shape) if is_per_token else found
