"""Training as a person at the terminal follows it: a bar for the steps, a line an evaluation."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidybert.cli.output import note, training_progress
from tidybert.errors import in_shell

if TYPE_CHECKING:
    from tidybert.finetuning import Callbacks
    from tidybert.training.trainer import StepReport


@contextmanager
def shown_training(metric: str, train_batch_size: int) -> "Iterator[Callbacks]":
    """Callbacks for ``finetune`` that show its progress on stderr while the block runs.

    ``metric`` is the one of the dev metrics that each evaluation's line tells.  The lines hold the
    bar's figures too, for where stderr is no terminal and has no bar.
    """
    from tidybert.finetuning import Callbacks

    with training_progress() as progress:
        bar = progress.add_task("training", total=None)
        last: StepReport | None = None
        examples, seconds = 0, 0.0

        def step(done: "StepReport") -> None:
            nonlocal last, examples, seconds
            last, examples, seconds = done, examples + done.num_examples, seconds + done.seconds
            progress.update(
                bar,
                completed=done.step * train_batch_size,
                total=done.num_steps * train_batch_size,
                loss=done.loss,
            )

        def metrics(step: int, values: dict[str, Any]) -> None:
            assert last is not None
            rate = examples / seconds
            left = math.ceil((last.num_steps - step) * train_batch_size / rate)
            note(
                f"step {step} of {last.num_steps}: loss {last.loss:.4f}, {metric} "
                f"{values[metric]:.4f} on dev; {rate:.1f} examples/s, {left // 60}:{left % 60:02} "
                "left"
            )

        yield Callbacks(note=note, spell=in_shell, step=step, metrics=metrics)
