"""The forward pass of an encoder for answers: the same sums as BertEncoder's, in fewer steps.

The plain bodies are ``modeling.encoder.BertEncoder`` and ``BertLayer``.  A pass over few rows has
its weights laid out before, and its rows filled up to one of a few sizes, because oneDNN makes
kernels for each number of rows: in a layer that takes longer than the products of a short text.
In int8, products are ``Int8Linear``; attention, softmax, LayerNorm and activation are float32.
In bfloat16, products are ``BFloat16Linear`` and states are rounded too; sums are float32.
T tokens, P rows of which the first T are tokens, H width, R rows asked for.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn

from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.attention import PLAIN_PASS, PassOptions
from tidybert.modeling.encoder import ACTIVATIONS, BertEncoder, BertLayer, LowerStates
from tidybert.modeling.kernels.fast_attention import (
    grouped_attention,
    grouped_first_row_attention,
)
from tidybert.modeling.kernels.linear import (
    BFloat16Linear,
    Int8Linear,
    Linear,
    PackedLinear,
    has_bfloat16_products,
    largest_weight,
    linear,
)
from tidybert.modeling.kernels.sizes import MOST_ROWS, cut, filled, size_of
from tidybert.modeling.kernels.threads import ChosenThreads, return_freed_memory
from tidybert.modeling.modernbert import ModernBertLayer, turned, turns_of
from tidybert.modeling.rows import Rows

# Functions that oneDNN computes inside a product, by its names.
_INSIDE: Final = {
    ACTIVATIONS["gelu"]: ("gelu", "none"),
    ACTIVATIONS["gelu_new"]: ("gelu", "tanh"),
    ACTIVATIONS["gelu_pytorch_tanh"]: ("gelu", "tanh"),
    ACTIVATIONS["relu"]: ("relu", ""),
}
# With larger ones an activation could pass float32's range, and rounding would hide that.
_LARGEST_WEIGHT: Final = 1e6
# The first chunks of a file are so small, and are no reason to hold the weights twice.
_PASSES_WITHOUT_A_PLAN: Final = 8


class AnswerLayer(nn.Module):
    """A BertLayer in evaluation mode and without gradients, with the weights in int8."""

    make_product: type[Int8Linear] | type[PackedLinear] | type[BFloat16Linear] = Int8Linear
    dtype: ClassVar[torch.dtype | None] = None
    """Of the states; None: as they come, float32."""

    def __init__(self, layer: BertLayer) -> None:
        super().__init__()
        projections = layer.attention
        self.num_heads = projections.num_heads
        self.query_key_value = self._product(projections.query_key_value)
        self.context_output = self._product(projections.output)
        self.intermediate = self._product(layer.intermediate)
        self.output = self._product(layer.output)
        self.activation = layer.activation
        self.attention_layer_norm = layer.attention_layer_norm
        self.output_layer_norm = layer.output_layer_norm
        # A module looks its parts up by name each time, which takes longer than adding two states.
        self._norms = list(map(_norm_of, (layer.attention_layer_norm, layer.output_layer_norm)))
        self._take_digests()

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """(P, H), or the R rows that ``output_rows`` (R,) names, from (P, H); P may be T."""
        assert options.attentions is None
        output_rows, causal = options.output_rows, options.causal
        count = rows.input_ids.shape[0]
        if output_rows is rows.first_rows and not causal:
            query, key_value = self._of_first_rows(hidden, output_rows)
            context = grouped_first_row_attention(
                query, key_value[:count], rows, self.num_heads, 0.0
            )
            return self.after_attention(context, hidden[output_rows])
        projected = self.query_key_value(hidden)[:count]
        context = grouped_attention(projected, rows, self.num_heads, 0.0, causal)
        if output_rows is not None:
            return self.after_attention(context[output_rows], hidden[output_rows])
        return self.after_attention(filled(context, hidden.shape[0]), hidden)

    def after_attention(self, context: Tensor, hidden: Tensor) -> Tensor:
        """(R, H) from attention's context and the layer's input; works row by row."""
        count, size = context.shape[0], size_of(context.shape[0])
        given = filled(context, size), filled(hidden, size)
        if size <= MOST_ROWS:
            return cut(self._of_few(*given), count)
        parts = zip(*(torch.split(each, MOST_ROWS) for each in given), strict=True)
        return cut(torch.cat([self._of_few(*each) for each in parts]), count)

    def _of_few(self, context: Tensor, hidden: Tensor) -> Tensor:
        after_attention, after_output = self._norms
        hidden = torch.layer_norm(self.context_output(context, hidden), *after_attention)
        return torch.layer_norm(self.output(self._expanded(hidden), hidden), *after_output)

    def _expanded(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.activation(self.intermediate(hidden))
        return found

    def _of_first_rows(self, hidden: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Queries (B, H) of the rows that ``first`` (B,) names, keys and values (P, 2H) of all."""
        projected, width = self.query_key_value(hidden), hidden.shape[1]
        return projected[first, :width], projected[:, width:]

    def _product(self, given: Linear) -> Any:
        weight = given.weight.detach()
        bias = weight.new_zeros(len(weight)) if given.bias is None else given.bias.detach()
        return self.make_product(weight, bias)

    def _take_digests(self) -> None:
        products = (self.query_key_value, self.context_output, self.intermediate, self.output)
        digests = bytearray().join(each.digest for each in products)
        # It is in the state, so that a hash of the model's weights depends on these too.
        self.register_buffer("digests", torch.frombuffer(digests, dtype=torch.uint8))


