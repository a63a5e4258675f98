"""A step's figures: read once the device has them, then reported and logged.

On CUDA the program launches a step before it reads the figures of the one before, so that the
device always has work.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from tidybert.modeling.kernels.transfer import Fetched, steps_late
from tidybert.training.divergence import BadSteps
from tidybert.training.objective import Objective, Work
from tidybert.training.reports import StepReport
from tidybert.training.runs.run_record import RunRecord

_STEPS_OF_RATE: Final = 10
"""The last steps give the rate: one alone that is read late may seem to take no time."""


@dataclass(frozen=True)
class LaunchedStep:
    """A step whose figures may be on their way: those of ``add_gradients``, then the norm.

    step: its number, from 1.  before: the run's progress before it.
    """

    step: int
    begin: float
    work: Work
    before: Mapping[str, Any]
    learning_rate: float
    figures: Fetched


class StepFigures:
    """Steps in the order in which they were launched, and what becomes of their figures.

    Args:
        plot: called with the figures of each step that is logged, and its number.
    """

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
        """A step was launched."""
        self._launched.append(launched)

    def read(self, most: int = 0) -> list[StepReport]:
        """Read the figures of launched steps until at most this many are left.

        Raises TrainingError where the training has diverged.
        """
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
