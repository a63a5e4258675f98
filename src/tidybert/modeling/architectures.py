"""The encoders that a config.json can name, by its model_type.

A new encoder is a class and one line in ``ENCODERS``; another body is a file, as ``modernbert.py``
is.  Heads and training use only these members of BertModel:

- ``embeddings(rows)`` gives (T, H) from its ``summands(rows)``;
- each of ``layers`` maps (T, H) to (T, H);
- ``word_embeddings`` is the table (V, H) that the masked-LM head shares;
- ``pooler`` is a module from (B, H) to (B, H), or None;
- ``layer.after_attention`` works row by row, so torch.compile can take it alone;
- ``layer.joint`` gives the queries, keys and values that attention reads, within its ``window``;
- a weight of several matrices, one above the other, says so: ``Linear(..., fused_blocks=3)``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig, CausalConfig
from tidybert.configuration.relatives import RelativeConfig
from tidybert.modeling.bert import BertModel, BertPooler, initialize
from tidybert.modeling.embeddings import BertEmbeddings
from tidybert.modeling.encoder import ACTIVATIONS, BertLayer, LowerStates
from tidybert.modeling.kernels.dropout import dropout
from tidybert.modeling.kernels.fast_attention import attention, first_row_attention
from tidybert.modeling.kernels.linear import Linear
from tidybert.modeling.modernbert import ModernBertModel
from tidybert.modeling.rows import Rows, pooled

# The encoders of BERT's relatives, put together from BERT's parts and what differs.
#
# transformers calls the dense layer of a relative's head on whole sequences a part of that head;
# here it is the encoder's pooler, so the heads are BERT's.  T tokens, B sequences, H width, E width
# of the embeddings.

_POOLER_ACTS: Final[dict[str, Callable[[Tensor], Tensor]]] = {**ACTIVATIONS, "tanh": torch.tanh}
# Numbers of a state after its LayerNorm are rarely below -4.
_RIGHT: Final = 4.0


class RelativePooler(BertPooler):
    """An activation of a dense layer on the first token, with dropout before it in some."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        assert config.pooler_act is not None
        self.activation = _POOLER_ACTS[config.pooler_act]
        assert isinstance(config, RelativeConfig)
        self.dropout_prob = config.classifier_dropout_prob if config.drops_first else 0.0

    def forward(self, first_hidden_state: Tensor) -> Tensor:
        """(B, H) to (B, H)."""
        dropped = dropout(first_hidden_state, self.dropout_prob, self.training)
        return self.activation(self.dense(dropped))

    @torch.no_grad()
    def pass_through(self) -> None:
        """Set the weights so that the output has all that is in the first token's state."""
        super().pass_through()
        if self.activation is not torch.tanh:
            # The other activations are 0 left of 0, and the identity far right of it.
            nn.init.constant_(self.dense.bias, _RIGHT)


class DistilBertEmbeddings(BertEmbeddings):
    """The sum of words' and positions' embeddings; a text has no segments."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        del self.token_type_embeddings
        initialize(self, config.initializer_range)

    def summands(self, rows: Rows) -> tuple[Tensor, ...]:
        """(T, H) each: of the tokens and the positions."""
        return self.word_embeddings(rows.input_ids), self.position_embeddings(rows.position_ids)


class ElectraEmbeddings(BertEmbeddings):
    """BERT's of width E, and a dense layer to the width of the layers where that is another."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        narrow, width = config.embedding_width, config.hidden_size
        self.projection = Linear(narrow, width) if narrow != width else nn.Identity()
        initialize(self, config.initializer_range)

    def forward(self, rows: Rows) -> Tensor:
        """(T, H)."""
        hidden: Tensor = self.projection(super().forward(rows))
        return hidden


class RelativeModel(BertModel):
    """BertModel with a relative's embeddings and pooler: its layers are BERT's."""

    embeddings_class: ClassVar[type[BertEmbeddings] | None] = None

    def __init__(self, config: BertConfig, add_pooler: bool = True) -> None:
        super().__init__(config, add_pooler=False)
        if self.embeddings_class is not None:
            self.embeddings = self.embeddings_class(config)
        if add_pooler:
            self.pooler = RelativePooler(config)
            initialize(self.pooler, config.initializer_range)


class DistilBertModel(RelativeModel):
    """The layers of BERT over embeddings without segments."""

    embeddings_class = DistilBertEmbeddings


class ElectraModel(RelativeModel):
    """The layers of BERT over narrower embeddings."""

    embeddings_class = ElectraEmbeddings


# An encoder whose pooled output is the mean of its tokens' states; it has no pooler.
#
# transformers knows no such BERT, so a MODEL of it has a model_type of its own, which transformers
# refuses.  T tokens, B sequences, H width.


