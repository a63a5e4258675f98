"""The encoder: layers of attention and feed-forward, each followed by add and LayerNorm.

Paper section 3; original code: modeling.py, transformer_model.  T tokens, H width, I intermediate.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tidybert.configuration import BertConfig
from tidybert.modeling.attention import attention, first_row_attention, plain_attention
from tidybert.modeling.kernels.dropout import dropout_add
from tidybert.modeling.kernels.linear import Linear, linear
from tidybert.modeling.rows import Rows


def _gelu_tanh(hidden: Tensor) -> Tensor:
    return functional.gelu(hidden, approximate="tanh")


# "gelu" is the exact one, by the error function, as in the original code.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": functional.relu,
}


def _float32_on_a_cpu() -> torch.autocast:
    """Attention's products are small there, and its float32 body is the fast one."""
    return torch.autocast("cpu", enabled=False)


class BertAttention(nn.Module):
    """Projections around attention; queries, keys and values come from one product."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.query_key_value = Linear(width, 3 * width, fused_blocks=3)
        self.output = Linear(width, width)
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob

    def context(self, hidden: Tensor, rows: Rows, causal: bool) -> Tensor:
        """(T, H), before the output projection."""
        probability = self.dropout_prob if self.training else 0.0
        projected = self.query_key_value(hidden)
        with _float32_on_a_cpu():
            return attention(projected, rows, self.num_heads, probability, causal)

    def first_context(self, hidden: Tensor, rows: Rows) -> Tensor:
        """(B, H): the context of first tokens alone, whose queries are the only ones computed."""
        width = hidden.shape[1]
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        query = linear(hidden[rows.first_rows], weight[:width], bias[:width])
        key_value = linear(hidden, weight[width:], bias[width:])
        probability = self.dropout_prob if self.training else 0.0
        with _float32_on_a_cpu():
            return first_row_attention(query, key_value, rows, self.num_heads, probability)

    def context_and_probs(self, hidden: Tensor, rows: Rows, causal: bool) -> tuple[Tensor, Tensor]:
        """(T, H) and attention_probs (B, N, S, S)."""
        probability = self.dropout_prob if self.training else 0.0
        projected = self.query_key_value(hidden)
        with _float32_on_a_cpu():
            return plain_attention(projected, rows, self.num_heads, probability, causal)


class BertLayer(nn.Module):
    """attention, add and norm; feed-forward, add and norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.attention = BertAttention(config)
        self.attention_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.intermediate = Linear(width, config.intermediate_size, keep_bfloat16=True)
        self.output = Linear(config.intermediate_size, width)
        self.output_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout_prob = config.hidden_dropout_prob

    def forward(
        self,
        hidden: Tensor,
        rows: Rows,
        *,
        output_rows: Tensor | None = None,
        causal: bool = False,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(T, H), or the R rows that ``output_rows`` (R,) names; ``attentions`` collects probs."""
        # A classifier asks for just these rows, and then attention too can leave the others out.
        if output_rows is rows.first_rows and attentions is None and not causal:
            context, hidden = self.attention.first_context(hidden, rows), hidden[output_rows]
        else:
            if attentions is None:
                context = self.attention.context(hidden, rows, causal)
            else:
                context, probs = self.attention.context_and_probs(hidden, rows, causal)
                attentions.append(probs)
            if output_rows is not None:
                # What follows works row by row, so rows that nobody reads are left out.
                context, hidden = context[output_rows], hidden[output_rows]
        return self.after_attention(context, hidden)

    def after_attention(self, context: Tensor, hidden: Tensor) -> Tensor:
        """(R, H): all that follows attention, row by row, on its context and the layer's input."""
        projected = self.attention.output(context)
        hidden = dropout_add(projected, hidden, self.dropout_prob, self.training)
        hidden = self.attention_layer_norm(hidden)
        expanded = self.activation(self.intermediate(hidden))
        projected = self.output(expanded)
        hidden = dropout_add(projected, hidden, self.dropout_prob, self.training)
        normalized: Tensor = self.output_layer_norm(hidden)
        return normalized


@dataclass(frozen=True)
class LowerStates:
    """hidden_states: (T, H), what the embeddings and the lowest ``num_layers`` layers computed."""

    hidden_states: Tensor
    num_layers: int

    def to(self, device: torch.device | str) -> "LowerStates":
        """The same states on another device."""
        return replace(self, hidden_states=self.hidden_states.to(device))


class BertEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))
        #: In training, compute each layer again in the backward, and keep its input alone.
        self.checkpoint_activations = False

    def compile_rows(self, backend: str | Callable[..., object] = "inductor") -> None:
        """torch.compile what works row by row in each layer, one graph for each number of rows.

        Attention is left as it is: what it runs are fused kernels already, and its shapes follow
        from the sequences.
        """
        for layer in self.layers:
            assert isinstance(layer, BertLayer)
            compiled = torch.compile(layer.after_attention, dynamic=False, backend=backend)
            layer.after_attention = compiled  # type: ignore[method-assign]

    def forward(
        self,
        hidden: Tensor,
        rows: Rows,
        *,
        first_layer: int = 0,
        output_rows: Tensor | None = None,
        causal: bool = False,
        hidden_states: list[Tensor] | None = None,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(T, H), or with ``output_rows`` (R,) the last layer's (R, H) at those rows alone.

        ``hidden`` (T, H) is the input of layer ``first_layer``, the embeddings' output by default.
        ``hidden_states`` collects the L + 1 states (T, H), the embeddings first; it excludes
        ``output_rows``.  ``attentions`` collects the L attention_probs (B, N, S, S).
        """
        last = len(self.layers) - 1
        if hidden_states is not None:
            hidden_states.append(hidden)
        for place, layer in enumerate(self.layers):
            if place < first_layer:
                continue
            run = partial(
                layer,
                rows=rows,
                output_rows=output_rows if place == last else None,
                causal=causal,
                attentions=attentions,
            )
            if self.checkpoint_activations and self.training:
                hidden = checkpoint(run, hidden, use_reentrant=False)
            else:
                hidden = run(hidden)
            if hidden_states is not None:
                hidden_states.append(hidden)
        if output_rows is not None and first_layer == len(self.layers):
            hidden = hidden[output_rows]
        return hidden
