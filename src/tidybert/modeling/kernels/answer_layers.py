"""The encoder's layers for answers in int8: the same sums as BertLayer's, in fewer passes.

The plain body is ``modeling.encoder.BertLayer``.  Products are ``Int8Linear``; attention, softmax,
LayerNorm and activation are float32.  T tokens, H width, R rows asked for.
"""

from typing import Final

import torch
from torch import Tensor, nn

from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.encoder import BertLayer
from tidybert.modeling.kernels.grouped_attention import (
    grouped_attention,
    grouped_first_row_attention,
)
from tidybert.modeling.kernels.int8_linear import MOST_ROWS, Int8Linear, largest_weight
from tidybert.modeling.kernels.linear import Linear
from tidybert.modeling.kernels.threads import return_freed_memory
from tidybert.modeling.rows import Rows

# With larger ones an activation could pass float32's range, and rounding would hide that.
_LARGEST_WEIGHT: Final = 1e6


class AnswerLayer(nn.Module):
    """A BertLayer in evaluation mode, with the weights of its products in int8."""

    def __init__(self, layer: BertLayer) -> None:
        super().__init__()
        projections = layer.attention
        self.num_heads = projections.num_heads
        self.query_key_value = _int8(projections.query_key_value)
        self.context_output = _int8(projections.output)
        self.intermediate = _int8(layer.intermediate)
        self.output = _int8(layer.output)
        self.activation = layer.activation
        self.attention_layer_norm = layer.attention_layer_norm
        self.output_layer_norm = layer.output_layer_norm
        products = (self.query_key_value, self.context_output, self.intermediate, self.output)
        digests = bytearray().join(each.digest for each in products)
        # It is in the state, so that a hash of the model's weights depends on these too.
        self.register_buffer("digests", torch.frombuffer(digests, dtype=torch.uint8))

    def forward(
        self,
        hidden: Tensor,
        rows: Rows,
        *,
        output_rows: Tensor | None = None,
        causal: bool = False,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(T, H), or the R rows that ``output_rows`` (R,) names."""
        assert attentions is None
        projected, width = self.query_key_value(hidden), hidden.shape[1]
        if output_rows is rows.first_rows and not causal:
            query, key_value = projected[output_rows, :width], projected[:, width:]
            context = grouped_first_row_attention(query, key_value, rows, self.num_heads, 0.0)
        else:
            context = grouped_attention(projected, rows, self.num_heads, 0.0, causal)
            if output_rows is not None:
                context = context[output_rows]
        if output_rows is not None:
            hidden = hidden[output_rows]
        return self.after_attention(context, hidden)

    def after_attention(self, context: Tensor, hidden: Tensor) -> Tensor:
        """(R, H) from attention's context and the layer's input; works row by row."""
        if len(context) <= MOST_ROWS:
            return self._of_few(context, hidden)
        parts = zip(torch.split(context, MOST_ROWS), torch.split(hidden, MOST_ROWS), strict=True)
        return torch.cat([self._of_few(*each) for each in parts])

    def _of_few(self, context: Tensor, hidden: Tensor) -> Tensor:
        hidden = self.attention_layer_norm(self.context_output(context).add_(hidden))
        expanded = self.activation(self.intermediate(hidden))
        found: Tensor = self.output_layer_norm(self.output(expanded).add_(hidden))
        return found


def _int8(linear: Linear) -> Int8Linear:
    return Int8Linear(linear.weight.detach(), linear.bias.detach())


def use_int8(network: nn.Module) -> str | None:
    """Have the network's encoder compute in int8, in place; or say why it stays in float32.

    Its layers become ``AnswerLayer``s.  What stays in float32 becomes steady.
    """
    layers = encoder_of(network).layers
    if not largest_weight():
        return "this processor, or this build of PyTorch, has no exact products of 8-bit integers"
    weights = [each for layer in layers for each in layer.parameters()]
    if any(each.shape[-1] % 4 for each in weights):
        return "the layers' widths are not multiples of 4"
    if not all(each.abs().max() <= _LARGEST_WEIGHT for each in weights):
        return f"the layers have weights beyond {_LARGEST_WEIGHT:,.0f}"
    del weights
    for number in range(len(layers)):
        layer = layers[number]
        assert isinstance(layer, BertLayer)
        # One after another: each layer's float32 weights go when its int8 weights are there.
        layers[number] = AnswerLayer(layer)
        del layer
        return_freed_memory()
    for module in network.modules():
        if isinstance(module, Linear):
            module.is_steady = True
    return None
