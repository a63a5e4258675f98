"""ModernBERT's encoder: rotary positions, windows, norms before the layers' parts, gated units.

Papers: Warner et al. 2024, "Smarter, Better, Faster, Longer" (ModernBERT); Su et al. 2021,
"RoFormer" (rotary positions); Shazeer 2020, "GLU variants"; Beltagy et al. 2020, "Longformer"
(windows).  T tokens, B sequences, H width, N heads, D head width, R rows asked for.
"""

from typing import Any

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.configuration.relatives import ModernBertConfig
from tidybert.modeling.attention import PLAIN_PASS, BertAttention, PassOptions, plain_attention
from tidybert.modeling.bert import BertModel, BertPooler, initialize
from tidybert.modeling.embeddings import BertEmbeddings
from tidybert.modeling.encoder import ACTIVATIONS, BertEncoder, BertLayer, LowerStates
from tidybert.modeling.kernels.dropout import LayerNorm, dropout, dropout_add
from tidybert.modeling.kernels.fast_attention import attention
from tidybert.modeling.kernels.linear import Linear, cut
from tidybert.modeling.rows import Rows, pooled


def turns(position_ids: Tensor, theta: float, head_width: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine (…, 1, 1, D / 2) of the angles by which positions (…,) turn pairs."""
    exponents = torch.arange(0, head_width, 2, device=position_ids.device) / head_width
    angles = position_ids.float()[..., None, None, None] / theta**exponents
    return angles.cos(), angles.sin()


def turns_of(rows: Rows, theta: float, head_width: int) -> tuple[Tensor, Tensor]:
    """``turns`` of the rows, computed once for all layers of one theta."""
    key = turns, theta
    if key not in rows.derived:
        # A tensor made in inference mode could not serve a backward later.
        with torch.inference_mode(False):
            rows.derived[key] = turns(rows.position_ids, theta, head_width)
    found: tuple[Tensor, Tensor] = rows.derived[key]
    return found


def turned(joint: Tensor, num_heads: int, cosine: Tensor, sine: Tensor) -> Tensor:
    """(…, 3H): the joint projection, its queries and keys turned by their positions.

    A pair is a number of a head's first half and the one at its place in the second.
    """
    parts = joint.view(*joint.shape[:-1], 3, num_heads, 2, -1)
    query_key, value = parts[..., :2, :, :, :], parts[..., 2:, :, :, :]
    first, second = query_key.unbind(-2)
    pairs = torch.stack((first * cosine - second * sine, second * cosine + first * sine), -2)
    return torch.cat((pairs.to(joint.dtype), value), -4).flatten(-4)


class ModernBertEmbeddings(BertEmbeddings):
    """Words alone: LayerNorm, dropout.  Attention knows the positions."""

    def __init__(self, config: BertConfig) -> None:
        nn.Module.__init__(self)
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layer_norm = _norm(config)
        self.dropout_prob = config.hidden_dropout_prob

    def summands(self, rows: Rows) -> tuple[Tensor, ...]:
        """(T, H): of the tokens."""
        return (self.word_embeddings(rows.input_ids),)


class ModernBertAttention(BertAttention):
    """Attention whose queries and keys are turned by their positions; ``window`` bounds its reach.

    A token sees those at most ``window`` places away, or all where it is None.
    """

    def __init__(self, config: ModernBertConfig, layer: int) -> None:
        nn.Module.__init__(self)
        width, is_global = config.hidden_size, config.is_global(layer)
        self.query_key_value = Linear(width, 3 * width, False, fused_blocks=3)
        self.output = Linear(width, width, False)
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.theta = config.global_rope_theta if is_global else config.local_rope_theta
        self.window = None if is_global else config.local_attention // 2

    def joint(self, hidden: Tensor, position_ids: Tensor) -> Tensor:
        """(…, 3H) from states (…, H) at positions (…,)."""
        width = hidden.shape[-1] // self.num_heads
        turn = turns(position_ids, self.theta, width)
        return turned(self.query_key_value(hidden), self.num_heads, *turn)

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """Context (T, H), or (R, H) of ``output_rows``, before the output projection."""
        probability = self.dropout_prob if self.training else 0.0
        given = (rows, self.num_heads, probability, options.causal, self.window)
        turn = turns_of(rows, self.theta, hidden.shape[1] // self.num_heads)
        projected = turned(self.query_key_value(hidden), self.num_heads, *turn)
        if options.attentions is None:
            context = attention(projected, *given)
        else:
            context, probs = plain_attention(projected, *given)
            options.attentions.append(probs)
        return context if options.output_rows is None else context[options.output_rows]


class ModernBertLayer(BertLayer):
    """Norm, attention, add; norm, gated feed-forward, add.

    The first layer has no norm before its attention, and the last has one after everything.
    """

    attention: Any
    attention_layer_norm: Any

    def __init__(self, config: ModernBertConfig, layer: int) -> None:
        nn.Module.__init__(self)
        width, inner = config.hidden_size, config.intermediate_size
        is_last = layer == config.num_hidden_layers - 1
        self.attention = ModernBertAttention(config, layer)
        self.attention_layer_norm = _norm(config) if layer else nn.Identity()
        self.intermediate = Linear(width, 2 * inner, False, feeds_product=True, fused_blocks=2)
        self.output = Linear(inner, width, False)
        self.output_layer_norm = _norm(config)
        self.final_layer_norm = _norm(config) if is_last else nn.Identity()
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, hidden: Tensor, rows: Rows, options: PassOptions = PLAIN_PASS) -> Tensor:
        """(T, H), or the R rows that ``output_rows`` (R,) names."""
        context = self.attention(self.attention_layer_norm(hidden), rows, options)
        if options.output_rows is not None:
            hidden = hidden[options.output_rows]
        return self.after_attention(context, hidden)

    def joint(self, hidden: Tensor, position_ids: Tensor) -> Tensor:
        """(…, 3H): the queries, keys and values that attention reads of states (…, H)."""
        joint: Tensor = self.attention.joint(self.attention_layer_norm(hidden), position_ids)
        return joint

    def after_attention(self, context: Tensor, hidden: Tensor) -> Tensor:
        """(R, H) from attention's context and the layer's input; works row by row."""
        projected = self.attention.output(context)
        hidden = dropout_add(projected, hidden, self.attention.dropout_prob, self.training)
        expanded, gate = self.intermediate(self.output_layer_norm(hidden)).chunk(2, -1)
        gated = dropout(self.activation(expanded) * gate, self.dropout_prob, self.training)
        projected = cut(self.output(gated), hidden.shape[0])
        normalized: Tensor = self.final_layer_norm(hidden + projected)
        return normalized


class ModernBertEncoder(BertEncoder):
    """The stack of these layers."""

    def __init__(self, config: ModernBertConfig) -> None:
        nn.Module.__init__(self)
        numbers = range(config.num_hidden_layers)
        self.layers = nn.ModuleList(ModernBertLayer(config, number) for number in numbers)


class ModernBertPooler(BertPooler):
    """Dense, activation, norm, of any states: every head reads it, on tokens too."""

    def __init__(self, config: BertConfig) -> None:
        nn.Module.__init__(self)
        self.dense = Linear(config.hidden_size, config.hidden_size, False)
        self.norm = _norm(config)
        self.activation = ACTIVATIONS[config.head_act]

    def forward(self, first_hidden_state: Tensor) -> Tensor:
        """(B, H) to (B, H)."""
        normalized: Tensor = self.norm(self.activation(self.dense(first_hidden_state)))
        return normalized

    def pass_through(self) -> None:
        """Change nothing: what is left of 0 would be lost, and pre-training may have trained it."""


class ModernBertModel(BertModel):
    """The encoder; a head on whole sequences reads the first token, or the mean of all."""

    def __init__(self, config: BertConfig, add_pooler: bool = True) -> None:
        nn.Module.__init__(self)
        assert isinstance(config, ModernBertConfig)
        self.config = config
        self.embeddings = ModernBertEmbeddings(config)
        self.encoder = ModernBertEncoder(config)
        self.pooler = ModernBertPooler(config) if add_pooler else None
        initialize(self, config.initializer_range)

    def pooled(self, rows: Rows, lower_states: LowerStates | None = None) -> Tensor:
        """(B, H): the pooler's output alone."""
        if self.config.pooling == "cls":
            return super().pooled(rows, lower_states)
        assert self.pooler is not None
        output = self.forward(rows, lower_states=lower_states)
        found: Tensor = self.pooler(pooled(output.last_hidden_state, rows, "mean"))
        return found


def _norm(config: BertConfig) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=False)
