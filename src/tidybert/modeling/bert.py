"""BertModel: embeddings, encoder and pooler, over rows of tokens or padded tensors.

Paper section 3; original code: modeling.py, BertModel.  T tokens, B sequences, S longest length,
H width, N heads, L layers, R rows asked for.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling.attention import PassOptions
from tidybert.modeling.embeddings import BertEmbeddings
from tidybert.modeling.encoder import BertEncoder, LowerStates
from tidybert.modeling.kernels.linear import Linear
from tidybert.modeling.rows import Rows, pad, pad_probs


@dataclass(frozen=True)
class BertModelOutput:
    """The encoder's states.

    last_hidden_state: (T, H) over rows, (B, S, H) padded with zeros, or (R, H) for ``output_rows``.
    pooler_output: (B, H), or None without a pooler or with ``output_rows``.  hidden_states: L + 1
    tensors of last_hidden_state's shape, the embeddings first, if asked.  attentions: L tensors
    (B, N, S, S), 0 for padding, if asked.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class BertPooler(nn.Module):
    """tanh of a dense layer on [CLS] (modeling.py, "pooler")."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_hidden_state: Tensor) -> Tensor:
        """(B, H) to (B, H)."""
        return torch.tanh(self.dense(first_hidden_state))

    @torch.no_grad()
    def pass_through(self) -> None:
        """Set the weights so that the output is tanh of [CLS] itself."""
        nn.init.eye_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)


class BertModel(nn.Module):
    """The encoder of the paper.  ``add_pooler=False`` leaves out the dense layer on [CLS]."""

    #: Whether a token sees only itself and the tokens before it, whatever ``forward`` is asked.
    is_causal: ClassVar[bool] = False

    def __init__(self, config: BertConfig, add_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooler else None
        initialize(self, config.initializer_range)

    def forward(
        self,
        input_ids: Rows | Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        lower_states: LowerStates | None = None,
        output_rows: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        causal: bool = False,
    ) -> BertModelOutput:
        """Encode Rows, or padded (B, S) tensors, which are unpadded here, once.

        ``output_rows`` (R,) int64 names the only rows that the last layer computes.
        ``lower_states`` of the same Rows replace the embeddings and the lowest layers.  Both need
        Rows, and neither goes with ``output_hidden_states``.  ``causal`` lets a token see only
        itself and the tokens before it.  Raises ValueError for shapes that do not fit, a sequence
        longer than max_position_embeddings, or ids outside their tables (on the CPU).
        """
        if not isinstance(input_ids, Rows):
            rows, cells = Rows.from_padded(input_ids, attention_mask, token_type_ids, position_ids)
            output = self.forward(
                rows,
                output_hidden_states=output_hidden_states,
                output_attentions=output_attentions,
                causal=causal,
            )
            return _padded(output, cells, input_ids.shape)
        rows = input_ids
        rows.check(self.config)
        if output_rows is not None and output_hidden_states:
            raise ValueError("output_rows leaves rows out: not with output_hidden_states")
        if lower_states is not None and output_hidden_states:
            raise ValueError("lower_states leaves layers out: not with output_hidden_states")
        options = PassOptions(
            output_rows,
            causal or self.is_causal,
            hidden_states=[] if output_hidden_states else None,
            attentions=[] if output_attentions else None,
        )
        lower = lower_states or LowerStates(self.embeddings(rows), num_layers=0)
        last = self.encoder(lower, rows, options)
        pooled = None
        if self.pooler is not None and output_rows is None:
            pooled = self.pooler(last[rows.first_rows])
        collected = (options.hidden_states, options.attentions)
        return BertModelOutput(
            last, pooled, *(None if each is None else tuple(each) for each in collected)
        )

    @property
    def layers(self) -> nn.ModuleList:
        """The L layers, each (T, H) to (T, H)."""
        return self.encoder.layers

    @property
    def word_embeddings(self) -> nn.Embedding:
        """The table (V, H) of the vocabulary's vectors."""
        return self.embeddings.word_embeddings

    def lowest_states(self, rows: Rows, num_layers: int) -> Tensor:
        """(T, H): the output of the embeddings and the lowest ``num_layers`` layers."""
        rows.check(self.config)
        hidden: Tensor = self.embeddings(rows)
        options = PassOptions(causal=self.is_causal)
        if num_layers == len(self.layers):
            whole: Tensor = self.encoder(LowerStates(hidden, 0), rows, options)
            return whole
        for layer in self.layers[:num_layers]:
            hidden = layer(hidden, rows, options)
        return hidden

    def pooled(self, rows: Rows, lower_states: LowerStates | None = None) -> Tensor:
        """(B, H): the pooler's output alone; the last layer computes only the rows of [CLS]."""
        assert self.pooler is not None
        output = self.forward(rows, output_rows=rows.first_rows, lower_states=lower_states)
        pooled: Tensor = self.pooler(output.last_hidden_state)
        return pooled


def _padded(output: BertModelOutput, cells: Tensor, shape: torch.Size) -> BertModelOutput:
    states, attentions = output.hidden_states, output.attentions
    return BertModelOutput(
        pad(output.last_hidden_state, cells, shape),
        output.pooler_output,
        None if states is None else tuple(pad(each, cells, shape) for each in states),
        None if attentions is None else tuple(pad_probs(each, cells, shape) for each in attentions),
    )


def initialize(module: nn.Module, initializer_range: float) -> None:
    """Draw all weights from a normal truncated at two standard deviations; biases are 0, gains 1.

    Original code: modeling.py, create_initializer.
    """
    for part in module.modules():
        initialize_part(part, initializer_range)


def initialize_part(
    part: nn.Module, initializer_range: float, *, is_truncated: bool = True
) -> None:
    """The same for the module's own parameters, without its submodules.

    Heads for fine-tuning come from a plain normal, ``is_truncated=False``, as in transformers.
    """
    for name, parameter in part.named_parameters(recurse=False):
        if name == "bias":
            nn.init.zeros_(parameter)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(parameter)
        elif not is_truncated:
            nn.init.normal_(parameter, std=initializer_range)
        else:
            bound = 2 * initializer_range
            nn.init.trunc_normal_(parameter, std=initializer_range, a=-bound, b=bound)
