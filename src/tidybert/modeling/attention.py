"""Self-attention: the only layer that sees where sequences begin.

Paper: Vaswani et al. 2017, section 3.2; original code: modeling.py, attention_layer.
T tokens, B sequences, S longest length, N heads, D head width, H = N * D width, R rows asked for.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling.kernels.dropout import dropout
from tidybert.modeling.kernels.fast_attention import attention, first_row_attention
from tidybert.modeling.kernels.linear import Linear, float32_on_a_cpu, linear
from tidybert.modeling.rows import Rows


@dataclass(frozen=True)
class PassOptions:
    """What one forward pass is asked for.

    output_rows: (R,) int64, the only rows that the last layer computes; None for all.
    causal: a token sees only itself and the tokens before it.
    hidden_states: collects the states (T, H), those below the first layer and each layer's.
    attentions: collects each layer's attention_probs (B, N, S, S).
    """

    output_rows: Tensor | None = None
    causal: bool = False
    hidden_states: list[Tensor] | None = None
    attentions: list[Tensor] | None = None


PLAIN_PASS = PassOptions()


def scaled_dot_product(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor, probability: float
) -> tuple[Tensor, Tensor, Tensor]:
    """softmax(Q K^T / sqrt(D)) V: context (B, N, S, D), probs and scores (B, N, S, S) before them.

    query, key and value are (B, N, S, D).  visible (B, 1, S, S) is True where a token (row) sees
    another (column).  ``probability`` drops attention weights.
    """
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # (B, N, S, S)
    # A row that sees nothing, past the end of its sequence, would be NaN with -inf.
    probs = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1) * visible
    context = dropout(probs, probability, training=probability > 0.0) @ value
    return context, probs, scores


@float32_on_a_cpu
def plain_attention(
    query_key_value: Tensor,
    rows: Rows,
    num_heads: int,
    probability: float,
    causal: bool = False,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Context (T, H) from the joint projection (T, 3H), and attention_probs (B, N, S, S).

    It works on padded blocks, where padding has the probability 0.  kernels/fast_attention.py
    computes the same context faster.
    """
    size, longest, width = rows.num_sequences, rows.max_seqlen, query_key_value.shape[1] // 3
    column = torch.arange(longest, device=query_key_value.device)
    is_token = column < torch.tensor(rows.lengths, device=column.device)[:, None]  # (B, S)
    blocks = query_key_value.new_zeros(size, longest, 3 * width)
    blocks[is_token] = query_key_value
    query, key, value = blocks.view(size, longest, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
    visible = is_token[:, None, :, None] & is_token[:, None, None, :]  # (B, 1, S, S)
    if causal:
        visible = visible & (column <= column[:, None])
    if window is not None:
        visible = visible & ((column - column[:, None]).abs() <= window)
    context, probs, _ = scaled_dot_product(query, key, value, visible, probability)
    return context.transpose(1, 2).reshape(size, longest, width)[is_token], probs


class BertAttention(nn.Module):
    """Attention between its projections; queries, keys and values come from one product."""

    #: How many places away a token sees, on each side; None for all.
    window: int | None = None

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.query_key_value = Linear(width, 3 * width, fused_blocks=3)
        self.output = Linear(width, width)
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """Context (T, H), or (R, H) of ``output_rows``, before the output projection."""
        output_rows, causal, attentions = options.output_rows, options.causal, options.attentions
        probability = self.dropout_prob if self.training else 0.0
        if output_rows is rows.first_rows and attentions is None and not causal:
            return self._of_first_rows(hidden, rows, probability)
        projected = self.query_key_value(hidden)  # (T, 3H)
        if attentions is None:
            context = attention(projected, rows, self.num_heads, probability, causal)
        else:
            context, probs = plain_attention(projected, rows, self.num_heads, probability, causal)
            attentions.append(probs)
        return context if output_rows is None else context[output_rows]

    def _of_first_rows(self, hidden: Tensor, rows: Rows, probability: float) -> Tensor:
        """(B, H): a classifier reads [CLS] alone, so no other query is computed."""
        width = hidden.shape[1]
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        query = linear(hidden[rows.first_rows], weight[:width], bias[:width])  # (B, H)
        key_value = linear(hidden, weight[width:], bias[width:])  # (T, 2H)
        return first_row_attention(query, key_value, rows, self.num_heads, probability)
