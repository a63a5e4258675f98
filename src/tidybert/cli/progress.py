"""Training as a person at the terminal follows it: a bar for the steps, a line an evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidybert.cli.output import note, training_progress

if TYPE_CHECKING:
    from tidybert.finetuning import Callbacks
    from tidybert.training.trainer import StepReport


@contextmanager
def shown_training(metric: str, train_batch_size: int) -> "Iterator[Callbacks]":
    """Callbacks for ``finetune`` that show its progress on stderr while the block runs.

    ``metric`` is the one of the dev metrics that is told after each evaluation.
    """
    from tidybert.finetuning import Callbacks

    with training_progress() as progress:
        bar = progress.add_task("training", total=None)

        def step(done: "StepReport") -> None:
            progress.update(
                bar,
                completed=done.step * train_batch_size,
                total=done.num_steps * train_batch_size,
                loss=done.loss,
            )

        def metrics(step: int, values: dict[str, Any]) -> None:
            note(f"step {step}: {metric} {values[metric]:.4f} on dev")

        yield Callbacks(note=note, step=step, metrics=metrics)
