"""The forward pass of an encoder for answers: the same sums as BertEncoder's, in fewer steps.

The plain bodies are ``modeling.encoder.BertEncoder`` and ``BertLayer``.  Weights are laid out when
a model is opened, and held only so.  Rows are filled up to one of a few sizes, because oneDNN makes
kernels for each number of rows: in a layer that takes longer than the products of a short text.
In float32, products are ``PackedLinear``.  In int8 they are ``Int8Linear``; attention, softmax,
LayerNorm and activation are float32.  In bfloat16 they are ``BFloat16Linear`` and states are
rounded too; sums and attention are float32.
T tokens, P rows of which the first T are tokens, H width, R rows asked for.
"""

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
    MOST_ROWS,
    BFloat16Linear,
    Int8Linear,
    Linear,
    PackedLinear,
    cut,
    filled,
    float32_on_a_cpu,
    has_bfloat16_products,
    largest_weight,
    lays_out_float32,
    size_of,
)
from tidybert.modeling.kernels.threads import ChosenThreads
from tidybert.modeling.modernbert import ModernBertLayer, turned, turns_of
from tidybert.modeling.rows import Rows
from tidybert.system.cores import return_freed_memory

# Functions that oneDNN computes inside a product, by its names.
_INSIDE: Final = {
    ACTIVATIONS["gelu"]: ("gelu", "none"),
    ACTIVATIONS["gelu_new"]: ("gelu", "tanh"),
    ACTIVATIONS["gelu_pytorch_tanh"]: ("gelu", "tanh"),
    ACTIVATIONS["relu"]: ("relu", ""),
}
# With larger ones an activation could pass float32's range, and rounding would hide that.
_LARGEST_WEIGHT: Final = 1e6


class AnswerLayer(nn.Module):
    """A BertLayer in evaluation mode and without gradients, with the weights in int8."""

    make_product: type[Int8Linear] | type[PackedLinear] | type[BFloat16Linear] = Int8Linear
    dtype: ClassVar[torch.dtype | None] = None
    """Of the states; None: as they come, float32."""
    is_split: ClassVar[bool] = True
    """Whether what follows attention takes MOST_ROWS at a time."""

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
        count, width = rows.input_ids.shape[0], hidden.shape[1]
        # Attention's kernel for bfloat16 takes 1.2 to 2.2 times as long as float32's on a Zen 5.
        projected = self.query_key_value(hidden)[:count].float()
        if output_rows is rows.first_rows and not causal:
            query, key_value = projected[output_rows, :width], projected[:, width:]
            context = grouped_first_row_attention(query, key_value, rows, self.num_heads, 0.0)
            return self.after_attention(context, hidden[output_rows])
        context = grouped_attention(projected, rows, self.num_heads, 0.0, causal)
        if output_rows is not None:
            return self.after_attention(context[output_rows], hidden[output_rows])
        return self.after_attention(filled(context, hidden.shape[0], hidden.dtype), hidden)

    def after_attention(self, context: Tensor, hidden: Tensor) -> Tensor:
        """(R, H) from attention's context and the layer's input; works row by row."""
        count, size = context.shape[0], size_of(context.shape[0])
        given = filled(context, size, hidden.dtype), filled(hidden, size)
        if not self.is_split or size <= MOST_ROWS:
            return cut(self._of_few(*given), count)
        parts = zip(*(torch.split(each, MOST_ROWS) for each in given), strict=True)
        return cut(torch.cat([self._of_few(*each) for each in parts]), count)

    def _of_few(self, context: Tensor, hidden: Tensor) -> Tensor:
        after_attention, after_output = self._norms
        hidden = torch.layer_norm(self.context_output(context, hidden), *after_attention)
        return torch.layer_norm(self.output(self._expanded(hidden), hidden), *after_output)

    def _expanded(self, hidden: Tensor) -> Tensor:
        if self.intermediate.is_laid_out and self.activation in _INSIDE:
            return self.intermediate(hidden, None, _INSIDE[self.activation])  # type: ignore[no-any-return]
        found: Tensor = self.activation(self.intermediate(hidden))
        return found

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

    make_product, is_split = BFloat16Linear, False
    dtype = torch.bfloat16

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """(P, H) bfloat16 from (P, H) of any dtype."""
        return super().forward(hidden.to(self.dtype), rows, options)


