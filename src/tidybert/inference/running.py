"""Run features through a model in batches of similar length, results in the order given."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.data.batching import Batch, collate, cut_by_tokens
from tidybert.data.features import Features
from tidybert.errors import DeviceMemoryError
from tidybert.inference.arrivals import Arrivals
from tidybert.modeling.linear import IN_ONEDNN
from tidybert.tasks.registry import AnyTask
from tidybert.tasks.task import Unit

# Tokens at once, by device.  On a CPU 2048 is about a tenth faster than 1024 and takes 50 MiB more
# (SST-2's dev part, minilm), or 100 in oneDNN, whose work space grows with them; a GPU needs many
# more to have work for all its parts.
_TOKENS_PER_BATCH: Final = {"cpu": 1024 if IN_ONEDNN else 2048, "cuda": 32_768}
# From here on sorting by length gains nothing more.
LARGEST_CHUNK = 1024

T = TypeVar("T")


def run_features(
    task: AnyTask,
    model: nn.Module,
    features: Sequence[Features],
    tokens_per_batch: int | None = None,
) -> list[npt.NDArray[np.float32]]:
    """The task's outputs of each of the features, float32, a row for each of its units.

    ``tokens_per_batch`` bounds memory; where it is not given the device decides.  The model must be
    in evaluation mode.
    """
    return run_batches(
        lambda batch: task.outputs(model, batch),
        features,
        [_num_rows(one, task.unit) for one in features],
        next(model.parameters()).device,
        tokens_per_batch,
    )


def run_batches(
    outputs: Callable[[Batch], Tensor],
    features: Sequence[Features],
    num_rows: Sequence[int],
    device: torch.device,
    tokens_per_batch: int | None = None,
) -> list[npt.NDArray[np.float32]]:
    """What ``outputs`` says of each of the features, ``num_rows`` of which are each one's.

    A batch for which the device's memory is too small is halved.  Raises DeviceMemoryError where
    that is so of a single one of the features.
    """
    most = tokens_per_batch or _TOKENS_PER_BATCH.get(device.type, _TOKENS_PER_BATCH["cpu"])
    results: list[npt.NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(features)
    with torch.inference_mode():
        waiting = deque(cut_by_tokens([len(one.input_ids) for one in features], most))
        while waiting:
            chosen = waiting.popleft()
            batch = collate([features[index] for index in chosen])
            try:
                found = outputs(batch.to(device)).float().cpu().numpy()
            except torch.OutOfMemoryError as error:
                half = len(chosen) // 2
                if half:
                    waiting.extendleft((chosen[half:], chosen[:half]))
                    continue
                raise DeviceMemoryError(
                    f"the memory of {device} is too small for {batch.rows.num_tokens:,} tokens at "
                    "once: end what else uses it, or name another device with --device, such as cpu"
                ) from error
            ends = np.cumsum([num_rows[index] for index in chosen])
            for index, rows in zip(chosen, np.split(found, ends[:-1]), strict=True):
                results[index] = rows
    return results


def in_chunks(
    examples: Iterable[T], *, first: int = 1, largest: int = LARGEST_CHUNK
) -> Iterator[list[T]]:
    """A stream in lists: one of ``first``, so that its answers come at once, then longer ones.

    Each is twice as long as the one before, up to ``largest``; of Arrivals, which may pause, it is
    shorter where no more are there.
    """
    left, size = iter(examples), first
    while chunk := left.take(size) if isinstance(left, Arrivals) else list(islice(left, size)):
        yield chunk
        size = min(2 * size, largest)


def _num_rows(features: Features, unit: Unit) -> int:
    if unit == "feature":
        return 1
    return len(features.sequence_lengths) if unit == "sequence" else len(features.input_ids)
