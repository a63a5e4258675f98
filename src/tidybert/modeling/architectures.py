"""The encoders that a config.json can name, by its model_type.

A new encoder is one file with a class and one line in ``ENCODERS``.  Heads and training use only
these members of BertModel:

- ``embeddings(rows)`` gives (T, H) from its ``summands(rows)``;
- each of ``layers`` maps (T, H) to (T, H);
- ``word_embeddings`` is the table (V, H) that the masked-LM head shares;
- ``pooler`` is a module from (B, H) to (B, H), or None;
- ``layer.after_attention`` works row by row, so torch.compile can take it alone;
- a weight of several matrices, one above the other, says so: ``Linear(..., fused_blocks=3)``.
"""

from typing import Final

from torch import nn

from tidybert.configuration import BertConfig
from tidybert.modeling.bert import BertModel
from tidybert.modeling.causal_model import CausalModel
from tidybert.modeling.mean_bert import MeanBertModel

ENCODERS: Final[dict[str, type[BertModel]]] = {
    "bert": BertModel,
    "bert-mean": MeanBertModel,
    "causal-lm": CausalModel,
}


def build_encoder(config: BertConfig, add_pooler: bool = True) -> BertModel:
    """The encoder that ``config.model_type`` names, with new random weights."""
    return ENCODERS[config.model_type](config, add_pooler=add_pooler)


def encoder_of(model: nn.Module) -> BertModel:
    """The encoder inside a model with a head, or the model itself where it is an encoder."""
    known = tuple(ENCODERS.values())
    return next(part for part in model.modules() if isinstance(part, known))
