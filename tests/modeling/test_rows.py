"""Rows: laid end to end, unpadded; and what is refused."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tidybert.configuration import BertConfig
from tidybert.modeling import BertModel
from tidybert.modeling.rows import Rows

lengths_of_a_batch = st.lists(st.integers(1, 90), min_size=1, max_size=12)


def test_sequences_are_laid_end_to_end() -> None:
    rows = Rows.from_lists([[7, 8, 9], np.array([5, 6], dtype=np.uint16)], [[0, 0, 1], [0, 1]])

    assert rows.input_ids.tolist() == [7, 8, 9, 5, 6]
    assert rows.token_type_ids.tolist() == [0, 0, 1, 0, 1]
    assert rows.position_ids.tolist() == [0, 1, 2, 0, 1]
    assert rows.cu_seqlens.tolist() == [0, 3, 5]
    assert rows.cu_seqlens.dtype == torch.int32
    assert rows.input_ids.dtype == rows.token_type_ids.dtype == rows.position_ids.dtype
    assert rows.input_ids.dtype == torch.int64
    assert rows.first_rows.tolist() == [0, 3]
    assert (rows.num_sequences, rows.num_tokens, rows.max_seqlen) == (2, 5, 3)


def test_types_and_positions_have_defaults() -> None:
    rows = Rows.from_lists([[4], [4, 4]], position_ids=[[3], [9, 8]])

    assert rows.token_type_ids.tolist() == [0, 0, 0]
    assert rows.position_ids.tolist() == [3, 9, 8]


def test_padding_is_left_out_wherever_it_stands() -> None:
    input_ids = torch.tensor([[0, 1, 2], [3, 0, 4], [5, 0, 0]])
    mask = torch.tensor([[0, 1, 1], [1, 0, 1], [1, 0, 0]])
    types = torch.tensor([[0, 0, 1], [0, 0, 1], [0, 0, 0]])

    rows, cells = Rows.from_padded(input_ids, mask, types)

    assert rows.input_ids.tolist() == [1, 2, 3, 4, 5]
    assert rows.token_type_ids.tolist() == [0, 1, 0, 1, 0]
    assert rows.position_ids.tolist() == [1, 2, 0, 2, 0]
    assert rows.cu_seqlens.tolist() == [0, 2, 4, 5]
    assert rows.lengths == (2, 2, 1)
    assert cells.tolist() == [1, 2, 3, 5, 6]


def test_without_a_mask_every_cell_is_a_token() -> None:
    rows, cells = Rows.from_padded(torch.tensor([[1, 2], [3, 4]]))

    assert rows.input_ids.tolist() == [1, 2, 3, 4]
    assert cells.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int32])
def test_a_mask_may_be_transposed_and_of_any_type(dtype: torch.dtype) -> None:
    input_ids = torch.tensor([[1, 2], [3, 4], [5, 6]]).T
    mask = torch.tensor([[1, 1], [0, 1], [1, 0]]).to(dtype).T

    rows, _ = Rows.from_padded(input_ids, mask)

    assert rows.input_ids.tolist() == [1, 5, 2, 4]
    assert Rows.from_padded(input_ids)[0].input_ids.tolist() == [1, 3, 5, 2, 4, 6]


@given(lengths_of_a_batch, st.integers(0, 2**32 - 1))
def test_padded_and_laid_out_sequences_are_the_same_rows(lengths: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    sequences = [random.integers(1, 1000, length) for length in lengths]
    padded = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for place, sequence in enumerate(sequences):
        padded[place, : len(sequence)] = torch.from_numpy(sequence)

    expected = Rows.from_lists(sequences)
    rows, cells = Rows.from_padded(padded, padded != 0)

    assert rows.lengths == expected.lengths
    for name in ("input_ids", "token_type_ids", "position_ids", "cu_seqlens"):
        assert torch.equal(getattr(rows, name), getattr(expected, name))
    back = torch.zeros(padded.numel(), dtype=torch.int64).index_copy(0, cells, rows.input_ids)
    assert torch.equal(back.view_as(padded), padded)


@pytest.mark.parametrize(
    ("sequences", "types", "message"),
    [
        ([], None, "at least one token"),
        ([[1], []], None, "lengths \\(1, 0\\)"),
        ([[1, 2]], [[0]], "token_type_ids must have the lengths"),
        ([[1, 2]], [[0, 0], [0]], "token_type_ids must have the lengths"),
    ],
)
def test_lists_that_are_no_batch_are_refused(
    sequences: list[list[int]], types: list[list[int]] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Rows.from_lists(sequences, types)


@pytest.mark.parametrize(
    ("shape", "given", "message"),
    [
        ((4,), {}, "must have shape \\(batch, length\\), got \\(4,\\)"),
        ((2, 3), {"attention_mask": torch.ones(2, 4)}, "attention_mask has shape \\(2, 4\\)"),
        ((2, 3), {"token_type_ids": torch.ones(3)}, "token_type_ids has shape"),
        ((2, 3), {"position_ids": torch.ones(1, 3)}, "position_ids has shape"),
        ((1, 2), {"attention_mask": torch.zeros(1, 2)}, "sequence 0 without a token"),
        ((0, 2), {}, "at least one"),
        ((2, 0), {}, "without a token"),
    ],
)
def test_padded_tensors_that_do_not_fit_are_refused(
    shape: tuple[int, ...], given: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Rows.from_padded(torch.ones(shape, dtype=torch.int64), **given)


def test_rows_move_to_a_device() -> None:
    rows = Rows.from_lists([[1, 2], [3]]).to("cpu")

    assert rows.input_ids.tolist() == [1, 2, 3]
    assert rows.lengths == (2, 1)


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
