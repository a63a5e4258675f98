"""Each fast function and its plain body give the same results and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tidybert.modeling.kernels import dropout, linear, masked_lm_loss
from tidybert.modeling.kernels.masked_lm_loss import IGNORED, SummedLoss


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).requires_grad_()


LABELS = torch.arange(9) % 7
LABELS[::4] = IGNORED
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any]]] = {
    "dropout": (
        lambda hidden: dropout.dropout(hidden, 0.25, True),
        lambda hidden: dropout.plain_dropout_add(hidden, torch.zeros(()), 0.25),
        [random(9, 8)],
    ),
    "dropout_add": (
        lambda *given: dropout.dropout_add(*given, 0.25, True),
        lambda *given: dropout.plain_dropout_add(*given, 0.25),
        [random(9, 8), random(9, 8)],
    ),
    "linear": (linear.linear, linear.plain_linear, [random(9, 8), random(5, 8), random(5)]),
    "no bias": (linear.linear, linear.plain_linear, [random(9, 8), random(5, 8), None]),
    "small_table_embedding": (
        linear.small_table_embedding,
        lambda ids, table: table[ids],
        [torch.arange(9) % 2, random(2, 8)],
    ),
    "masked_lm_loss": (
        masked_lm_loss.masked_lm_loss,
        masked_lm_loss.plain_masked_lm_loss,
        [random(9, 8), random(7, 8), random(7), LABELS],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_both_bodies_give_the_same_result_and_gradients(name: str) -> None:
    fast, plain, given = CASES[name]
    trained = [each for each in given if isinstance(each, Tensor) and each.requires_grad]
    results, gradients = [], []
    for body in (fast, plain):
        torch.manual_seed(0)
        found = body(*given)
        if isinstance(found, SummedLoss):
            results.append((found.total, found.correct))
            found = found.total
        else:
            results.append((found,))
        upstream = torch.linspace(-1.0, 1.0, found.numel()).view_as(found) + 0.5
        gradients.append(torch.autograd.grad(found, trained, upstream))

    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(gradients[0], gradients[1])
