"""The padded forward of a model, which torch.onnx can trace: tensors (B, S) in, tensors out.

It holds the modules of the model that it is given, and writes again only what sees padding:
embeddings, attention's mask and pooling.  Every layer of ours gets three axes, (B, S, H): for two
axes ``linear`` may use an operator that ONNX lacks.
B sequences, S length, N heads, D head width, H width, C choices or classes, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.modeling import heads
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.attention import scaled_dot_product
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import BertLayer
from tidybert.modeling.mean_bert import MeanBertModel


class PaddedModel(nn.Module):
    """An encoder, or a model with a head, as a function of padded tensors; in evaluation mode.

    Args:
        form: what follows an encoder that embeds texts.
    """

    def __init__(self, model: nn.Module, form: SentenceForm | None = None) -> None:
        super().__init__()
        self.model: Any = model.eval()
        self.encoder = encoder_of(model)
        self.form = form
        self.dense = nn.Sequential(*(form.dense if form else ()))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> dict[str, Tensor]:
        """The outputs by the names of optimum's exports; those of an embedding are (B, d).

        Args:
            input_ids, token_type_ids: int64 (B, S), or (B, C, S) for multiple choice.
            attention_mask: the same, 1 for a token and 0 for padding.  Padding may be anywhere, and
                outputs there mean nothing.
        """
        if not isinstance(self.model, heads.BertForMultipleChoice):
            return self._outputs(input_ids, attention_mask != 0, token_type_ids)
        shape = input_ids.shape
        ids, mask, types = (
            each.reshape(-1, shape[2]) for each in (input_ids, attention_mask, token_type_ids)
        )
        found = self._outputs(ids, mask != 0, types)
        return {"logits": found["logits"].reshape(shape[:2])}

    def _outputs(
        self, input_ids: Tensor, is_token: Tensor, token_type_ids: Tensor
    ) -> dict[str, Tensor]:
        model, hidden = self.model, self._states(input_ids, is_token, token_type_ids)
        words = self.encoder.word_embeddings.weight
        match model:
            case heads.BertForSequenceClassification():
                return {"logits": model.classifier(self._pooled(hidden, is_token))[:, 0]}
            case heads.BertForTokenClassification():
                return {"logits": model.classifier(hidden)}
            case heads.BertForQuestionAnswering():
                start, end = model.qa_outputs(hidden).unbind(-1)
                return {"start_logits": start, "end_logits": end}
            case heads.BertForMaskedLM():
                return {"logits": model.mlm(hidden, words)}
            case heads.BertForNextSentencePrediction():
                return {"logits": model.nsp(self._pooled(hidden, is_token))[:, 0]}
            case heads.BertForPreTraining():
                pairs = model.nsp(self._pooled(hidden, is_token))[:, 0]
                return {"logits": model.mlm(hidden, words), "seq_relationship_logits": pairs}
        assert isinstance(model, BertModel)
        if self.form is None:
            return {"last_hidden_state": hidden}
        embedding = self._embedding(hidden, is_token, self.form)
        return {"last_hidden_state": hidden, "sentence_embedding": embedding}

    def _states(self, input_ids: Tensor, is_token: Tensor, token_type_ids: Tensor) -> Tensor:
        """(B, S, H): the last layer's states."""
        tables = self.encoder.embeddings
        hidden = functional.embedding(input_ids, tables.word_embeddings.weight)
        hidden = hidden + tables.position_embeddings.weight[: input_ids.shape[1]]
        hidden = hidden + functional.embedding(token_type_ids, tables.token_type_embeddings.weight)
        hidden = tables.layer_norm(hidden)
        for layer in self.encoder.layers:
            assert isinstance(layer, BertLayer)
            hidden = layer.after_attention(_context(layer, hidden, is_token), hidden)
        return hidden

    def _pooled(self, hidden: Tensor, is_token: Tensor) -> Tensor:
        """(B, 1, H): what a head on whole sequences reads."""
        if isinstance(self.encoder, MeanBertModel):
            return _pooled(hidden, is_token, "mean")
        assert self.encoder.pooler is not None
        found: Tensor = self.encoder.pooler(hidden[:, :1])
        return found

    def _embedding(self, hidden: Tensor, is_token: Tensor, form: SentenceForm) -> Tensor:
        """(B, d): as sentence-transformers makes it."""
        vectors: Tensor = self.dense(_pooled(hidden, is_token, form.pooling)[:, 0])
        if form.normalize:
            vectors = functional.normalize(vectors)
        return vectors[:, : form.truncate_dim]


def _context(layer: BertLayer, hidden: Tensor, is_token: Tensor) -> Tensor:
    """(B, S, H): attention before its output projection; no token sees padding."""
    size, length, width = hidden.shape
    num_heads = layer.attention.num_heads
    projected = layer.attention.query_key_value(hidden)  # (B, S, 3H)
    blocks = projected.view(size, length, 3, num_heads, width // num_heads)
    query, key, value = blocks.permute(2, 0, 3, 1, 4)
    context, _, _ = scaled_dot_product(query, key, value, is_token[:, None, None, :], 0.0)
    return context.transpose(1, 2).reshape(size, length, width)


def _pooled(hidden: Tensor, is_token: Tensor, pooling: str) -> Tensor:
    """(B, 1, H): the mean or max of the tokens' states (B, S, H), or that of [CLS]."""
    if pooling == "cls":
        return hidden[:, :1]
    if pooling == "max":
        return hidden.masked_fill(~is_token[:, :, None], -torch.inf).amax(1, keepdim=True)
    weights = is_token[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
