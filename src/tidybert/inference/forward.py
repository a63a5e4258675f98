"""Run features through a model in batches of similar length, results in the order given."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.data.batching import Batch, collate, cut_by_tokens
from tidybert.data.features import Features
from tidybert.errors import DeviceMemoryError, WeightsError, param
from tidybert.inference.answer_precision import answering_in
from tidybert.inference.arrivals import Arrivals
from tidybert.modeling.kernels.threads import map_on_threads, num_threads
from tidybert.modeling.kernels.transfer import Fetched
from tidybert.tasks.task import AnyTask
from tidybert.tokenization.encoding import Encoding

# Tokens at once, by device.  A CPU's threads have a batch each, and larger ones take more memory
# and no less time; a GPU needs many more to have work for all its parts.
_TOKENS_PER_BATCH: Final = {"cpu": 1024, "cuda": 32_768}
# Batches of fewer are not made to keep a thread busy.
_FEWEST_TOKENS: Final = 256
# From here on sorting by length gains nothing more.
LARGEST_CHUNK = 1024

T = TypeVar("T")
Indices = npt.NDArray[np.int64]


def run_features(
    task: AnyTask,
    model: nn.Module,
    features: Sequence[Features],
    tokens_per_batch: int | None = None,
    advance: Callable[[int], None] = lambda num_done: None,
    *,
    precision: str = "float32",
) -> list[npt.NDArray[np.float32]]:
    """The task's outputs of each of the features, float32, a row for each of its units.

    ``tokens_per_batch`` bounds memory; without it the device decides.  ``precision`` is what
    ``choose_precision`` gives.  The model must be in evaluation mode.  Calls ``advance`` with the
    number of features done.
    """
    return run_batches(
        lambda batch: task.outputs(model, batch),
        features,
        [task.num_rows(one) for one in features],
        next(model.parameters()).device,
        tokens_per_batch,
        advance,
        precision=precision,
    )


def run_batches(
    outputs: Callable[[Batch], Tensor],
    features: Sequence[Features],
    num_rows: Sequence[int],
    device: torch.device,
    tokens_per_batch: int | None = None,
    advance: Callable[[int], None] = lambda num_done: None,
    *,
    precision: str = "float32",
) -> list[npt.NDArray[np.float32]]:
    """The rows of ``outputs`` that belong to each of the features, ``num_rows`` of them.

    On a CPU several threads call ``outputs``, each with its own batch.  A GPU has its next batch
    before the program waits for the answers to the one before.  Halves a batch that does
    not fit into the device's memory.  Raises DeviceMemoryError if one of the features alone does
    not fit, and WeightsError for outputs that are not finite.  Calls ``advance`` with the number of
    features done.
    """

    def launch(chosen: Indices) -> list[tuple[Indices, Fetched]]:
        batch = collate([features[index] for index in chosen])
        try:
            with answering_in(precision, device):
                return [(chosen, Fetched(outputs(batch.to(device)).float()))]
        except torch.OutOfMemoryError as error:
            if len(chosen) == 1:
                raise DeviceMemoryError(
                    f"the memory of {device} is too small for {batch.rows.num_tokens:,} tokens at "
                    "once: end other programs that use it, or name another device with "
                    f"{param('device')}, such as cpu"
                ) from error
        # Here the error is gone, and with it the tensors that it held.
        half = len(chosen) // 2
        return launch(chosen[:half]) + launch(chosen[half:])

    most = tokens_per_batch or _TOKENS_PER_BATCH.get(device.type, _TOKENS_PER_BATCH["cpu"])
    lengths = [len(one.input_ids) for one in features]
    if device.type == "cpu":
        batches = cut_by_tokens(lengths, min(most, _share_of_a_thread(lengths, most)))
        launched = map_on_threads(launch, batches)
    else:
        launched = _one_ahead(map(launch, cut_by_tokens(lengths, most)))
    results: list[npt.NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(features)
    num_done = 0
    for chosen, fetched in chain.from_iterable(launched):
        found = fetched.numpy()
        if not np.isfinite(found).all():
            if precision == "float16":
                raise WeightsError(
                    "the model's outputs are not finite in float16, which ends at 65,504: use "
                    f"{param('precision', 'bfloat16')} or {param('precision', 'float32')}"
                )
            raise WeightsError(
                "the model's outputs are not finite: its weights are too large, or not finite "
                "themselves; take earlier ones, or train again at a lower "
                "learning rate"
            )
        ends = np.cumsum([num_rows[index] for index in chosen])
        for index, rows in zip(chosen, np.split(found, ends[:-1]), strict=True):
            results[index] = rows
        num_done += len(chosen)
        advance(num_done)
    return results


def _one_ahead(pieces: Iterator[T]) -> Iterator[T]:
    """The same pieces, each one after the next one has been made."""
    for before in islice(pieces, 1):
        for piece in pieces:
            yield before
            before = piece
        yield before


def _share_of_a_thread(lengths: Sequence[int], most: int) -> int:
    """Tokens a batch, so that all threads have equally many batches of at most ``most`` each."""
    tokens, threads = sum(lengths), num_threads()
    batches = threads * math.ceil(tokens / (threads * most))
    # A batch ends before a sequence that does not fit: too early by up to the longest one.
    return max(_FEWEST_TOKENS, math.ceil(tokens / max(batches, 1)) + max(lengths, default=0))


def in_chunks(
    examples: Iterable[T], *, first: int = 1, largest: int = LARGEST_CHUNK
) -> Iterator[list[T]]:
    """A stream in lists: the first of ``first``, so that its answers come at once.

    Each next one is twice as long, up to ``largest``.  Of Arrivals, a list is shorter if no
    more have come.
    """
    left, size = iter(examples), first
    while chunk := left.take(size) if isinstance(left, Arrivals) else list(islice(left, size)):
        yield chunk
        size = min(2 * size, largest)


def encoding_features(encodings: Sequence[Encoding]) -> list[Features]:
    """Features of texts that were tokenised with their offsets."""
    return [
        Features(
            np.array(one.input_ids, dtype=np.int32),
            np.array(one.token_type_ids, dtype=np.uint8),
            one.num_tokens,
            one.truncated,
            example=number,
        )
        for number, one in enumerate(encodings)
    ]
