"""BertModel: embeddings, encoder and pooler, over rows of tokens or padded tensors.

Paper section 3; original code: modeling.py, BertModel.  T tokens, B sequences, S longest length,
H width, N heads, L layers, R rows asked for.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling.embeddings import BertEmbeddings
from tidybert.modeling.encoder import BertEncoder, LowerStates
from tidybert.modeling.kernels.linear import Linear
from tidybert.modeling.rows import Rows, pad


@dataclass(frozen=True)
class BertModelOutput:
    """What the encoder found.

    last_hidden_state: (T, H) over rows, (B, S, H) padded with zeros, or (R, H) for ``output_rows``.
    pooler_output: (B, H), or None without a pooler or with ``output_rows``.  hidden_states: L + 1
    tensors of last_hidden_state's shape, the embeddings first, if asked.  attentions: L tensors
    (B, N, S, S), 0 wherever there is no token, if asked.
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


class BertModel(nn.Module):
    """The encoder of the paper.  ``add_pooler=False`` leaves out the dense layer on [CLS]."""

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

        ``output_rows`` (R,) int64, over Rows alone, names the only rows whose last state is wanted:
        the last layer then computes no other.  ``lower_states`` of the same Rows saves the layers
        that computed them.  Raises ValueError for shapes that do not fit, a
        sequence longer than max_position_embeddings, or ids outside their tables (on the CPU).
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
        self._check(rows)
        if output_rows is not None and output_hidden_states:
            raise ValueError("output_rows leaves rows out: it cannot go with output_hidden_states")
        hidden_states: list[Tensor] | None = [] if output_hidden_states else None
        attentions: list[Tensor] | None = [] if output_attentions else None
        if lower_states is not None and output_hidden_states:
            raise ValueError(
                "lower_states leaves layers out: it cannot go with output_hidden_states"
            )
        last = self.encoder(
            lower_states or LowerStates(self.embeddings(rows), num_layers=0),
            rows,
            output_rows=output_rows,
            causal=causal,
            hidden_states=hidden_states,
            attentions=attentions,
        )
        pooled = None
        if self.pooler is not None and output_rows is None:
            pooled = self.pooler(last[rows.first_rows])
        return BertModelOutput(
            last,
            pooled,
            None if hidden_states is None else tuple(hidden_states),
            None if attentions is None else tuple(attentions),
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
        """(T, H): what the embeddings and the lowest layers make of the rows."""
        self._check(rows)
        hidden: Tensor = self.embeddings(rows)
        for layer in self.layers[:num_layers]:
            hidden = layer(hidden, rows)
        return hidden

    def pooled(self, rows: Rows, lower_states: LowerStates | None = None) -> Tensor:
        """(B, H): the pooler's output alone, for which the last layer works on [CLS] rows only."""
        assert self.pooler is not None
        output = self.forward(rows, output_rows=rows.first_rows, lower_states=lower_states)
        pooled: Tensor = self.pooler(output.last_hidden_state)
        return pooled

    def _check(self, rows: Rows) -> None:
        limit = self.config.max_position_embeddings
        if rows.max_seqlen > limit:
            raise ValueError(
                f"a sequence has {rows.max_seqlen} tokens, the model takes at most {limit}: "
                "pass max_seq_length to the tokenizer or cut the text"
            )
        if rows.input_ids.device.type != "cpu":
            return
        for name, ids, size in (
            ("input_ids", rows.input_ids, self.config.vocab_size),
            ("token_type_ids", rows.token_type_ids, self.config.type_vocab_size),
            ("position_ids", rows.position_ids, limit),
        ):
            lowest, highest = int(ids.min()), int(ids.max())
            if lowest < 0 or highest >= size:
                raise ValueError(
                    f"{name} go from {lowest} to {highest}, the model knows 0 to {size - 1}"
                    + ": tokenise with the model's own vocabulary" * (name == "input_ids")
                )


def initialize(module: nn.Module, initializer_range: float) -> None:
    """Draw weights as the original code does; biases 0, LayerNorm 1 and 0.

    The original draws from a normal truncated at two standard deviations (modeling.py,
    create_initializer); Hugging Face draws from a plain normal.
    """
    for part in module.modules():
        initialize_part(part, initializer_range)


def initialize_part(part: nn.Module, initializer_range: float) -> None:
    """The same for the parameters that the module holds itself, its submodules left alone."""
    for name, parameter in part.named_parameters(recurse=False):
        if name == "bias":
            nn.init.zeros_(parameter)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(parameter)
        else:
            bound = 2 * initializer_range
            nn.init.trunc_normal_(parameter, std=initializer_range, a=-bound, b=bound)


def _padded(output: BertModelOutput, cells: Tensor, shape: torch.Size) -> BertModelOutput:
    states, attentions = output.hidden_states, output.attentions
    return BertModelOutput(
        pad(output.last_hidden_state, cells, shape),
        output.pooler_output,
        None if states is None else tuple(pad(each, cells, shape) for each in states),
        None
        if attentions is None
        else tuple(_pad_probs(each, cells, shape) for each in attentions),
    )


def _pad_probs(probs: Tensor, cells: Tensor, shape: torch.Size) -> Tensor:
    """(B, N, S', S') over each sequence's tokens to (B, N, S, S) over the columns given."""
    size, length = shape
    result = probs.new_zeros(size, probs.shape[1], length, length)
    for sequence in range(size):
        columns = cells[cells // length == sequence] % length
        count = len(columns)
        within = probs[sequence, :, :count, :count]
        result[sequence][:, columns[:, None], columns] = within
    return result
