"""A step's figures: read once the device has them, then reported and logged.

On CUDA the program launches a step before it reads the figures of the one before, so that the
device always has work.
"""

import shlex
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from torch import Tensor

from tidybert.errors import DivergedError, TrainingError
from tidybert.modeling.kernels.transfer import Fetched, steps_late
from tidybert.storage.model_files import BAD_STEPS_FILE, checkpoints_by_step
from tidybert.training.objective import Objective, Work
from tidybert.training.reports import StepReport
from tidybert.training.runs.run_record import RunRecord

# Steps whose loss or gradient is not finite, or whose loss has leaped: too many end the run.
#
# Steps that are not finite update nothing.  A loss leaps where it is far above those before it: by
# more than eight of their robust standard deviations (1.4826 times the median absolute deviation),
# and by more than 1.

_MOST_LOSSES: Final = 100
_LEAST_LOSSES: Final = 10
_NORMS: Final = 5
_DEVIATIONS: Final = 8 * 1.4826
_LEAST_LEAP: Final = 1.0


class BadSteps:
    """Counts the bad steps of a run, and lists them in bad_steps.jsonl where some are allowed."""

    def __init__(self, objective: Objective, record: RunRecord) -> None:
        self.objective = objective
        self.record = record
        self.most = objective.settings.max_bad_steps
        self.log = record.log_file(BAD_STEPS_FILE)
        self.in_a_row = 0
        # Of the steps that were not bad.
        self._losses: deque[float] = deque(maxlen=_MOST_LOSSES)
        self._norms: deque[tuple[int, float]] = deque(maxlen=_NORMS)
        # On the device: whether a step so far was bad.
        self._has_diverged: Tensor | None = None

    def recall(self) -> None:
        """Take the losses and norms before a resume from the log."""
        self._losses.extend(loss for _, loss in self.record.log.last("loss", _MOST_LOSSES))
        self._norms.extend(self.record.log.last("gradient_norm", _NORMS))

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
        """Count a step; ``before`` is the progress before it.  TrainingError for too many bad."""
        if self.objective.is_other(done.step - 1):
            self._losses.clear()
        if done.updated and not self._leaps(done.loss):
            self.in_a_row = 0
            self._losses.append(done.loss)
            self._norms.append((done.step, done.gradient_norm))
            return
        self.in_a_row += 1
        state, of = self.record.state, f"{done.step} of {done.num_steps}"
        if self.most is None:
            state.step = done.step - 1
            raise DivergedError(
                f"at step {of} the loss is {done.loss} and the gradient norm {done.gradient_norm}; "
                f"nothing was updated.{self._norms_before()} The batch's examples are "
                f"{self.objective.place(done.step - 1, before)}. {self.objective.advice}"
            )
        if not done.updated:
            state.progress["num_bad_steps"] += 1
            self.log.write(_where(done, before))
        if self.in_a_row >= self.most:
            raise TrainingError(
                f"{self._what_happened(done)}{self._norms_before()} {self._way_on(done.step)}"
            )

    def _leaps(self, loss: float) -> bool:
        if self.most is None or len(self._losses) < _LEAST_LOSSES:
            return False
        middle = statistics.median(self._losses)
        spread = statistics.median(abs(each - middle) for each in self._losses)
        return loss - middle > max(_LEAST_LEAP, _DEVIATIONS * spread)

    def _what_happened(self, done: StepReport) -> str:
        steps = f"{self.in_a_row} steps in a row"
        began = f"it began at step {done.step + 1 - self.in_a_row} of {done.num_steps}"
        figures = f"the last loss is {done.loss:.6g}, the gradient norm {done.gradient_norm:.3g}"
        if not done.updated:
            run = self.record.run
            listed = f" {run / BAD_STEPS_FILE} has their places in the data." if run else ""
            return (
                f"the loss or the gradient was not finite in {steps}: {began}; {figures}. The "
                f"weights are as they were before.{listed}"
            )
        usual = f"{statistics.median(self._losses):.6g}, the median of {len(self._losses)} steps"
        return f"the loss leaped from {usual}, and stayed high for {steps}: {began}; {figures}."

    def _norms_before(self) -> str:
        if not self._norms:
            return ""
        norms = ", ".join(f"{norm:.3g} (step {step})" for step, norm in self._norms)
        return f" Gradient norms before: {norms}."

    def _way_on(self, last: int) -> str:
        """The command that branches before the bad steps and passes over their data, or advice."""
        first, run = last + 1 - self.in_a_row, self.record.run
        before = [step for step in checkpoints_by_step(run) if step < first] if run else []
        command = self.objective.settings.command
        if not before or command is None:
            return self.objective.advice
        step = before[-1]
        return (
            f"{self.objective.advice}; or branch before these steps and pass over their data:\n"
            f"    tidybert {command} --branch {shlex.quote(f'{run}@{step}')} "
            f"--out {shlex.quote(f'{run}-from-{step}')} --skip-steps {first}:{last}"
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


_STEPS_OF_RATE: Final = 10
"""The last steps give the rate: one alone that is read late may seem to take no time."""


@dataclass(frozen=True)
class LaunchedStep:
    """A step, from 1, whose figures may be on their way; before: the run's progress before it."""

    step: int
    begin: float
    work: Work
    before: Mapping[str, Any]
    learning_rate: float
    figures: Fetched


class StepFigures:
    """Steps in the order in which they were launched; ``plot`` gets the figures that are logged."""

    def __init__(
        self,
        objective: Objective,
        record: RunRecord,
        bad_steps: BadSteps,
        plot: Callable[[Mapping[str, float], int], None],
    ) -> None:
        self.objective = objective
        self.record = record
        self.bad_steps = bad_steps
        self.plot = plot
        self.late = steps_late(objective.device)
        self._launched: deque[LaunchedStep] = deque()
        self._read_at = 0.0
        # Of the last steps the tokens and the seconds.
        self._taken: deque[tuple[int, float]] = deque(maxlen=_STEPS_OF_RATE)

    def add(self, launched: LaunchedStep) -> None:
        self._launched.append(launched)

    def read(self, most: int = 0) -> list[StepReport]:
        """Read the figures of launched steps until at most this many are left."""
        found = []
        while len(self._launched) > most:
            launched = self._launched.popleft()
            done = self._report(launched)
            if self.objective.settings.times_steps:
                self.record.state.progress["seconds"] += done.seconds
            self.bad_steps.count(done, launched.before)
            if self.record.is_due(self.objective.settings.logging_steps, done.step):
                self._log(done, launched.work.progress.get("num_tokens"))
            found.append(done)
        return found

    def _report(self, launched: LaunchedStep) -> StepReport:
        """Wait for a step's figures."""
        *figures, norm = launched.figures.values()
        now = time.perf_counter()
        # A step that was launched while another ran begins when that one ends.
        seconds = now - max(launched.begin, self._read_at)
        self._read_at = now
        work = launched.work
        self._taken.append((work.num_tokens, seconds))
        usual = work.num_tokens / self._rate() if work.num_tokens else seconds
        measured = self.objective.measured(launched.step - 1, work, figures, usual)
        return StepReport(
            **vars(measured),
            step=launched.step,
            num_steps=self.record.num_steps,
            epoch=work.epoch,
            learning_rate=launched.learning_rate,
            gradient_norm=norm,
            num_examples=work.num_examples,
            num_tokens=work.num_tokens,
            seconds=seconds,
            updated=isfinite(measured.loss) and isfinite(norm),
        )

    def _rate(self) -> float:
        """Tokens a second in the last steps."""
        return sum(tokens for tokens, _ in self._taken) / sum(each for _, each in self._taken)

    def _log(self, done: StepReport, tokens_so_far: int | None) -> None:
        figures = {
            "epoch": None if done.epoch is None else round(done.epoch, 4),
            "loss": done.loss,
            **{f"{name}_loss": each for name, each in done.losses.items()},
            **{f"{name}_accuracy": each for name, each in done.accuracies.items()},
            "learning_rate": done.learning_rate,
            "gradient_norm": done.gradient_norm,
            "tokens_per_second": round(self._rate()),
        }
        figures |= {n: each and float(f"{each:.4g}") for n, each in done.figures.items()}
        known = {n: each for n, each in figures.items() if each is not None and isfinite(each)}
        counted = {} if tokens_so_far is None else {"num_tokens": tokens_so_far}
        self.record.log.write({"step": done.step, **counted, **known})
        self.plot(known, done.step)
