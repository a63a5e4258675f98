"""Token, position and segment embeddings.

Paper section 3, figure 2; original code: modeling.py, embedding_postprocessor.  T tokens, H width.
"""

from functools import reduce

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling.kernels.dropout import LayerNorm, dropout
from tidybert.modeling.kernels.linear import small_table_embedding
from tidybert.modeling.rows import Rows


class BertEmbeddings(nn.Module):
    """Rows of ids to rows of width H: the three embeddings' sum, LayerNorm, dropout."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_width
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.layer_norm = LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout_prob = config.hidden_dropout_prob

    def summands(self, rows: Rows) -> tuple[Tensor, ...]:
        """(T, H) each: of the tokens, the positions and the segments."""
        return (
            self.word_embeddings(rows.input_ids),
            self.position_embeddings(rows.position_ids),
            small_table_embedding(rows.token_type_ids, self.token_type_embeddings.weight),
        )

    def forward(self, rows: Rows) -> Tensor:
        """(T, H)."""
        hidden = reduce(torch.add, self.summands(rows))
        return dropout(self.layer_norm(hidden), self.dropout_prob, self.training)
