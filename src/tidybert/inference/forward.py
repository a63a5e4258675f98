"""Run features through a model in batches of similar length, results in the order given."""

from __future__ import annotations

import io
import logging
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from tidybert.catalog import find_model
from tidybert.checkpoints.graph import LOGITS, STATES, Cpu, Flat, Floats, GraphModel
from tidybert.data.batching import Batch, collate, cut_by_tokens, cut_padded
from tidybert.data.features import Features
from tidybert.errors import ConfigError, DeviceMemoryError, UsageError, WeightsError, param
from tidybert.inference.options import AnswerPrecision
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE
from tidybert.system.reporter import SILENT, Reporter
from tidybert.tasks.task import AnyTask
from tidybert.tokenization.tokenizer import Encoding
from tidybert.training.runs.provenance import trained_in

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# Items of a stream that may pause: a thread waits for them while earlier ones are worked on.

T = TypeVar("T")

# The largest chunk of examples that is answered at once.
_MOST_AHEAD: Final = 1024


class Arrivals(Iterator[T]):
    """The items of an iterable, in order, which a thread reads ahead inside a ``with`` block.

    ``most_ahead`` items wait to be taken; an error comes after the items before it.
    """

    def __init__(self, items: Iterable[T], most_ahead: int = _MOST_AHEAD) -> None:
        self._items = items
        self._most_ahead = most_ahead
        self._waiting: deque[T] = deque()
        self._changed = Condition()
        self._error: BaseException | None = None
        self._is_left = False
        self.has_ended = False
        """Whether the thread has stopped reading."""

    def __enter__(self) -> Self:
        # Nothing can stop a thread that waits for input, and the program must not wait for it.
        Thread(target=self._read, name="arrivals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_left = True
            self._changed.notify_all()

    def __next__(self) -> T:
        for item in self.take(1):
            return item
        raise StopIteration

    def take(self, most: int) -> list[T]:
        """At most ``most`` of the waiting items; waits for the first one, returns [] at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.has_ended)
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._changed.notify_all()
        if not taken and self._error is not None:
            raise self._error
        return taken

    def _read(self) -> None:
        try:
            for item in self._items:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._is_left or len(self._waiting) < self._most_ahead
                    )
                    if self._is_left:
                        return
                    self._waiting.append(item)
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()


@contextmanager
def as_it_comes(examples: Iterator[T], file: str) -> Iterator[Iterator[T]]:
    """The examples of a file, or Arrivals for standard input ("-"), which may pause."""
    if file != "-":
        yield examples
        return
    arrivals = Arrivals(examples)
    try:
        with arrivals:
            yield arrivals
    finally:
        # Python closes standard input when it exits, and aborts if a thread still waits for it.
        if not arrivals.has_ended and isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.detach()


# The precision that a model answers in: chosen once, and entered around each batch.

_LOGGER: Final = logging.getLogger(__name__)

ANSWER_PRECISIONS: Final = get_args(AnswerPrecision)


def choose_precision(
    precision: str, model: str | Path, device: torch.device, width: int = 0
) -> str:
    """float32, bfloat16, float16 or int8, for a MODEL on a device; UsageError for one it lacks.

    ``width``: the model's.
    """
    if precision not in ANSWER_PRECISIONS:
        raise UsageError(
            f"{param('precision', precision)}: expected one of {', '.join(ANSWER_PRECISIONS)}"
        )
    if precision == "float16" and device.type != "cuda":
        raise UsageError(
            f"{param('precision', 'float16')} needs a CUDA device, and the model is on {device}: "
            "use float32, or auto"
        )
    if precision == "int8" and device.type != "cpu":
        raise UsageError(
            f"{param('precision', 'int8')} needs a CPU, and the model is on {device}: add "
            f"{param('device', 'cpu')}, or use auto"
        )
    if precision == "bfloat16":
        from tidybert.training.precision import is_mixed

        is_mixed(precision, device)
    if precision != "auto":
        return precision
    before = None
    with suppress(ConfigError, OSError):
        before = trained_in(read_json_object(find_model(model) / ARGUMENTS_FILE))
    found = as_trained(before, device, width)
    known = "" if before == "bfloat16" else " not known to be"
    why = f"the device is {device} and training was{known} in bfloat16"
    _LOGGER.info(f"precision of answers: {found}, because {why}")
    return found


def as_trained(precision: str | None, device: torch.device, width: int) -> str:
    """The precision of a model's answers after its training in float32, bfloat16 or an unknown one.

    It is bfloat16 only where this device suits a model of this ``width``.
    """
    from tidybert.training.precision import is_mixed

    mixed = precision == "bfloat16" and is_mixed("auto", device, width)
    return "bfloat16" if mixed else "float32"


@contextmanager
def answering_in(precision: str, device: torch.device | Cpu) -> Iterator[None]:
    """The context of a forward pass without gradients, in each of its threads.

    On CUDA, products of float32 take TF32: their factors have 10 bits after the point.
    """
    import torch

    from tidybert.training.precision import usual_torch

    # The layers of int8 take and give float32.
    if precision not in ("float32", "int8"):
        with (
            usual_torch(),
            torch.inference_mode(),
            # On a CPU all threads would share autocast's cache of the weights.
            torch.autocast(
                device.type, getattr(torch, precision), cache_enabled=device.type != "cpu"
            ),
        ):
            yield
        return
    with usual_torch(), torch.inference_mode():
        if device.type != "cuda":
            yield
            return
        products = torch.backends.cuda.matmul
        before = products.fp32_precision
        products.fp32_precision = "tf32"
        try:
            yield
        finally:
            products.fp32_precision = before


# Tokens at once, by device.  A CPU's threads have a batch each, and larger ones take more memory
# and no less time; a GPU needs many more to have work for all its parts.
_TOKENS_PER_BATCH: Final = {"cpu": 1024, "cuda": 32_768}
# Batches of fewer are not made to keep a thread busy.
_FEWEST_TOKENS: Final = 256
# From here on sorting by length gains nothing more.
LARGEST_CHUNK = 1024

Indices = npt.NDArray[np.int64]


def run_features(
    task: AnyTask,
    model: nn.Module | GraphModel,
    features: Sequence[Features],
    tokens_per_batch: int | None = None,
    reporter: Reporter = SILENT,
    *,
    precision: str = "float32",
) -> list[npt.NDArray[np.float32]]:
    """The task's outputs of each of the features: ``run_batches`` with a row for each unit.

    Where a row is a sequence's, one that several features have is computed once.
    """

    outputs = outputs_of(task, model)

    def run(some: Sequence[Features], reporter: Reporter) -> list[npt.NDArray[np.float32]]:
        return run_batches(
            outputs,
            some,
            [task.num_rows(one) for one in some],
            device_of(model),
            tokens_per_batch,
            reporter,
            precision=precision,
        )

    if task.unit == "sequence":
        different, numbers = _different_sequences(features)
        # A graph pads, so the sequences of an example are better apart.
        if isinstance(model, GraphModel) or len(different) < sum(map(len, numbers)):
            share = len(features) / len(different)
            scaled = replace(reporter, advance=lambda done: reporter.advance(int(done * share)))
            rows = run(different, scaled)
            return [np.concatenate([rows[number] for number in each]) for each in numbers]
    return run(features, reporter)


def _different_sequences(features: Sequence[Features]) -> tuple[list[Features], list[list[int]]]:
    """Each sequence of the features once, and by feature the numbers of its sequences."""
    different: dict[tuple[bytes, bytes], Features] = {}
    numbers: dict[tuple[bytes, bytes], int] = {}
    found = []
    for one in features:
        ends = np.cumsum(one.sequence_lengths)[:-1]
        own = []
        parts = (np.split(each, ends) for each in (one.input_ids, one.token_type_ids))
        for ids, types in zip(*parts, strict=True):
            key = ids.tobytes(), types.tobytes()
            different.setdefault(key, Features(ids, types, len(ids)))
            own.append(numbers.setdefault(key, len(numbers)))
        found.append(own)
    return list(different.values()), found


@dataclass(frozen=True)
class GraphOutputs:
    """What a graph gives for a batch: ``rows``, from its outputs by name and the batch."""

    graph: GraphModel
    rows: Callable[[dict[str, Floats], Flat], Floats] = lambda found, _: found[LOGITS]

    def __call__(self, features: Sequence[Features]) -> Floats:
        flat = Flat(
            np.concatenate([one.input_ids for one in features]),
            np.concatenate([one.token_type_ids for one in features]),
            tuple(length for one in features for length in one.sequence_lengths),
        )
        return self.rows(self.graph(flat), flat)


Outputs = Callable[[Batch], "Tensor"] | GraphOutputs
"""The rows of a batch: a network's, in PyTorch, or a graph's."""


def outputs_of(task: AnyTask, model: nn.Module | GraphModel) -> Outputs:
    """The task's outputs of a batch."""
    if not isinstance(model, GraphModel):
        return lambda batch: task.outputs(model, batch)
    if not task.pools_itself:
        return GraphOutputs(model)
    pooling: str = getattr(task, "pooling")  # noqa: B009
    return GraphOutputs(model, lambda found, flat: pooled(found[STATES], flat.lengths, pooling))


def pooled(states: Floats, lengths: Sequence[int], pooling: str) -> Floats:
    """(B, H): the mean or max of each sequence's states (T, H), or that of [CLS]."""
    starts = np.cumsum([0, *lengths[:-1]])
    if pooling == "cls":
        first: Floats = states[starts]
        return first
    if pooling == "max":
        largest: Floats = np.maximum.reduceat(states, starts)
        return largest
    sums: Floats = np.add.reduceat(states, starts)
    return sums / np.array(lengths, dtype=np.float32)[:, None]


def device_of(model: Any) -> torch.device | Cpu:
    """Where a network is; a graph is on the CPU."""
    return model.device if isinstance(model, GraphModel) else next(model.parameters()).device


def run_batches(
    outputs: Outputs,
    features: Sequence[Features],
    num_rows: Sequence[int],
    device: torch.device | Cpu,
    tokens_per_batch: int | None = None,
    reporter: Reporter = SILENT,
    *,
    precision: str = "float32",
) -> list[npt.NDArray[np.float32]]:
    """The rows of ``outputs`` that belong to each of the features, ``num_rows`` of them.

    On a CPU several threads call ``outputs``, each with its own batch.  A GPU has its next batch
    before the program waits for the answers to the one before.  Halves a batch that does not fit
    into the device's memory; without ``tokens_per_batch`` the device decides how large one is.

    Raises DeviceMemoryError if one of the features alone does not fit, and WeightsError for outputs
    that are not finite.
    """
    if isinstance(outputs, GraphOutputs):
        launched = _on_graph(outputs, features, tokens_per_batch)
    else:
        launched = _on_torch(outputs, features, device, tokens_per_batch, precision)
    results: list[npt.NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(features)
    num_done = 0
    for chosen, found in launched:
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
        reporter.advance(num_done)
    return results


def _on_graph(
    outputs: GraphOutputs, features: Sequence[Features], most: int | None
) -> Iterator[tuple[Indices, Floats]]:
    """The rows of each batch, and the numbers of its features."""
    most = most or _TOKENS_PER_BATCH["cpu"]
    for chosen in cut_padded([max(one.sequence_lengths) for one in features], most):
        yield chosen, outputs([features[index] for index in chosen])


def _on_torch(
    outputs: Callable[[Batch], Tensor],
    features: Sequence[Features],
    device: Any,
    tokens_per_batch: int | None,
    precision: str,
) -> Iterator[tuple[Indices, Floats]]:
    """The same of a network; see ``run_batches``."""
    import torch

    from tidybert.modeling.kernels.linear import RoundedWeights
    from tidybert.modeling.kernels.threads import map_on_threads, num_threads
    from tidybert.modeling.kernels.transfer import Fetched

    weights = RoundedWeights()

    def launch(chosen: Indices) -> list[tuple[Indices, Fetched]]:
        batch = collate([features[index] for index in chosen])
        try:
            with answering_in(precision, device), weights.in_use():
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
        # All threads have equally many batches.  One ends before a sequence that does not fit: too
        # early by up to the longest one.
        threads = num_threads()
        num_batches = max(1, threads * math.ceil(sum(lengths) / (threads * most)))
        share = math.ceil(sum(lengths) / num_batches) + max(lengths, default=0)
        batches = cut_by_tokens(lengths, min(most, max(_FEWEST_TOKENS, share)))
        launched = map_on_threads(launch, batches)
    else:
        launched = _one_ahead(map(launch, cut_by_tokens(lengths, most)))
    for chosen, fetched in chain.from_iterable(launched):
        yield chosen, fetched.numpy()


def _one_ahead(pieces: Iterator[T]) -> Iterator[T]:
    """The same pieces, each one after the next one has been made."""
    for before in islice(pieces, 1):
        for piece in pieces:
            yield before
            before = piece
        yield before


def in_chunks(
    examples: Iterable[T], *, first: int = 1, largest: int = LARGEST_CHUNK
) -> Iterator[list[T]]:
    """A stream in lists of ``first``, twice as many, and so on; fewer of Arrivals that wait."""
    left, size = iter(examples), min(first, largest)
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
