"""Token, position and segment embeddings.

Paper section 3, figure 2; original code: modeling.py, embedding_postprocessor.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.configuration import BertConfig
from tidybert.modeling.kernels.dropout import dropout
from tidybert.modeling.rows import Rows


class BertEmbeddings(nn.Module):
    """Rows of ids to rows of width H: the three embeddings' sum, LayerNorm, dropout."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, rows: Rows) -> Tensor:
        """(T, H)."""
        hidden = self.word_embeddings(rows.input_ids)
        hidden = hidden + self.position_embeddings(rows.position_ids)
        weight = self.token_type_embeddings.weight
        if hidden.device.type == "cpu":
            # A product with a one-hot matrix: the lookup's backward would add T rows one by one.
            types = functional.one_hot(rows.token_type_ids, weight.shape[0])
            # Autocast would round a product, and with it the sum, to half precision.
            with torch.autocast("cpu", enabled=False):
                hidden = torch.addmm(hidden, types.to(hidden.dtype), weight)
        else:
            hidden = hidden + functional.embedding(rows.token_type_ids, weight)
        return dropout(self.layer_norm(hidden), self.dropout_prob, self.training)
