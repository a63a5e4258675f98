"""Input that the model cannot take is refused with what to do."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tidybert.configuration import BertConfig
from tidybert.modeling import BertModel


@pytest.fixture
def tiny(tiny_config: Callable[..., BertConfig]) -> BertModel:
    torch.manual_seed(0)
    return BertModel(tiny_config()).eval()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input_ids": torch.ones(1, 33, dtype=torch.int64)}, "33 tokens, .* at most 32"),
        ({"input_ids": torch.tensor([[1, 24]])}, "input_ids go from 1 to 24, .* 0 to 23"),
        ({"input_ids": torch.tensor([[-1, 2]])}, "input_ids go from -1"),
        (
            {
                "input_ids": torch.ones(1, 1, dtype=torch.int64),
                "token_type_ids": torch.tensor([[2]]),
            },
            "token_type_ids go from 2 to 2",
        ),
        (
            {
                "input_ids": torch.ones(1, 40, dtype=torch.int64),
                "attention_mask": (torch.arange(40) > 35)[None],
            },
            "position_ids go from 36 to 39, the model knows 0 to 31",
        ),
        ({"input_ids": torch.ones(3, dtype=torch.int64)}, "must have shape"),
        ({"input_ids": torch.ones(1, 3).long(), "attention_mask": torch.ones(2, 3)}, "has shape"),
    ],
)
def test_input_that_the_model_has_no_place_for_is_refused(
    tiny: BertModel, given: dict[str, Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**given)
