"""The schedule's literal values, and what decays."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tidybert.training.optimization import build_optimizer, learning_rate_at
from tidybert.training.training_arguments import TrainingArguments


def rates(num_steps: int, warmup: float) -> list[float]:
    arguments = TrainingArguments(learning_rate=1.0, warmup_proportion=warmup)
    return [learning_rate_at(step, num_steps, arguments) for step in range(num_steps + 1)]


def test_the_rate_rises_from_zero_and_falls_to_zero() -> None:
    assert rates(10, 0.2) == pytest.approx(
        [0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0]
    )


def test_without_warm_up_it_begins_at_its_peak() -> None:
    assert rates(4, 0.0) == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    # A tenth of 4 steps is none.
    assert rates(4, 0.1) == rates(4, 0.0)


@pytest.mark.parametrize(("num_steps", "warmup"), [(100, 0.1), (7, 0.5), (33, 0.29), (1000, 0.06)])
def test_it_is_transformers_schedule(num_steps: int, warmup: float) -> None:
    import torch
    from transformers import get_linear_schedule_with_warmup

    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_linear_schedule_with_warmup(optimizer, int(num_steps * warmup), num_steps)
    expected = []
    for _ in range(num_steps + 1):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()

    assert rates(num_steps, warmup) == pytest.approx(expected)


@given(st.integers(1, 300), st.floats(0, 0.99))
def test_it_rises_to_one_peak_then_falls(num_steps: int, warmup: float) -> None:
    values = rates(num_steps, warmup)
    peak = values.index(max(values))

    assert values[peak] == pytest.approx(1)
    assert values[-1] == 0
    assert all(a <= b for a, b in pairwise(values[: peak + 1]))
    assert all(a >= b for a, b in pairwise(values[peak:]))


def test_biases_and_layer_norms_do_not_decay(make_model: Callable[..., nn.Module]) -> None:
    model = make_model()
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    decayed, rest = build_optimizer(
        model, learning_rate=2e-4, betas=(0.8, 0.95), epsilon=1e-7, weight_decay=0.3
    ).param_groups

    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    undecayed = {names[id(each)] for each in rest["params"]}
    assert undecayed == {
        name for name in names.values() if name.endswith("bias") or "layer_norm" in name
    }
    assert {names[id(each)] for each in decayed["params"]} == set(names.values()) - undecayed


def test_the_arguments_reach_adam_and_frozen_parameters_do_not(
    make_model: Callable[..., nn.Module],
) -> None:
    model = make_model()
    model.bert.embeddings.requires_grad_(False)

    optimizer = build_optimizer(
        model, learning_rate=2e-4, betas=(0.8, 0.95), epsilon=1e-7, weight_decay=0.3
    )

    assert isinstance(optimizer.defaults["lr"], float)
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["eps"]) == (2e-4, (0.8, 0.95), 1e-7)
    trained = {id(each) for group in optimizer.param_groups for each in group["params"]}
    assert trained == {id(each) for each in model.parameters() if each.requires_grad}
