"""Shards, in a group of one process; tests/pretraining/test_processes.py has two."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from tidybert.modeling import BertForPreTraining
from tidybert.modeling.rows import Rows
from tidybert.training.distributed import (
    Processes,
    give_up_gathered,
    load_weights,
    placed_like,
    shard,
    whole,
)
from tidybert.training.optimization import build_optimizer
from tidybert.training.runs.run_checkpoints import load_optimizer, optimizer_tensors
from tidybert.training.runs.run_record import snapshot


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def make(tiny_config: Callable[..., Any]) -> Callable[[], BertForPreTraining]:
    def build() -> BertForPreTraining:
        torch.manual_seed(0)
        return BertForPreTraining(
            tiny_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        )

    return build


def loss_of(model: nn.Module, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, 20, (length,), generator=generator).numpy() for length in (9, 5, 7)]
    found = model(Rows.from_lists(ids), masked_lm_positions=torch.tensor([1, 8, 20]))
    scores: Tensor = found.prediction_logits.logsumexp(1).sum()
    return scores + found.seq_relationship_logits.pow(2).sum()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: whole(each.grad) for name, each in model.named_parameters()}


def is_cut(model: nn.Module) -> bool:
    return all(hasattr(each, "full_tensor") for each in model.parameters())


def test_gradients_of_parts_add_up_before_they_are_shared(
    group: None, make: Callable[[], BertForPreTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, sharded = make(), shard(make(), 1, mixed=False)
    told = []
    switch = sharded.set_requires_gradient_sync
    monkeypatch.setattr(
        type(sharded), "set_requires_gradient_sync", lambda _self, on: (told.append(on), switch(on))
    )
    assert is_cut(sharded)

    for seed in (1, 2):
        loss_of(plain, seed).backward()
    with Processes().apart(sharded):
        loss_of(sharded, 1).backward()
    loss_of(sharded, 2).backward()

    assert told == [False, True]
    assert is_cut(sharded)
    expected = gradients(plain)
    for name, found in gradients(sharded).items():
        torch.testing.assert_close(found, expected[name], msg=name)


def test_bfloat16_travels_and_float32_is_kept(
    group: None, make: Callable[[], BertForPreTraining]
) -> None:
    plain, sharded = make(), shard(make(), 1, mixed=True)
    seen: list[torch.dtype] = []
    sharded.bert.encoder.layers[0].intermediate.register_forward_hook(
        lambda module, *_: seen.append(module.weight.dtype)
    )
    losses = []
    for model in (plain, sharded):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model)
        loss.backward()
        losses.append(loss.item())

    assert losses[1] == pytest.approx(losses[0], rel=5e-3)
    assert seen == [torch.bfloat16]
    assert {each.dtype for each in sharded.parameters()} == {torch.float32}
    expected = gradients(plain)
    for name, found in gradients(sharded).items():
        assert found.dtype == torch.float32
        size = expected[name].norm()
        assert (found - expected[name]).norm() <= 0.05 * size + 1e-6, name


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_weights_and_moments_go_to_disk_whole_and_come_back(
    name: str, group: None, make: Callable[[], BertForPreTraining]
) -> None:
    def optimizer_of(model: BertForPreTraining) -> torch.optim.Optimizer:
        given: dict[str, Any] = {
            "learning_rate": 1e-2,
            "betas": (0.9, 0.98),
            "epsilon": 1e-6,
            "weight_decay": 0.01,
        }
        return build_optimizer(model, with_muon=name == "muon", **given)

    def train(model: BertForPreTraining, optimizer: torch.optim.Optimizer, *seeds: int) -> None:
        for seed in seeds:
            loss_of(model, seed).backward()
            optimizer.step()
            optimizer.zero_grad()

    plain = make()
    of_plain = optimizer_of(plain)
    train(plain, of_plain, 1, 2, 3)
    sharded = make()
    shard(sharded, 1, mixed=False)
    of_sharded = optimizer_of(sharded)
    train(sharded, of_sharded, 1, 2)
    with torch.no_grad():
        loss_of(sharded)
    # What no backward followed is left whole: the moments are not those of such parameters.
    with pytest.raises(AssertionError, match="moments of a parameter that is not here"):
        optimizer_tensors(sharded, of_sharded)
    give_up_gathered(sharded)

    weights = snapshot(sharded.state_dict())
    moments = snapshot(optimizer_tensors(sharded, of_sharded))
    none = snapshot(sharded.state_dict(), wanted=False)

    assert none == {}
    assert {type(each) for each in (*weights.values(), *moments.values())} == {Tensor}
    assert moments.keys() == optimizer_tensors(plain, of_plain).keys()
    for shards in (False, True):
        model = make()
        if shards:
            shard(model, 1, mixed=False)
        optimizer = optimizer_of(model)
        # The optimizer takes them as its own.
        load_optimizer(model, optimizer, {key: each.clone() for key, each in moments.items()})
        load_weights(model, weights)
        train(model, optimizer, 3)
        for key, found in snapshot(model.state_dict()).items():
            torch.testing.assert_close(found, plain.state_dict()[key], msg=key)


def test_a_tensor_is_placed_as_the_one_that_it_replaces(
    group: None, make: Callable[[], BertForPreTraining]
) -> None:
    sharded = shard(make(), 1, mixed=False)
    target = sharded.mlm.bias
    values = torch.arange(target.numel(), dtype=torch.float32)

    placed = placed_like(values, target)

    assert placed.placements == target.placements
    torch.testing.assert_close(whole(placed), values)
    # A count of steps belongs to a parameter, and is no shard.
    assert type(placed_like(torch.tensor(3.0), target)) is Tensor
