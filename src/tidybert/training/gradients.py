"""A batch's gradient on a CPU, in pieces that run side by side, each on its own thread.

A fine-tuning batch has some hundred tokens, and operations of that size gain little from a second
thread; a second piece of the batch keeps that thread busy.  Each piece has its own gradients, which
are added in the order of the pieces, and its own generator for dropout.  So the same pieces give
the same bits, however the threads take turns.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from tidybert.data.batching import Batch
from tidybert.modeling.kernels.dropout import drawing_from
from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.training.random_numbers import DefaultDraws

Gradients = Sequence[Tensor | None]


def add_gradients_on_threads(
    loss: Callable[[Batch], Tensor],
    pieces: Sequence[Batch],
    trained: Sequence[Tensor],
    generator: torch.Generator,
    *,
    watch: bool = False,
) -> float | None:
    """Add the gradient of the pieces' summed loss to ``grad`` of the trained tensors; return it.

    Each piece's dropout draws from a generator of its own, whose seed comes from ``generator``.
    ``loss`` must not draw from PyTorch's own: pieces would take its numbers in another order in
    each run.  If ``watch`` is set and it does, returns None and changes nothing.
    """
    before = generator.get_state(), torch.get_rng_state()
    seeds = torch.randint(2**63 - 1, (len(pieces),), generator=generator).tolist()

    def work(number: int) -> tuple[float, Gradients] | None:
        numbers = torch.Generator().manual_seed(seeds[number])
        with drawing_from(numbers), DefaultDraws() if watch else nullcontext() as draws:
            found = loss(pieces[number])
        if draws is not None and draws.found:
            return None
        return found.item(), torch.autograd.grad(found, trained, allow_unused=True)

    results = list(map_on_threads(work, range(len(pieces))))
    done = [each for each in results if each is not None]
    if len(done) < len(results):
        generator.set_state(before[0])
        torch.set_rng_state(before[1])
        return None
    for _, gradients in done:
        add_gradients(trained, gradients)
    return sum(loss for loss, _ in done)


def add_gradients(trained: Sequence[Tensor], gradients: Gradients) -> None:
    """Add each gradient to ``grad``, or make it ``grad`` where that is None."""
    begun: set[int] = set()
    sums, terms = [], []
    for each, gradient in zip(trained, gradients, strict=True):
        if gradient is None:
            continue
        if each.grad is not None:
            sums.append(each.grad)
            terms.append(gradient)
            continue
        # Autograd may return one tensor, or a part of one, as the gradient of several.
        memory = gradient.untyped_storage().data_ptr()
        is_its_own = gradient.is_contiguous() and memory not in begun
        each.grad = gradient if is_its_own else gradient.clone()
        begun.add(memory)
    if sums:
        torch._foreach_add_(sums, terms)
