"""Fine-tuning beside other code of the process."""

import threading
from collections.abc import Callable
from typing import Any

import torch


def test_two_in_two_threads_give_the_bits_of_their_seeds(
    toy: Callable[..., Any], set_threads: Callable[[int], None]
) -> None:
    set_threads(2)
    # Batches of 40 are large enough for a piece a thread.
    given = {"train_batch_size": 40, "num_train_epochs": 6}

    def weights(seed: int) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = toy(seed=seed, **given).model.state_dict()
        return found

    alone = {seed: weights(seed) for seed in (1, 2)}
    together: dict[int, dict[str, torch.Tensor]] = {}
    begun = threading.Barrier(2)

    def train(seed: int) -> None:
        begun.wait(timeout=60)
        together[seed] = weights(seed)

    threads = [threading.Thread(target=train, args=[seed]) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for seed, expected in alone.items():
        for name, each in expected.items():
            assert torch.equal(together[seed][name], each), (seed, name)


def test_pytorchs_generator_is_left_as_it_was(toy: Callable[..., Any]) -> None:
    before = torch.get_rng_state()

    toy(max_steps=2)

    assert torch.equal(torch.get_rng_state(), before)