class BFloat16Layer(AnswerLayer):
    """The same in bfloat16, with the activation inside its product."""

    make_product = BFloat16Linear
    dtype = torch.bfloat16

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """(P, H) bfloat16 from (P, H) of any dtype."""
        return super().forward(hidden.to(self.dtype), rows, options)

    def _expanded(self, hidden: Tensor) -> Tensor:
        if self.activation in _INSIDE:
            return self.intermediate(hidden, None, _INSIDE[self.activation])  # type: ignore[no-any-return]
        return super()._expanded(hidden)


class _PackedLayer(AnswerLayer):
    """The same in float32, with the bits of BertLayer; its weights are held twice."""

    make_product = PackedLinear

    def __init__(self, layer: BertLayer) -> None:
        super().__init__(layer)
        self._joint = (layer.attention.query_key_value.weight, layer.attention.query_key_value.bias)

    def _of_first_rows(self, hidden: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = self._joint
        width = hidden.shape[1]
        query = linear(hidden[first], weight[:width], bias[:width])
        return query, self._keys_and_values(hidden)

    @cached_property
    def _keys_and_values(self) -> PackedLinear:
        weight, bias = self._joint
        width = weight.shape[1]
        return PackedLinear(weight[width:], bias[width:])

    def _take_digests(self) -> None:
        """The weights themselves are in the model's state."""


def _norm_of(module: Any) -> tuple[Any, ...]:
    """The arguments of torch.layer_norm after its input; none for a norm that changes nothing."""
    if isinstance(module, nn.Identity):
        return ()
    return module.normalized_shape, module.weight, module.bias, module.eps


class ModernBertAnswerLayer(AnswerLayer):
    """The same of a ModernBertLayer."""

    def __init__(self, layer: ModernBertLayer) -> None:
        super().__init__(layer)
        self.theta, self.window = layer.attention.theta, layer.attention.window
        self.final_layer_norm = layer.final_layer_norm
        self._final = _norm_of(layer.final_layer_norm)

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """(P, H), or the R rows that ``output_rows`` (R,) names, from (P, H); P may be T."""
        assert options.attentions is None
        output_rows, causal = options.output_rows, options.causal
        count, width = rows.input_ids.shape[0], hidden.shape[1]
        turn = turns_of(rows, self.theta, width // self.num_heads)
        projected = self.query_key_value(_normed(hidden, self._norms[0]))[:count]
        joint = turned(projected, self.num_heads, *turn)
        if output_rows is rows.first_rows and not causal and self.window is None:
            query, key_value = joint[output_rows, :width], joint[:, width:]
            context = grouped_first_row_attention(query, key_value, rows, self.num_heads, 0.0)
            return self.after_attention(context, hidden[output_rows])
        context = grouped_attention(joint, rows, self.num_heads, 0.0, causal, self.window)
        if output_rows is not None:
            return self.after_attention(context[output_rows], hidden[output_rows])
        return self.after_attention(filled(context, hidden.shape[0]), hidden)

    def _of_few(self, context: Tensor, hidden: Tensor) -> Tensor:
        hidden = self.context_output(context, hidden)
        inner = self.intermediate(_normed(hidden, self._norms[1]))
        expanded, gate = inner.chunk(2, -1)
        return _normed(self.output(self.activation(expanded) * gate, hidden), self._final)


class _BFloat16ModernBertLayer(BFloat16Layer, ModernBertAnswerLayer):
    """The same in bfloat16."""


class _PackedModernBertLayer(_PackedLayer, ModernBertAnswerLayer):
    """The same in float32; its weights are held twice."""


_OF_MODERNBERT: Final[dict[type[AnswerLayer], type[AnswerLayer]]] = {
    AnswerLayer: ModernBertAnswerLayer,
    BFloat16Layer: _BFloat16ModernBertLayer,
    _PackedLayer: _PackedModernBertLayer,
}


def _answering(kind: type[AnswerLayer], layer: Any) -> AnswerLayer:
    """The layer for answers, of this kind or as ModernBERT has it."""
    return (_OF_MODERNBERT[kind] if isinstance(layer, ModernBertLayer) else kind)(layer)


def _normed(hidden: Tensor, norm: tuple[Any, ...]) -> Tensor:
    return torch.layer_norm(hidden, *norm) if norm else hidden


class AnswerEncoder(BertEncoder):
    """A BertEncoder in evaluation mode, which takes a planned pass for few rows.

    It has the layers of ``plain``, and nothing more in its state.  Gradients, causal passes, hooks
    of a layer, and passes that collect states or attention_probs go the plain way, as do many rows
    in float32.
    """

    def __init__(self, plain: BertEncoder) -> None:
        nn.Module.__init__(self)
        self.layers = plain.layers
        self._threads = ChosenThreads()
        #: The kind of its layers, where they are not BertLayers.
        self.kind: type[AnswerLayer] | None = None
        self._plan: list[AnswerLayer] = []
        # The parameters as they were when the plan was made, and the sum of their versions.
        self._planned: tuple[list[nn.Parameter], int] = ([], 0)
        # All modules of the layers: a plan calls none, so it leaves their hooks out.
        self._watched: list[nn.Module] = []
        self._num_passes = 0

    def forward(self, lower: LowerStates, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """As ``BertEncoder.forward``."""
        hidden = lower.hidden_states
        count, asked, dtype = hidden.shape[0], options.output_rows, None
        if self.kind is not None:
            dtype = self.kind.dtype
        elif torch.is_autocast_enabled("cpu"):
            return super().forward(lower, rows, options)
        layers: list[AnswerLayer] = []
        is_whole = not lower.num_layers and options.hidden_states is None is options.attentions
        if count <= MOST_ROWS and is_whole and not options.causal and not torch.is_grad_enabled():
            layers = self._layers_for_few()
        if not layers:
            if self.kind is None:
                return super().forward(lower, rows, options)
            size = count if options.hidden_states is not None else size_of(count)
            states = LowerStates(filled(hidden, size, dtype), lower.num_layers)
            found = super().forward(states, rows, options)
            return (cut(found, count) if asked is None else found).to(hidden.dtype)
        size = size_of(count)

        def planned() -> Tensor:
            states = filled(hidden, size, dtype)
            for layer in layers[:-1]:
                states = layer.forward(states, rows)
            return layers[-1].forward(states, rows, options)

        found = self._threads.run((size, None if asked is None else len(asked)), planned)
        return (cut(found, count) if asked is None else found).to(hidden.dtype)

    def plan(self) -> list[AnswerLayer]:
        """The layers for few rows: lays weights out, unless that is done and they are unchanged."""
        parameters, version = self._planned
        if not self._plan or _version(parameters) != version:
            layers: Any = self.layers
            kind = self.kind or _PackedLayer
            self._plan = list(layers) if self.kind else [_answering(kind, each) for each in layers]
            parameters = list(self.layers.parameters())
            self._planned = parameters, _version(parameters)
            self._watched = list(self.layers.modules())
        return self._plan

    def _layers_for_few(self) -> list[AnswerLayer]:
        self._num_passes += 1
        is_early = self._num_passes <= _PASSES_WITHOUT_A_PLAN and not self._plan
        if is_early:
            return []
        plan = self.plan()
        hooked = any(each._forward_hooks or each._forward_pre_hooks for each in self._watched)
        return [] if hooked else plan

    def __getstate__(self) -> dict[str, Any]:
        """Without the plan, which neither a copy nor another process can take over."""
        fresh = {"_plan": [], "_planned": ([], 0), "_watched": [], "_threads": ChosenThreads()}
        return {**self.__dict__, **fresh}


def _version(parameters: Iterable[Tensor]) -> int:
    """A number that changes with every change in place, except of tensors of inference mode."""
    return sum(0 if each.is_inference() else each._version for each in parameters)


def plan_answers(network: nn.Module) -> AnswerEncoder:
    """Have the network's encoder answer few rows by a plan, in place; returns its layers' stack."""
    encoder = encoder_of(network)
    if not isinstance(encoder.encoder, AnswerEncoder):
        encoder.encoder = AnswerEncoder(encoder.encoder)
    return encoder.encoder


def use_int8(network: nn.Module) -> str | None:
    """Have the network's encoder compute in int8, in place; or say why it stays in float32.

    Its layers become ``AnswerLayer``s, unless they are.  What stays in float32 becomes steady.
    """
    stack = plan_answers(network)
    layers = stack.layers
    if stack.kind is None:
        if not largest_weight():
            return (
                "this processor, or this build of PyTorch, has no exact products of 8-bit integers"
            )
        weights = [each for layer in layers for each in layer.parameters()]
        if any(each.shape[-1] % 4 for each in weights):
            return "the layers' widths are not multiples of 4"
        if not all(each.abs().max() <= _LARGEST_WEIGHT for each in weights):
            return f"the layers have weights beyond {_LARGEST_WEIGHT:,.0f}"
        del weights
        _replace(stack, AnswerLayer)
    _make_steady(network)
    return None


def use_bfloat16(network: nn.Module) -> bool:
    """Have the network's encoder compute in bfloat16, in place; False where oneDNN does not."""
    stack = plan_answers(network)
    if stack.kind is None:
        if not has_bfloat16_products():
            return False
        _replace(stack, BFloat16Layer)
    _make_steady(network)
    return True


def _replace(stack: AnswerEncoder, kind: type[AnswerLayer]) -> None:
    layers = stack.layers
    for number in range(len(layers)):
        layer = layers[number]
        assert isinstance(layer, BertLayer)
        # One after another: each layer's float32 weights go when its own are there.
        layers[number] = _answering(kind, layer)
        del layer
        return_freed_memory()
    stack.kind, stack._plan = kind, []


def _make_steady(network: nn.Module) -> None:
    """What stays in float32 has the same bits in any batch."""
    for module in network.modules():
        if isinstance(module, Linear):
            module.is_steady = True
