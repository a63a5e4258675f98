"""What a step of pre-training takes, and what it tells: the loop's interfaces and its reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class Part(Protocol):
    """The sum of one objective's losses over a batch's predictions, and how many were right."""

    @property
    def total(self) -> Tensor: ...
    @property
    def correct(self) -> Tensor: ...


class StreamStep(Protocol):
    """A process's batches of a step, and the ``counts`` of their predictions.

    Of all processes together are ``num_tokens``, and ``num_rows``: the tokens and the padding.
    """

    @property
    def batches(self) -> Sequence[Any]: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_sequences(self) -> int: ...
    @property
    def position(self) -> Any: ...


class Stream(Protocol):
    """Gives the step that begins at a position, which JSON can hold."""

    def take(self, step: int, position: Any) -> StreamStep: ...


@dataclass(frozen=True)
class PretrainingReport:
    """What a step did.  ``losses`` and ``accuracies`` are means over its predictions, by part.

    ``mfu`` is the share of the devices' peak that it reached, None where that is not known;
    ``padding_share`` is that of all rows that went through the model.
    """

    step: int
    num_steps: int
    loss: float
    losses: dict[str, float]
    accuracies: dict[str, float]
    learning_rate: float
    gradient_norm: float
    num_tokens: int
    seconds: float
    updated: bool
    mfu: float | None = None
    padding_share: float = 0.0


@dataclass(frozen=True)
class PretrainingResult:
    """How a run ended; ``metrics`` are those of ``best_step``, whose weights the model holds."""

    num_steps: int
    best_step: int
    metrics: dict[str, Any]
    seconds: float
    num_tokens: int
    num_bad_steps: int