class MeanBertModel(BertModel):
    """BertModel without a pooler; a head reads the mean of all tokens instead of [CLS]."""

    def __init__(self, config: BertConfig, add_pooler: bool = True) -> None:
        super().__init__(config, add_pooler=False)

    def pooled(self, rows: Rows, lower_states: LowerStates | None = None) -> Tensor:
        """(B, H): the mean of the last states of each sequence, special tokens included."""
        output = self.forward(rows, lower_states=lower_states)
        return pooled(output.last_hidden_state, rows, "mean")


# The transformer that reads from left to right: BERT's layers, each token blind to later ones.
#
# Paper: Vaswani et al.  2017, "Attention is all you need", sections 3.4 and 3.5.  Its layers are
# those of modeling/encoder.py, with ``causal=True``.  T tokens, t new tokens, P positions, H width,
# L layers.


def sinusoids(num_positions: int, width: int) -> Tensor:
    """(P, H) float32: PE(pos, 2i) = sin(pos / 10000^(2i / H)), PE(pos, 2i + 1) its cosine."""
    positions = torch.arange(num_positions, dtype=torch.float64)[:, None]
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = positions / 10_000.0**exponents  # (P, ceil(H / 2))
    waves = torch.stack((angles.sin(), angles.cos()), 2).flatten(1)
    return waves[:, :width].float()


class CausalEmbeddings(BertEmbeddings):
    """Rows of ids to rows of width H: words times sqrt(H), plus positions; LayerNorm, dropout.

    Learned positions begin as the sinusoids.  A text has no segments.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        assert isinstance(config, CausalConfig)
        del self.token_type_embeddings
        initialize(self, config.initializer_range)
        self.scale = math.sqrt(config.hidden_size)
        positions = self.position_embeddings.weight
        with torch.no_grad():
            positions.copy_(sinusoids(*positions.shape))
        positions.requires_grad_(config.positions == "learned")

    def summands(self, rows: Rows) -> tuple[Tensor, ...]:
        """(T, H) each: of the tokens, scaled, and the positions."""
        words = self.scale * self.word_embeddings(rows.input_ids)
        return words, self.position_embeddings(rows.position_ids)


@dataclass
class KeyValueCache:
    """The keys and values of one sequence's tokens so far: (T, 2H) for each layer."""

    num_tokens: int = 0
    of_layers: list[Tensor] = field(default_factory=list)


class CausalModel(BertModel):
    """BertModel without segments and pooler, whose tokens see only those before them."""

    is_causal = True

    def __init__(self, config: BertConfig, add_pooler: bool = False) -> None:
        super().__init__(config, add_pooler=False)
        self.embeddings = CausalEmbeddings(config)

    def extend(self, input_ids: Tensor, cache: KeyValueCache) -> Tensor:
        """(t, H): the last states of the sequence's next tokens (t,); the cache then has them too.

        The first call takes any number of tokens, each later one a single token.  Dropout is off.
        """
        begin, count = cache.num_tokens, len(input_ids)
        assert count == 1 or not begin
        end = begin + count
        new = _rows(input_ids, begin)
        new.check(self.config)
        hidden: Tensor = self.embeddings(new)
        # What a single query attends to: one sequence of all tokens so far.
        seen = Rows.from_flat(np.zeros(end, np.int64), None, (end,)).to(hidden.device)
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, BertLayer)
            part = layer.attention
            projected = part.query_key_value(hidden)  # (t, 3H)
            width = hidden.shape[1]
            if begin:
                known = torch.cat((cache.of_layers[number], projected[:, width:]))
                cache.of_layers[number] = known
                query = projected[:, :width]
                context = first_row_attention(query, known, seen, part.num_heads, 0.0)
            else:
                cache.of_layers.append(projected[:, width:])
                context = attention(projected, new, part.num_heads, 0.0, causal=True)
            hidden = layer.after_attention(context, hidden)
        cache.num_tokens = end
        return hidden


def _rows(input_ids: Tensor, begin: int) -> Rows:
    """One sequence's rows (t,), which begin at position ``begin``."""
    count = len(input_ids)
    positions = torch.arange(begin, begin + count, device=input_ids.device)
    starts = torch.tensor([0, count], dtype=torch.int32).to(input_ids.device)
    return Rows(input_ids, torch.zeros_like(input_ids), positions, starts, (count,))


ENCODERS: Final[dict[str, type[BertModel]]] = {
    "bert": BertModel,
    "bert-mean": MeanBertModel,
    "causal-lm": CausalModel,
    "roberta": RelativeModel,
    "camembert": RelativeModel,
    "xlm-roberta": RelativeModel,
    "distilbert": DistilBertModel,
    "electra": ElectraModel,
    "modernbert": ModernBertModel,
}


def build_encoder(config: BertConfig, add_pooler: bool = True) -> BertModel:
    """The encoder that ``config.model_type`` names, with new random weights."""
    return ENCODERS[config.model_type](config, add_pooler=add_pooler)


def encoder_of(model: nn.Module) -> BertModel:
    """The encoder inside a model with a head, or the model itself where it is an encoder."""
    known = tuple(ENCODERS.values())
    return next(part for part in model.modules() if isinstance(part, known))
