"""Numbers of rows from a short list: how much is added, and that oneDNN makes no more kernels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.kernels import counting_kernels
from tidybert.configuration import BertConfig
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.modeling.kernels import linear
from tidybert.modeling.kernels.linear import cut, filled, size_of
from tidybert.modeling.rows import Rows


@given(st.integers(1, 20_000))
def test_a_size_is_little_larger_and_its_own_size(count: int) -> None:
    size = size_of(count)

    assert count <= size <= max(count + 15, count * 1.125)
    assert size_of(size) == size
    assert size > 1


def test_the_list_is_short() -> None:
    assert len({size_of(count) for count in range(1, 4097)}) < 70


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_rows_at_the_end_are_zeros(dtype: torch.dtype | None) -> None:
    hidden = torch.randn(5, 3)

    found = filled(hidden, 8, dtype)

    assert found.dtype == (dtype or torch.float32)
    assert torch.equal(cut(found, 5), hidden.to(found.dtype))
    assert not found[5:].any()
    assert filled(hidden, 5) is hidden


def rows_of(count: int) -> Rows:
    """A text of a third of the tokens, and one of the rest."""
    return Rows.from_lists([np.arange(count // 3) % 100, np.arange(count - count // 3) % 100])


@pytest.mark.skipif(linear._ONEDNN is None, reason="PyTorch has no oneDNN here")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_steps_of_other_numbers_of_rows_need_no_further_kernel(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_products", "onednn")
    # A width that no other test has, for which no kernel is known.
    config = BertConfig(
        vocab_size=100, hidden_size=56, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=104, max_position_embeddings=256,
    )  # fmt: skip
    model = BertForSequenceClassification(config, num_labels=3)

    def step(count: int) -> None:
        with torch.autocast("cpu", torch.bfloat16, precision == "bfloat16", cache_enabled=False):
            loss = model(rows_of(count)).sum()
        loss.backward()

    with counting_kernels() as found:
        for size in (144, 160, 176):
            step(size)
        begun = found()
        for count in (130, 137, 144, 145, 151, 159, 166, 171, 176):
            step(count)
        assert found() == begun
    has_products = precision == "float32" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert begun or not has_products
