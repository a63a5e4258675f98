"""Fine-tuning at the terminal: a bar for the steps, and a line for each evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidybert.cli.output import clock, note, training_progress
from tidybert.errors import in_shell

if TYPE_CHECKING:
    from tidybert.finetuning import Callbacks
    from tidybert.training.trainer import StepReport


@contextmanager
def shown_training(metric: str, train_batch_size: int) -> "Iterator[Callbacks]":
    """Callbacks for ``finetune`` that show its progress on stderr while the block runs.

    Each evaluation's line shows ``metric`` on dev.  It repeats the bar's figures, because not every
    stderr has a bar.
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
            left = (last.num_steps - step) * train_batch_size / rate
            note(
                f"step {step} of {last.num_steps}: loss {last.loss:.4f}, {metric} "
                f"{values[metric]:.4f} on dev; {rate:.1f} examples/s, {clock(left)} left"
            )

        yield Callbacks(note=note, spell=in_shell, step=step, metrics=metrics)
