"""An encoder whose pooled output is the mean of its tokens' states; it has no pooler.

transformers knows no such BERT, so a MODEL of it has a model_type of its own, which transformers
refuses.  T tokens, B sequences, H width.
"""

from torch import Tensor

from tidybert.configuration import BertConfig
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import LowerStates
from tidybert.modeling.rows import Rows, pooled


class MeanBertModel(BertModel):
    """BertModel without a pooler; a head reads the mean of all tokens instead of [CLS]."""

    def __init__(self, config: BertConfig, add_pooler: bool = True) -> None:
        super().__init__(config, add_pooler=False)

    def pooled(self, rows: Rows, lower_states: LowerStates | None = None) -> Tensor:
        """(B, H): the mean of the last states of each sequence, special tokens included."""
        output = self.forward(rows, lower_states=lower_states)
        return pooled(output.last_hidden_state, rows, "mean")
