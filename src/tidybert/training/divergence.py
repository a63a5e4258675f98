"""Steps whose loss or gradient is not finite: they update nothing, and too many end the run."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tidybert.errors import DivergedError, TrainingError
from tidybert.storage.model_files import BAD_STEPS_FILE
from tidybert.training.objective import Objective
from tidybert.training.reports import StepReport
from tidybert.training.runs.run_record import RunRecord


class BadSteps:
    """Counts the bad steps of a run, and lists them in bad_steps.jsonl where some are allowed."""

    def __init__(self, objective: Objective, record: RunRecord) -> None:
        self.objective = objective
        self.record = record
        self.most = objective.settings.max_bad_steps
        self.log = record.log_file(BAD_STEPS_FILE)
        self.in_a_row = 0
        # On the device: whether a step so far was bad.
        self._has_diverged: Tensor | None = None

    def is_bad(self, figures: Tensor) -> Tensor:
        """Whether a step must not update anything; () bool on the device of its figures (F,)."""
        is_bad = ~figures.isfinite().all()
        if self.most is None:
            # Nothing may change after a bad step, though later ones are launched before it is read.
            if self._has_diverged is not None:
                is_bad |= self._has_diverged
            self._has_diverged = is_bad
        return is_bad

    def count(self, done: StepReport, before: Mapping[str, Any]) -> None:
        """Count a step.  Raises TrainingError, with the step undone, where too many were bad.

        ``before``: the run's progress before the step.
        """
        if done.updated:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        state, of = self.record.state, f"{done.step} of {done.num_steps}"
        if self.most is None:
            state.step = done.step - 1
            raise DivergedError(
                f"at step {of} the loss is {done.loss} and the gradient norm {done.gradient_norm}; "
                "nothing was updated. The batch's examples are "
                f"{self.objective.place(done.step - 1, before)}. {self.objective.advice}"
            )
        state.progress["num_bad_steps"] += 1
        self.log.write(_where(done, before))
        if self.in_a_row >= self.most:
            run = self.record.run
            listed = (
                f"{run / BAD_STEPS_FILE} has the places of the batches in the data. " if run else ""
            )
            raise TrainingError(
                f"the loss or the gradient was not finite in {self.in_a_row} steps in a row, up to "
                f"step {of} (loss {done.loss}, gradient norm {done.gradient_norm}); the weights "
                f"are as they were before. {listed}{self.objective.advice}"
            )


def _where(done: StepReport, before: Mapping[str, Any]) -> dict[str, Any]:
    """A line of bad_steps.jsonl: what was found, and where the batch was in the data."""
    return {
        "step": done.step,
        "num_steps": done.num_steps,
        "loss": str(done.loss),
        "losses": {name: str(each) for name, each in done.losses.items()},
        "accuracies": done.accuracies,
        "learning_rate": done.learning_rate,
        "gradient_norm": str(done.gradient_norm),
        "num_tokens": done.num_tokens,
        "seconds": done.seconds,
        "updated": done.updated,
        **done.figures,
        "position": before.get("position"),
        "num_sequences": done.num_examples,
    }
