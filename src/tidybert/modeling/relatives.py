"""The encoders of BERT's relatives, put together from BERT's parts and what differs.

transformers calls the dense layer of a relative's head on whole sequences a part of that head; here
it is the encoder's pooler, so the heads are BERT's.  T tokens, B sequences, H width, E width of the
embeddings.
"""

from collections.abc import Callable
from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.configuration.relatives import RelativeConfig
from tidybert.modeling.bert import BertModel, BertPooler, initialize
from tidybert.modeling.embeddings import BertEmbeddings
from tidybert.modeling.encoder import ACTIVATIONS
from tidybert.modeling.kernels.dropout import dropout
from tidybert.modeling.kernels.linear import Linear
from tidybert.modeling.rows import Rows

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
