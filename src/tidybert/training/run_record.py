"""Where a run is, what it leaves on disk and what it says, for fine-tuning and pre-training.

The first of several processes writes; all of them hold the same state.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from tidybert.errors import DiskError, TrainingError, in_python, param
from tidybert.storage.atomic_files import append_text, atomic_write_text
from tidybert.storage.json_objects import plain_json, read_json_lines
from tidybert.storage.model_files import METRICS_FILE
from tidybert.storage.opening import present
from tidybert.system.signals import signal_name
from tidybert.training.course import Course
from tidybert.training.distributed import Processes
from tidybert.training.interruption import StopRequest, TrainingInterrupted, stop_requests
from tidybert.training.run_checkpoints import (
    Checkpoint,
    TrainingState,
    read_best,
    read_checkpoint,
    write_best,
    write_checkpoint,
)
from tidybert.training.watchdog import SlowStep, Watchdog

Write = Callable[[Callable[[], object]], object]
"""Calls a function that writes a file: at once, or in a thread of its own."""


@dataclass(frozen=True)
class Notes:
    """Base of a run's callbacks.

    note: called with each line of text for the reader.
    spell: writes the parameters that a line names, as ``errors.in_python`` or ``in_shell`` do.
    tensorboard: called with a name, a value and a step for each figure that is logged.
    """

    note: Callable[[str], None] = lambda _line: None
    spell: Callable[[str], str] = in_python
    tensorboard: Callable[[str, float, int], None] | None = None

    def plot(self, kind: str, figures: Mapping[str, float], step: int) -> None:
        """Give figures to ``tensorboard``, under names such as train/loss."""
        if self.tensorboard is not None:
            for name, value in figures.items():
                self.tensorboard(f"{kind}/{name}", value, step)

    def tell(self, line: str) -> None:
        """Give a line to ``note``; work goes on where it cannot be written."""
        with suppress(OSError):
            self.note(self.spell(line))


class MetricsLog:
    """metrics.jsonl and its like: one JSON object a line; written nowhere without a RUN.

    A line that cannot be written ends no training: ``tell`` gets a warning, and the line waits in
    memory for the next one.

    Args:
        run: the folder of the file, or None.
        tell: called with lines of text.
    """

    def __init__(
        self,
        run: Path | None,
        file: str = METRICS_FILE,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.path = None if run is None else run / file
        self.tell = tell
        self._waiting: list[str] = []
        self._lock = threading.Lock()

    def rewind(self, step: int) -> None:
        """Drop the lines after ``step``, which a resumed run writes again."""
        if self.path is None or not present(self.path, error=TrainingError):
            return
        kept, unreadable = [], 0
        for line, entry in read_json_lines(self.path, error=TrainingError):
            done = None if entry is None else entry.get("step")
            if not isinstance(done, int | float):
                unreadable += 1
            elif done <= step:
                kept.append(line + "\n")
        # A kill can leave half a line at the end.
        if unreadable > 1:
            self.tell(f"warning: {self.path}: {unreadable} lines cannot be read and are dropped")
        atomic_write_text(self.path, "".join(kept))

    def write(self, values: dict[str, Any]) -> None:
        """Append one line, after those that wait."""
        if self.path is None:
            return
        with self._lock:
            self._waiting.append(json.dumps(plain_json(values), allow_nan=False) + "\n")
            try:
                append_text(self.path, "".join(self._waiting))
            except DiskError as error:
                if len(self._waiting) == 1:
                    self.tell(
                        f"warning: {error.message}. The training goes on; the lines wait in memory "
                        "until there is room, and are lost if it ends before"
                    )
                return
            if len(self._waiting) > 1:
                self.tell(
                    f"{self.path} can be written again, and has all {len(self._waiting)} "
                    "lines that waited"
                )
            self._waiting.clear()


class RunRecord:
    """The state of a run, its checkpoints, its best weights and its metrics.jsonl.

    Args:
        run: the RUN; None keeps the best weights in memory, and nothing else.
        num_steps: the steps of the whole run.
        course: what a resumed run must share with this one.
        progress: of the state that it begins with; ``resume`` replaces it.
        save_total_limit: checkpoints to keep.
        note: called with lines of text.
        processes: those that share the run.
        write: see Write.
    """

    def __init__(
        self,
        run: Path | None,
        num_steps: int,
        course: Course,
        save_total_limit: int,
        *,
        progress: Mapping[str, Any] = {},
        note: Callable[[str], None] = lambda _line: None,
        processes: Processes | None = None,
        write: Write = lambda write: write(),
    ) -> None:
        self.run = run
        self.num_steps = num_steps
        self.course = course
        self.state = TrainingState(course.to_dict(), progress=dict(progress))
        self.save_total_limit = save_total_limit
        self.note = note
        self.processes = processes or Processes()
        self.write = write
        self.log = MetricsLog(run if self.processes.is_first else None, tell=note)
        self._saved_step = 0
        self._best: dict[str, Tensor] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the last step is done."""
        return self.state.step >= self.num_steps

    def is_due(self, every: int, step: int | None = None) -> bool:
        """Whether work of every ``every`` steps, and of the last one, is due after a step.

        ``step``: its number, from 1; the last one that was launched if it is None.
        """
        step = self.state.step if step is None else step
        return step >= self.num_steps or step % every == 0

    def resume(self, load: Callable[[Checkpoint], None]) -> None:
        """Go on from the last valid checkpoint, given to ``load``; note where that is.

        Raises TrainingError for a checkpoint of another course.
        """
        assert self.run is not None
        found, lines = read_checkpoint(self.run, self.course, self.state.progress)
        if found is not None:
            load(found)
            self.state = found.state
            self._saved_step = found.state.step
        self.log.rewind(self.state.step)
        for line in lines:
            self.note(line)
        self.note(
            f"resuming after step {self.state.step} of {self.num_steps}"
            if self.state.step
            else f"no checkpoint to resume from in {self.run}: starting at step 1"
        )

    def save(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, unless there is no RUN.  Raises TrainingError."""
        if self.run is None or not self.processes.is_first:
            return
        state = replace(self.state, progress=dict(self.state.progress))
        checkpoint = Checkpoint(state, weights, moments)
        self.write(partial(write_checkpoint, self.run, checkpoint, self.save_total_limit))
        self._saved_step = state.step

    def log_evaluation(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Write the metrics that are numbers to metrics.jsonl, and return them."""
        figures = {name: each for name, each in metrics.items() if isinstance(each, int | float)}
        named = {f"eval_{name}": each for name, each in figures.items()}
        self.log.write({"step": self.state.step, **named})
        return figures

    def keep_best(self, metrics: dict[str, Any], weights: Mapping[str, Tensor]) -> None:
        """This step is the best so far: keep its metrics and weights."""
        self.state.best_metrics, self.state.best_step = metrics, self.state.step
        self.state.evaluations_since_best = 0
        if self.run is None:
            self._best = {name: each.clone() for name, each in weights.items()}
        elif self.processes.is_first:
            self.write(partial(write_best, self.run, weights))

    def best_weights(self) -> dict[str, Tensor] | None:
        """The weights of the best step; None where these are the last ones."""
        if self.state.best_step in (0, self.state.step):
            return None
        return self._best if self.run is None else read_best(self.run)

    def stop_requests(self) -> AbstractContextManager[StopRequest]:
        """Within the block a signal asks for a stop after the step at hand, and notes so."""
        return stop_requests(self._say_signal, forwarded=self.processes.is_group)

    def _say_signal(self, number: int, count: int) -> None:
        if count == 1:
            saved = "" if self.run is None else ", with a checkpoint"
            self.note(
                f"{signal_name(number)}: the run ends after the step at hand{saved} "
                f"({self.state.step} of {self.num_steps} steps are done)"
            )
            return
        lost = (
            f"the steps after step {self._saved_step}, the last checkpoint"
            if self._saved_step
            else "the whole training, which has no checkpoint yet"
        )
        self.note(f"{signal_name(number)} again: a third signal ends at once and loses {lost}")

    def watchdog(self) -> Watchdog:
        """Within its block a slow step is noted and logged."""
        return Watchdog(self._say_slow)

    def _say_slow(self, slow: SlowStep) -> None:
        self.note(
            f"warning: step {slow.step} of {self.num_steps} has taken {slow.seconds:.0f} s so far, "
            f"where a step takes {slow.median:.2g} s (the median); its batch: {slow.place}"
        )
        figures = asdict(slow)
        self.log.write({"step": figures.pop("step"), "slow_step": figures})

    def interrupted(self, signal_number: int) -> TrainingInterrupted:
        """The error that ends a run after a signal, once its checkpoint is written."""
        message = f"stopped after step {self.state.step} of {self.num_steps}"
        if self.run is not None:
            message += f"; the same command with {param('resume')} goes on from there in {self.run}"
        return TrainingInterrupted(message, signal_number)
