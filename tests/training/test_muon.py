"""Muon: PyTorch's own as the oracle, singular values, and one optimizer over both kinds."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tidybert.modeling.architectures import encoder_of
from tidybert.training.optimization import (
    MuonAdamW,
    build_optimizer,
    muon_matrices,
    orthogonalized,
    update,
)
from tidybert.training.runs.run_checkpoints import load_optimizer, optimizer_tensors

SETTINGS = {"learning_rate": 0.01, "betas": (0.9, 0.98), "epsilon": 1e-6, "weight_decay": 0.1}


def optimizer_of(stacked: list[tuple[list[Tensor], int]]) -> MuonAdamW:
    other = torch.optim.AdamW([nn.Parameter(torch.zeros(3))])
    return MuonAdamW(stacked, other, learning_rate=0.01, weight_decay=0.1)


@pytest.mark.parametrize("shape", [(2, 24, 24), (3, 40, 16), (1, 16, 40)])
def test_singular_vectors_stay_and_values_go_through_the_polynomial(
    shape: tuple[int, int, int],
) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape)

    torch.testing.assert_close(
        orthogonalized(matrices), orthogonalized_exactly(matrices), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("shape", [(2, 24, 24), (3, 96, 16)])
def test_products_in_bfloat16_come_close(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape)

    found, exact = orthogonalized(matrices, mixed=True), orthogonalized_exactly(matrices)

    assert found.dtype == torch.float32
    assert 1e-6 < (found - exact).norm() / exact.norm() < 0.02


def test_a_matrix_of_any_size_comes_near_an_orthogonal_one() -> None:
    torch.manual_seed(0)

    values = torch.linalg.svdvals(orthogonalized(1e-4 * torch.randn(4, 96, 32)))

    assert 0.6 < values.min() <= values.max() < 1.3


def test_directions_with_next_to_nothing_in_them_stay_in_place() -> None:
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(2, 32, 96), full_matrices=False)
    values = torch.logspace(0, -5, 32)
    matrices = left @ torch.diag_embed(values.expand(2, -1)) @ right

    # Whose long side is long enough to go by the Gram matrix, and the same with one too short.
    long, short = orthogonalized(matrices), orthogonalized(matrices[:, :, :48])
    exact = orthogonalized_exactly(matrices), orthogonalized_exactly(matrices[:, :, :48])

    for one, other in zip((long, short), exact, strict=True):
        torch.testing.assert_close(one, other, atol=5e-4, rtol=0)


def orthogonalized_exactly(matrices: Tensor) -> Tensor:
    left, values, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    values = values / values.norm(dim=1, keepdim=True)
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    return (left @ torch.diag_embed(values) @ right).float()


def test_its_steps_are_pytorchs(device: str) -> None:
    torch.manual_seed(0)
    shapes = (24, 16), (16, 24)
    ours = [nn.Parameter(torch.randn(shape).to(device)) for shape in shapes]
    theirs = copy.deepcopy(ours)
    optimizer = optimizer_of([(list(ours), 1)])
    expected = torch.optim.Muon(
        theirs, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            # Theirs is a mean of gradients where ours is a sum; what follows is blind to the size.
            other.grad = mine.grad.clone()
        optimizer.step()
        expected.step()  # type: ignore[no-untyped-call]

    for mine, other in zip(ours, theirs, strict=True):
        # Theirs iterates in bfloat16.
        torch.testing.assert_close(mine, other, atol=2e-3, rtol=1e-2)


def test_a_step_that_is_not_finite_changes_no_weight_and_no_moment(
    make_model: Callable[..., nn.Module], device: str
) -> None:
    torch.manual_seed(0)
    model = make_model().to(device)
    optimizer = build_optimizer(model, with_muon=True, **SETTINGS)  # type: ignore[arg-type]

    def step(factor: float) -> dict[str, Tensor]:
        for each in model.parameters():
            each.grad = factor * torch.randn_like(each)
        update(optimizer, ~torch.tensor(factor, device=device).isfinite())
        found = {**model.state_dict(), **optimizer_tensors(model, optimizer)}
        return {name: each.clone() for name, each in found.items()}

    first, bad, third = step(1.0), step(math.nan), step(1.0)

    assert all(torch.equal(bad[name], first[name]) for name in first)
    assert not any(torch.equal(third[name], first[name]) for name in first)


def test_queries_keys_and_values_move_as_if_they_were_apart() -> None:
    torch.manual_seed(0)
    whole = nn.Parameter(torch.randn(24, 8))
    parts = [nn.Parameter(part.clone()) for part in whole.detach().chunk(3)]
    gradient = torch.randn(24, 8)
    whole.grad = gradient
    for part, each in zip(parts, gradient.chunk(3), strict=True):
        part.grad = each

    optimizer_of([([whole], 3)]).step()
    optimizer_of([(list(parts), 1)]).step()

    torch.testing.assert_close(whole.detach(), torch.cat([part.detach() for part in parts]))


def test_the_encoders_matrices_are_muons_and_all_else_is_adamws(
    make_model: Callable[..., nn.Module],
) -> None:
    torch.manual_seed(0)
    model = make_model()
    layers = encoder_of(model).layers
    twin = copy.deepcopy(model)
    optimizer = build_optimizer(model, with_muon=True, **SETTINGS)  # type: ignore[arg-type]
    expected = build_optimizer(twin, **SETTINGS)  # type: ignore[arg-type]
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        mine.grad = torch.randn_like(mine)
        other.grad = mine.grad.clone()
    optimizer.step()
    expected.step()

    of_muon = {id(each) for matrices, _ in muon_matrices(layers) for each in matrices}
    assert len(of_muon) == 4 * len(layers)
    for (name, mine), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other) == (id(mine) not in of_muon), name
    grouped = [id(each) for group in optimizer.param_groups for each in group["params"]]
    assert sorted(grouped) == sorted(map(id, model.parameters()))


def test_the_rate_of_the_groups_holds_for_both_kinds(make_model: Callable[..., nn.Module]) -> None:
    model = make_model()
    optimizer = build_optimizer(model, with_muon=True, **SETTINGS)  # type: ignore[arg-type]
    before = copy.deepcopy(model.state_dict())
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()

    for name, after in model.state_dict().items():
        assert torch.equal(after, before[name])


def test_its_state_comes_back(make_model: Callable[..., nn.Module]) -> None:
    model = make_model()
    optimizer = build_optimizer(model, with_muon=True, **SETTINGS)  # type: ignore[arg-type]

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        for each in model.parameters():
            each.grad = torch.randn_like(each)
        optimizer.step()

    step(model, optimizer, 1)
    twin = copy.deepcopy(model)
    restored = build_optimizer(twin, with_muon=True, **SETTINGS)  # type: ignore[arg-type]
    saved = {name: each.clone() for name, each in optimizer_tensors(model, optimizer).items()}
    load_optimizer(twin, restored, saved)
    step(model, optimizer, 2)
    step(twin, restored, 2)

    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other)
