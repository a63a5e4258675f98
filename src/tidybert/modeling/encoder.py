"""The encoder: layers of attention and feed-forward, each followed by add and LayerNorm.

Paper section 3; original code: modeling.py, transformer_model.
T tokens, B sequences, S longest length, H width, N heads, L layers, R rows asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.configuration import BertConfig
from tidybert.modeling.attention import PLAIN_PASS, BertAttention, PassOptions
from tidybert.modeling.kernels.dropout import LayerNorm, dropout_add
from tidybert.modeling.kernels.linear import Linear, cut
from tidybert.modeling.kernels.transfer import to_device
from tidybert.modeling.rows import Rows

# "gelu" is the exact one, by the error function, as in the original code.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class BertLayer(nn.Module):
    """Attention, add and norm; feed-forward, add and norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.attention = BertAttention(config)
        self.attention_layer_norm = LayerNorm(width, eps=config.layer_norm_eps)
        self.intermediate = Linear(width, config.intermediate_size, feeds_product=True)
        self.output = Linear(config.intermediate_size, width)
        self.output_layer_norm = LayerNorm(width, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """(T, H), or the R rows that ``output_rows`` (R,) names."""
        context = self.attention(hidden, rows, options)
        if options.output_rows is not None:
            hidden = hidden[options.output_rows]
        return self.after_attention(context, hidden)

    def joint(self, hidden: Tensor, position_ids: Tensor) -> Tensor:
        """(…, 3H): the queries, keys and values that attention reads of states (…, H)."""
        joint: Tensor = self.attention.query_key_value(hidden)
        return joint

    def after_attention(self, context: Tensor, hidden: Tensor) -> Tensor:
        """(R, H) from attention's context and the layer's input; works row by row."""
        projected = self.attention.output(context)
        hidden = dropout_add(projected, hidden, self.dropout_prob, self.training)
        hidden = self.attention_layer_norm(hidden)
        expanded = self.activation(self.intermediate(hidden))
        projected = cut(self.output(expanded), hidden.shape[0])
        hidden = dropout_add(projected, hidden, self.dropout_prob, self.training)
        normalized: Tensor = self.output_layer_norm(hidden)
        return normalized


@dataclass(frozen=True)
class LowerStates:
    """hidden_states: (T, H), the output of the embeddings and lowest ``num_layers`` layers."""

    hidden_states: Tensor
    num_layers: int

    def to(self, device: torch.device | str) -> "LowerStates":
        """The same states on another device."""
        return replace(self, hidden_states=to_device(self.hidden_states, device))


class BertEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, lower: LowerStates, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """(T, H), or with ``output_rows`` (R,) the last layer's (R, H) at those rows alone.

        ``hidden_states``, which excludes ``output_rows``, begins with those of ``lower``.
        """
        hidden = lower.hidden_states
        if lower.num_layers == len(self.layers) and options.output_rows is not None:
            return hidden[options.output_rows]
        if options.hidden_states is not None:
            options.hidden_states.append(hidden)
        of_all_rows = replace(options, output_rows=None)
        for layer in islice(self.layers, lower.num_layers, None):
            is_last = layer is self.layers[-1]
            hidden = layer(hidden, rows, options if is_last else of_all_rows)
            if options.hidden_states is not None:
                options.hidden_states.append(hidden)
        return hidden
