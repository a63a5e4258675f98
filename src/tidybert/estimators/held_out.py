"""The examples that ``fit`` measures on: given by the caller, or held out of X."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.errors import DataError, UsageError
from tidybert.finetuning.finetuning_job import SHARE_HELD_OUT, share_by_rule
from tidybert.tasks.task import AnyTask
from tidybert.training.training_arguments import TrainingArguments


@dataclass(frozen=True)
class HeldOut:
    """The arguments of ``fit`` about the examples to measure on.

    Args:
        examples: those of X_val and y_val; None where these were not given.
        groups: (n,) the group of each example of X; a group is never on both sides.
    """

    examples: Sequence[Any] | None = None
    groups: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class Parts:
    """The examples to train on and those to measure on; ``places`` of the latter in X, (d,)."""

    train: Sequence[Any]
    dev: Sequence[Any] | None
    places: npt.NDArray[np.int64]


def read_held_out(
    X_val: Any, y_val: Any, groups: Any, num_examples: int, read: Callable[[Any, Any], list[Any]]
) -> HeldOut:
    """The arguments of ``fit``; ``read`` makes examples of X_val and y_val.

    Raises DataError for one without the other, and for groups of another number than the examples.
    """
    if (X_val is None) != (y_val is None):
        given, missing = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
        raise DataError(f"{given} was given without {missing}: give both, or none")
    examples = None
    if X_val is not None:
        try:
            examples = read(X_val, y_val)
        except DataError as error:
            error.args = (f"in X_val and y_val: {error.message}",)
            raise
    return HeldOut(examples, _read_groups(groups, num_examples))


def _read_groups(groups: Any, num_examples: int) -> npt.NDArray[Any] | None:
    if groups is None:
        return None
    found = np.asarray(groups)
    if found.shape != (num_examples,):
        raise DataError(
            f"groups has the shape {found.shape}: expected ({num_examples},), one group for each "
            "example of X"
        )
    return found


def choose_parts(
    task: AnyTask,
    examples: Sequence[Any],
    held_out: HeldOut,
    fraction: float | None,
    arguments: TrainingArguments,
) -> Parts:
    """The parts of the examples, whose rows are their places in X.

    ``fraction``: the share to hold out; None: a tenth for groups, else as ``tidybert.finetune``.
    """
    if fraction is None and held_out.examples is not None:
        fraction = 0.0
    if fraction is None:
        has_groups = held_out.groups is not None
        fraction = SHARE_HELD_OUT if has_groups else share_by_rule(len(examples), arguments)
    if held_out.groups is not None and not fraction:
        raise UsageError(
            "groups decide which examples are held out: set validation_fraction, for example to "
            "0.1, or leave groups out"
        )
    if held_out.examples is not None and fraction:
        raise UsageError(f"validation_fraction is {fraction} and X_val was given: give one of them")
    if not fraction:
        return Parts(examples, held_out.examples, np.empty(0, dtype=np.int64))
    if not 0 < fraction < 1:
        raise UsageError(f"validation_fraction is {fraction}: expected 0 (none) to below 1")
    groups: list[Hashable] | None = None
    if held_out.groups is not None:
        groups = [held_out.groups.tolist()[one.row] for one in examples]
    try:
        train, dev = task.hold_out(examples, fraction, arguments.seed, groups)
    except DataError as error:
        alone = "" if groups is None else " in groups"
        raise DataError(
            f"validation_fraction is {fraction}, but {len(examples)} examples{alone} are too few "
            "to hold any out: give more examples, or validation_fraction=0"
        ) from error
    return Parts(train, dev, np.array([one.row for one in dev], dtype=np.int64))
