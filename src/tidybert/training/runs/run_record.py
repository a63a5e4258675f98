"""Where a run is, what it leaves on disk and what it says, for fine-tuning and pre-training.

The first of several processes writes; all of them hold the same state.
"""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from tidybert.errors import TrainingError, param
from tidybert.files.rows import count_of
from tidybert.options import Changes
from tidybert.storage.model_files import BAD_STEPS_FILE, METRICS_FILE
from tidybert.storage.own_files import make_directory
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.signals import signal_name
from tidybert.training.distributed import Processes, whole
from tidybert.training.interruption import (
    SlowStep,
    StopRequest,
    TrainingInterrupted,
    Watchdog,
    stop_requests,
)
from tidybert.training.runs.run_checkpoints import (
    AsModel,
    Checkpoint,
    RunIdentity,
    TrainingState,
    checkpoint_at,
    read_best,
    read_checkpoint,
    step_directories,
    write_best,
    write_checkpoint,
)
from tidybert.training.trackers import MetricsLog

# A thread that writes checkpoints while steps go on.


class BackgroundWriter:
    """Runs writes in their order; a later call, or ``wait``, raises the error of one.

    After a failed write it skips the later ones, because they may rely on it.  At most two are
    pending, because each holds a copy of the weights.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: deque[Future[object]] = deque()

    def start(self, write: Callable[[], object]) -> None:
        self.wait(1)
        before = self._pending[-1] if self._pending else None

        def write_after() -> None:
            if before is not None:
                before.result()
            write()

        self._pending.append(self._pool.submit(write_after))

    def wait(self, most: int = 0) -> None:
        """Wait until at most this many writes are pending; raises what a write raised."""
        while len(self._pending) > most:
            self._pending.popleft().result()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self._pool.shutdown()


def snapshot(tensors: Mapping[str, Tensor], wanted: bool = True) -> dict[str, Tensor]:
    """Whole copies on the CPU, which later steps do not change; none where they are not wanted.

    All processes must call this together where tensors are sharded.
    """
    copies = {}
    for name, each in tensors.items():
        gathered = whole(each.detach())
        if wanted:
            copies[name] = gathered.to("cpu", copy=True)
    return copies


class RunRecord:
    """The state of a run, its checkpoints, its best weights and its metrics.jsonl.

    Without a ``run`` it keeps the best weights in memory, and nothing else.  ``progress`` is that
    of a run that begins; the checkpoint of every ``kept_steps`` stays for good.
    """

    def __init__(
        self,
        run: Path | None,
        num_steps: int,
        identity: RunIdentity,
        save_total_limit: int,
        *,
        progress: Mapping[str, Any] = {},
        reporter: Reporter = SILENT,
        processes: Processes | None = None,
        writes_beside: bool = False,
        kept_steps: int | None = None,
        preempt_seconds: float | None = None,
        as_model: AsModel | None = None,
    ) -> None:
        self.run = run
        self.num_steps = num_steps
        self.identity = identity
        self.state = TrainingState(identity.to_dict(), progress=dict(progress))
        self.save_total_limit = save_total_limit
        self.kept_steps = kept_steps
        self.preempt_seconds = preempt_seconds
        self.as_model = as_model
        self.reporter = reporter
        self.processes = processes or Processes()
        self.log = self.log_file(METRICS_FILE)
        self._writer = BackgroundWriter() if writes_beside else None
        self._saved_step = 0
        self.seconds_to_save = math.inf
        self._best: dict[str, Tensor] | None = None

    def log_file(self, name: str) -> MetricsLog:
        """A log of the run, which the first process writes."""
        return MetricsLog(self.run if self.processes.is_first else None, name, self.reporter)

    @property
    def is_over(self) -> bool:
        return self.state.step >= self.num_steps

    def is_due(self, every: int, step: int | None = None) -> bool:
        """Whether work of every so many steps, and of the last, is due after ``step``, from 1."""
        step = self.state.step if step is None else step
        return step >= self.num_steps or step % every == 0

    def resume(self, load: Callable[[Checkpoint], None], *, change: bool) -> Changes:
        """Go on from the last valid checkpoint, which ``load`` gets; ``change`` allows changes."""
        assert self.run is not None
        found, lines, changed = read_checkpoint(
            self.run, self.identity, self.state.progress, allowed=change
        )
        if found is not None and found.state.step > self.num_steps:
            raise TrainingError(
                f"{self.run} has done {count_of(found.state.step, 'step')}, and the run would have "
                f"{self.num_steps}; more steps continue it"
            )
        if found is not None:
            load(found)
            self.state = found.state
            self._saved_step = found.state.step
        self.log.rewind(self.state.step)
        for line in lines:
            self.reporter.tell(line)
        self.reporter.tell(
            f"resuming after step {self.state.step} of {self.num_steps}"
            if self.state.step
            else f"no checkpoint to resume from in {self.run}: starting at step 1"
        )
        if Changes.MEASURE in changed:
            self.state.forget_best()
        return changed

    def branch(self, name: str, directory: Path) -> None:
        """Begin with another run's checkpoint RUN@STEP, unless this one has its own already."""
        assert self.run is not None
        if self.processes.is_first and not step_directories(self.run):
            step = int(name.rpartition("@")[2])
            found = checkpoint_at(directory, step, self.state.progress)
            # Refused before anything is written.
            self.identity.changes(found.state.course, name, allowed=True)
            make_directory(self.run)
            found.state.forget_best()
            found.state.changes.append({"step": step, "branch": [None, name]})
            for log in (self.log, self.log_file(BAD_STEPS_FILE)):
                assert log.path is not None
                log.rewind(step, directory.parents[1] / log.path.name)
            write_checkpoint(self.run, replace(found, as_model=self.as_model), 1)
        self.processes.wait()

    def save(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Write a checkpoint; every process calls this.  Raises TrainingError."""
        assert self.run is not None
        weights, moments = self._copies(weights), self._copies(moments)
        if self.processes.is_first:
            state = msgspec.structs.replace(self.state, progress=dict(self.state.progress))
            is_kept = self.kept_steps is not None and state.step % self.kept_steps == 0
            checkpoint = Checkpoint(state, weights, moments, self.as_model, is_kept)
            self._write(partial(write_checkpoint, self.run, checkpoint, self.save_total_limit))
        self._saved_step = self.state.step

    def _copies(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors, or whole copies for the first process where later steps change them."""
        return snapshot(tensors, self.processes.is_first) if self._writer else tensors

    def _write(self, write: Callable[[], object]) -> None:
        """Write a file now, or in the thread, and remember how long it took."""

        def timed() -> None:
            begin = time.perf_counter()
            write()
            self.seconds_to_save = time.perf_counter() - begin

        if self._writer:
            self._writer.start(timed)
        else:
            timed()

    def log_evaluation(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Write the metrics that are numbers to metrics.jsonl, and return them."""
        figures = {name: each for name, each in metrics.items() if isinstance(each, int | float)}
        named = {f"eval_{name}": each for name, each in figures.items()}
        self.log.write({"step": self.state.step, **named})
        return figures

    def keep_best(self, metrics: dict[str, Any], weights: Mapping[str, Tensor]) -> None:
        """This step is the best so far: keep its metrics and weights; every process calls this."""
        self.state.best_metrics, self.state.best_step = metrics, self.state.step
        self.state.evaluations_since_best = 0
        weights = self._copies(weights)
        if self.run is None:
            self._best = {name: each.clone() for name, each in weights.items()}
        elif self.processes.is_first:
            self._write(partial(write_best, self.run, weights))

    def best_weights(self) -> dict[str, Tensor] | None:
        """The weights of the best step; None where these are the last ones."""
        if self.state.best_metrics is None or self.state.best_step == self.state.step:
            return None
        return self._best if self.run is None else read_best(self.run)

    @contextmanager
    def at_work(self) -> Iterator[tuple[StopRequest, Watchdog]]:
        """The block of all steps: signals and slow steps are noted; its end waits for writes."""
        try:
            with (
                stop_requests(self._say_signal, forwarded=self.processes.is_group) as request,
                Watchdog(self._say_slow) as watchdog,
            ):
                yield request, watchdog
        finally:
            if self._writer:
                self._writer.close()

    def _say_signal(self, number: int, count: int) -> None:
        if count == 1:
            saved = "" if self.run is None else ", with a checkpoint"
            when = "after the step at hand"
            if self.preempt_seconds is not None and number == signal.SIGTERM:
                when = f"within {self.preempt_seconds:g} s"
            self.reporter.tell(
                f"{signal_name(number)}: the run ends {when}{saved} "
                f"({self.state.step} of {self.num_steps} steps are done)"
            )
            return
        lost = (
            f"the steps after step {self._saved_step}, the last checkpoint"
            if self._saved_step
            else "the whole training, which has no checkpoint yet"
        )
        self.reporter.tell(
            f"{signal_name(number)} again: a third signal ends at once and loses {lost}"
        )

    def _say_slow(self, slow: SlowStep) -> None:
        self.reporter.tell(
            f"warning: step {slow.step} of {self.num_steps} has taken {slow.seconds:.0f} s so far, "
            f"where a step takes {slow.median:.2g} s (the median); its batch: {slow.place}"
        )
        figures = asdict(slow)
        self.log.write({"step": figures.pop("step"), "slow_step": figures})

    def interrupted(self, signal_number: int) -> TrainingInterrupted:
        """The error that ends a run after a signal; ``at_work`` waits for its checkpoint."""
        message = f"stopped after step {self.state.step} of {self.num_steps}"
        if self.run is not None:
            message += f"; the same command with {param('resume')} continues there in {self.run}"
        return TrainingInterrupted(message, signal_number)
