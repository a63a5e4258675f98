"""What a training says in Python: findings as warnings, notes, a bar, and its history."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidybert.finetuning.finetuning_run import Callbacks
from tidybert.system.progress_bar import progress_bar
from tidybert.training.python_spelling import tell
from tidybert.training.reports import StepReport

_STEPS_PER_LINE: Final = 10

History = list[dict[str, float | None]]
"""A row for each step: step, epoch, loss, learning_rate and, after an evaluation, its scores."""


@contextmanager
def noted_training(
    history: History, *, verbose: int, rows: str = "position"
) -> Iterator[Callbacks]:
    """Callbacks that write a training's ``history`` and, above 0, say how it goes.

    ``rows`` names the rows of examples.
    """

    def say(line: str) -> None:
        tell(line, rows)

    with progress_bar("fit", wanted=verbose > 0) as show:

        def step(done: StepReport) -> None:
            history.append(
                {
                    "step": done.step,
                    "epoch": done.epoch,
                    "loss": done.loss,
                    "learning_rate": done.learning_rate,
                }
            )
            if show is not None:
                text = f"loss {done.loss:.4f}, rate {done.learning_rate:.1e}"
                show(done.step, done.num_steps, text)
            elif verbose and (done.step % _STEPS_PER_LINE == 0 or done.step == done.num_steps):
                speed = f"{done.num_examples / done.seconds:.0f} examples/s"
                say(f"step {done.step} of {done.num_steps}: loss {done.loss:.4f}, {speed}")

        def first_step(done: StepReport) -> None:
            if show is not None:
                show(done.step, done.num_steps, f"contrastive training, loss {done.loss:.4f}")

        def metrics(step: int, found: dict[str, Any]) -> None:
            scores = {name: each for name, each in found.items() if isinstance(each, float)}
            history[-1].update(scores)
            if verbose:
                shown = ", ".join(f"{name} {each:.4f}" for name, each in scores.items())
                say(f"step {step}: {shown} on the part held out")

        yield Callbacks(
            note=say if verbose else lambda _line: None,
            spell=str,
            first_step=first_step,
            step=step,
            metrics=metrics,
            rows=rows,
        )