class Float32Layer(AnswerLayer):
    """The same in float32, with the state of the layer that it was made of."""

    make_product, is_split = PackedLinear, False

    def __init__(self, layer: BertLayer) -> None:
        super().__init__(layer)
        mine: dict[str, Any] = {
            "attention.query_key_value": self.query_key_value,
            "attention.output": self.context_output,
            "intermediate": self.intermediate,
            "output": self.output,
        }
        parts = {**dict(layer.named_modules()), **mine}
        names = [name.rpartition(".") for name, _ in layer.named_parameters()]
        self._parts = [(f"{part}.{own}", parts[part], own) for part, _, own in names]

    def state_dict(self, *_: Any, destination: Any = None, prefix: str = "", **__: Any) -> Any:
        """That of the BertLayer; its weights are made anew, and the layer keeps none."""
        found = {} if destination is None else destination
        for name, part, own in self._parts:
            found[prefix + name] = getattr(part, own).detach()
        return found

    def _take_digests(self) -> None:
        """The weights themselves are in the state."""


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
        projected = self.query_key_value(_normed(hidden, self._norms[0]))[:count].float()
        joint = turned(projected, self.num_heads, *turn)
        if output_rows is rows.first_rows and not causal and self.window is None:
            query, key_value = joint[output_rows, :width], joint[:, width:]
            context = grouped_first_row_attention(query, key_value, rows, self.num_heads, 0.0)
            return self.after_attention(context, hidden[output_rows])
        context = grouped_attention(joint, rows, self.num_heads, 0.0, causal, self.window)
        if output_rows is not None:
            return self.after_attention(context[output_rows], hidden[output_rows])
        return self.after_attention(filled(context, hidden.shape[0], hidden.dtype), hidden)

    def _of_few(self, context: Tensor, hidden: Tensor) -> Tensor:
        hidden = self.context_output(context, hidden)
        inner = self.intermediate(_normed(hidden, self._norms[1]))
        expanded, gate = inner.chunk(2, -1)
        return _normed(self.output(self.activation(expanded) * gate, hidden), self._final)


class _BFloat16ModernBertLayer(BFloat16Layer, ModernBertAnswerLayer):
    """The same in bfloat16."""


class _Float32ModernBertLayer(Float32Layer, ModernBertAnswerLayer):
    """The same in float32."""


_OF_MODERNBERT: Final[dict[type[AnswerLayer], type[AnswerLayer]]] = {
    AnswerLayer: ModernBertAnswerLayer,
    BFloat16Layer: _BFloat16ModernBertLayer,
    Float32Layer: _Float32ModernBertLayer,
}


def _normed(hidden: Tensor, norm: tuple[Any, ...]) -> Tensor:
    return torch.layer_norm(hidden, *norm) if norm else hidden


class AnswerEncoder(BertEncoder):
    """The layers of ``plain`` for answers, of one kind; ``plain`` has none after that.

    Passes over few rows run on the threads that are best now.  There are no gradients, and no
    attention_probs: ``load`` opens a model that has them.
    """

    def __init__(self, plain: BertEncoder, kind: type[AnswerLayer]) -> None:
        nn.Module.__init__(self)
        self.layers, self.kind = plain.layers, kind
        self._threads = ChosenThreads()
        for number in range(len(self.layers)):
            layer = self.layers[number]
            assert isinstance(layer, BertLayer)
            made = _OF_MODERNBERT[kind] if isinstance(layer, ModernBertLayer) else kind
            # One after another: each layer's own weights go when the new ones are there.
            self.layers[number] = made(layer)
            del layer
            return_freed_memory()

    # Autocast would round attention's inputs.
    @float32_on_a_cpu
    def forward(self, lower: LowerStates, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """As ``BertEncoder.forward``; ValueError where attention_probs are asked for."""
        if options.attentions is not None:
            raise ValueError("a model that answers has no attentions: open it with tidybert.load")
        hidden, asked = lower.hidden_states, options.output_rows
        count, collects = hidden.shape[0], options.hidden_states is not None
        size = count if collects else size_of(count)

        def run() -> Tensor:
            states = filled(hidden, size, self.kind.dtype)
            return BertEncoder.forward(self, LowerStates(states, lower.num_layers), rows, options)

        if count > MOST_ROWS or lower.num_layers or collects:
            found = run()
        else:
            found = self._threads.run((size, None if asked is None else len(asked)), run)
        return (cut(found, count) if asked is None else found).to(hidden.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Without the times of its passes, which are of this process."""
        return {**self.__dict__, "_threads": ChosenThreads()}


def use_int8(network: nn.Module) -> str | None:
    """Have the network's encoder compute in int8, in place; or say why it cannot."""
    layers = encoder_of(network).layers
    if not isinstance(layers[0], AnswerLayer):
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
    _use(network, AnswerLayer)
    return None


def use_bfloat16(network: nn.Module) -> bool:
    """Have the network's encoder compute in bfloat16, in place; False where oneDNN does not."""
    if not has_bfloat16_products():
        return False
    _use(network, BFloat16Layer)
    return True


def use_float32(network: nn.Module) -> None:
    """Have the network's encoder answer in float32, in place, in fewer steps."""
    _use(network, Float32Layer)


def _use(network: nn.Module, kind: type[AnswerLayer]) -> None:
    encoder = encoder_of(network)
    # Networks of the same weights share it.
    if not isinstance(encoder.encoder, AnswerEncoder):
        encoder.encoder = AnswerEncoder(encoder.encoder, kind)
    # Its products have no gradients, so that one of what is around them would be wrong.
    network.requires_grad_(False)
    if kind is not Float32Layer or lays_out_float32():
        # What stays in float32 has the same bits in any batch.
        for module in network.modules():
            if isinstance(module, Linear):
                module.is_steady = True
