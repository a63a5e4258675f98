"""A batch's gradient from pieces of it on several threads."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.data.batching import Batch, collate, pieces_for_threads
from tidybert.data.features import Features
from tidybert.modeling.kernels.dropout import dropout
from tidybert.modeling.kernels.linear import Linear, linear
from tidybert.training.optimization import add_gradients_on_threads, clip, update


@pytest.fixture(autouse=True)
def three_threads(set_threads: Callable[[int], None]) -> None:
    set_threads(3)


class Toy(nn.Module):
    """A table, two parameters with one gradient between them, and one that no loss needs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 8)
        self.other = nn.Parameter(torch.randn(8))
        self.same = nn.Parameter(torch.randn(8))
        self.unused = nn.Parameter(torch.randn(8))

    def loss(self, batch: Batch, probability: float = 0.0) -> Tensor:
        hidden = self.table(batch.rows.input_ids) + (self.other + self.same)
        return dropout(hidden, probability, True).square().sum()


def batches(count: int = 3) -> list[Batch]:
    """So many batches of different sequences."""
    rng = np.random.default_rng(1)
    made = []
    for _ in range(count):
        lengths = rng.integers(3, 20, size=4).tolist()
        made.append(
            collate(
                [
                    Features(
                        rng.integers(0, 50, length).astype(np.int32),
                        np.zeros(length, np.uint8),
                        length,
                    )
                    for length in lengths
                ]
            )
        )
    return made


def test_the_pieces_gradients_add_up_to_that_of_the_whole() -> None:
    toy, pieces = Toy(), batches()
    toy.other.grad = torch.ones(8)  # of a part before

    loss = add_gradients_on_threads(toy.loss, pieces, list(toy.parameters()), torch.Generator())

    whole = Toy()
    whole.other.grad = torch.ones(8)
    expected = torch.stack([whole.loss(piece) for piece in pieces]).sum()
    expected.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(expected.item())
    assert toy.unused.grad is None
    for name in ("table.weight", "other", "same"):
        torch.testing.assert_close(
            toy.get_parameter(name).grad, whole.get_parameter(name).grad, msg=name
        )


def test_bfloat16_weights_get_one_product_of_all_pieces() -> None:
    """Also those in parts, in two uses, and with rows that are filled up."""
    torch.manual_seed(0)
    joint, other, pieces = Linear(8, 24), Linear(8, 8), batches()
    table = torch.randn(50, 8)
    trained = [*joint.parameters(), *other.parameters()]

    def loss(batch: Batch) -> Tensor:
        hidden = table[batch.rows.input_ids]
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            high = linear(hidden, joint.weight[:8], joint.bias[:8])
            low = linear(hidden, joint.weight[8:], joint.bias[8:])
            return (other(high).square().sum() + other(low[:, :8]).sin().sum()) / 100

    add_gradients_on_threads(loss, pieces, trained, torch.Generator())

    found = [each.grad for each in trained]
    expected = torch.autograd.grad(torch.stack([loss(piece) for piece in pieces]).sum(), trained)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0.01)


def test_clipping_is_that_of_pytorch_and_a_bad_step_changes_nothing() -> None:
    def after(clipped: bool, is_bad: bool) -> tuple[Tensor, list[Tensor]]:
        toy = Toy()
        trained = [*toy.parameters()]
        optimizer = torch.optim.AdamW(trained, fused=True)
        for step in range(3):
            toy.loss(batches()[step]).backward()  # type: ignore[no-untyped-call]
            norm = (
                clip(trained, optimizer, 1.0)
                if clipped
                else torch.nn.utils.clip_grad_norm_(trained, 1.0)
            )
            update(optimizer, torch.tensor(is_bad))
        return norm, trained

    for is_bad in (False, True):
        (norm, found), (other, expected) = after(True, is_bad), after(False, is_bad)
        assert norm == other > 1
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
        assert torch.equal(found[-1], Toy().table.weight) is is_bad


def test_dropout_gives_the_same_bits_however_the_threads_take_turns() -> None:
    pieces = batches()

    def gradient() -> Tensor:
        toy, numbers = Toy(), torch.Generator().manual_seed(7)
        add_gradients_on_threads(
            lambda batch: toy.loss(batch, 0.3), pieces, [toy.table.weight], numbers
        )
        assert toy.table.weight.grad is not None
        return toy.table.weight.grad

    first = gradient()
    assert all(torch.equal(first, gradient()) for _ in range(20))


def test_two_parts_of_a_step_draw_different_dropout() -> None:
    toy, pieces, found = Toy(), batches(2), []
    numbers = torch.Generator().manual_seed(7)
    for _ in range(2):
        toy.zero_grad()
        add_gradients_on_threads(
            lambda batch: toy.loss(batch, 0.3), pieces, [toy.table.weight], numbers
        )
        assert toy.table.weight.grad is not None
        found.append(toy.table.weight.grad)

    assert not torch.equal(found[0], found[1])


def test_random_numbers_of_the_default_generator_are_refused_and_all_is_as_before() -> None:
    toy, numbers = Toy(), torch.Generator()
    before = torch.get_rng_state(), numbers.get_state()

    found = add_gradients_on_threads(
        lambda batch: functional.dropout(toy.loss(batch), 0.5),
        batches(),
        list(toy.parameters()),
        numbers,
        watch=True,
    )

    assert found is None
    assert torch.equal(before[0], torch.get_rng_state())
    assert torch.equal(before[1], numbers.get_state())
    assert all(each.grad is None for each in toy.parameters())


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([10, 12], 1),  # too few tokens
        ([128, 128], 2),
        ([128] * 9, 3),  # as many as threads
        ([500], 1),  # one sequence is not cut
    ],
)
def test_there_are_as_many_pieces_as_work_for_threads(lengths: list[int], expected: int) -> None:
    assert len(pieces_for_threads(np.array(lengths))) == expected


def test_pieces_have_nearly_equally_many_tokens() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, size=64)

    pieces = pieces_for_threads(lengths)

    assert sorted(np.concatenate(pieces).tolist()) == list(range(64))
    tokens = [int(lengths[piece].sum()) for piece in pieces]
    assert max(tokens) - min(tokens) <= 60
