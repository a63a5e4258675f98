"""The one loop of training: steps of an objective, and what a run needs around them.

    loop = TrainingLoop(objective, run=run, identity=identity)
    loop.resume()
    result = loop.train()

The loop knows no task: objective.py says what it is handed.  Everything random follows from (seed,
step, process), and a checkpoint has the place in the data, so a resumed run ends with the same
bits.  run_record.py has what is on disk.

A step's figures are read once the device has them, then reported and logged; a loss that is not
finite stops the run.  On CUDA the program launches a step before it reads the figures of the one
before, so that the device always has work.
"""

import shlex
import signal
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import torch
from torch import Tensor

from tidybert.errors import DivergedError, TrainingError, WeightsError, is_out_of_memory
from tidybert.modeling.kernels.transfer import Fetched, steps_late
from tidybert.options import Changes
from tidybert.storage.model_files import BAD_STEPS_FILE, checkpoints_by_step
from tidybert.system.reporter import Reporter
from tidybert.training.determinism import seeds_allowed
from tidybert.training.distributed import give_up_gathered, load_weights, whole
from tidybert.training.interruption import StopRequest, TrainingInterrupted, Watchdog
from tidybert.training.objective import Objective, Work
from tidybert.training.optimization import begin_step, clip, update
from tidybert.training.reports import StepReport, TrainingResult
from tidybert.training.runs.run_checkpoints import (
    AsModel,
    Checkpoint,
    RunIdentity,
    TrainingState,
    check_fits,
    load_optimizer,
    optimizer_tensors,
)
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


AnyObjective = TypeVar("AnyObjective", bound=Objective)


class TrainingLoop(Generic[AnyObjective]):
    """Trains an objective's model in place.

    Args:
        run: directory for checkpoints and logs, which the first process writes; None keeps
            everything in memory.
        identity: what a resumed run must share with this one.
        as_model: writes the weights of a checkpoint as a MODEL; None: as tensors alone.
        keep_every: every so many of ``settings.save_steps`` the checkpoint stays for good.
    """

    def __init__(
        self,
        objective: AnyObjective,
        *,
        run: Path | None = None,
        identity: RunIdentity | None = None,
        reporter: Reporter | None = None,
        as_model: AsModel | None = None,
        keep_every: int | None = None,
    ) -> None:
        self.objective = objective
        self.settings = settings = objective.settings
        self.reporter = reporter or Reporter()
        # A resume compares the form of these entries, so a run begins with all of them.
        counts = {} if settings.max_bad_steps is None else {"num_bad_steps": 0}
        self.record = RunRecord(
            run,
            settings.num_steps,
            identity or RunIdentity({}, {}),
            settings.save_total_limit,
            progress={**objective.progress, **counts, "seconds": 0.0},
            reporter=self.reporter,
            processes=objective.processes,
            writes_beside=settings.writes_beside,
            kept_steps=None if keep_every is None else keep_every * settings.save_steps,
            preempt_seconds=settings.preempt_seconds,
            as_model=as_model,
        )
        self.bad_steps = BadSteps(objective, self.record)
        plot = partial(self.reporter.plot, "train")
        self.figures = StepFigures(objective, self.record, self.bad_steps, plot)
        self._saved_at = self._counted_until = time.perf_counter()
        self._num_examples = self._num_tokens = 0
        self._is_skipping = False

    @property
    def state(self) -> TrainingState:
        """Where the run is."""
        return self.record.state

    def resume(self, *, change: bool = False) -> None:
        """Go on from the last valid checkpoint, and note where that is.

        ``change``: arguments may change the steps from here on.
        """
        changed = self.record.resume(self._load, change=change)
        if Changes.ORDER in changed:
            self.state.progress |= self.objective.in_new_order(self.state.progress)
        if not changed & (Changes.ORDER | Changes.MEASURE):
            self.bad_steps.recall()
        self.bad_steps.log.rewind(self.state.step)

    def branch(self, name: str, directory: Path) -> None:
        """Begin with the checkpoint RUN@STEP in a directory, or go on after a kill; arguments may
        change the steps from there on.
        """
        self.record.branch(name, directory)
        self.resume(change=True)

    def _load(self, checkpoint: Checkpoint) -> None:
        model = self.objective.model
        self.objective.changed_before(checkpoint.state.changes)
        with self.whole_model():
            check_fits(model, checkpoint)
        load_optimizer(model, self.objective.optimizer, checkpoint.moments)
        with self.whole_model():
            load_weights(model, checkpoint.weights)

    @contextmanager
    def stage(self, name: str) -> Iterator[list[float]]:
        """Within the block is a stage before step 1: its time counts, and losses may be added."""
        begin, losses = time.perf_counter(), list[float]()
        yield losses
        seconds = time.perf_counter() - begin
        self.state.stages[name] = self.state.stages.get(name, 0.0) + seconds
        shown = [{"step": step, "loss": loss} for step, loss in enumerate(losses, start=1)]
        self.record.log.write(
            {"step": 0, "stage": name, "seconds": round(seconds, 3), "steps": shown}
        )

    def train(self, *, measures_start: bool = False) -> TrainingResult:
        """Run the steps that are left, and leave the best weights in the model.

        ``measures_start``: the first weights are measured too, and may be the best, as step 0.

        Raises TrainingError where the training diverges, where memory is too small, and where no
        checkpoint can be written; TrainingInterrupted after a signal and a checkpoint.
        """
        objective, begin, resumed_from = self.objective, time.perf_counter(), self.state.step
        self._counted_until, self._num_examples, self._num_tokens = begin, 0, 0
        on_cuda, interrupted = objective.device.type == "cuda", None
        try:
            with (
                seeds_allowed(objective.device) if on_cuda else nullcontext(),
                objective.at_work(self.state),
                self.record.at_work() as (request, watchdog),
            ):
                if measures_start and self.state.step == 0:
                    self._evaluate()
                while not (self.record.is_over or self._has_patience_ended()):
                    self._train_step(request, watchdog)
        except TrainingInterrupted as error:
            if self.record.run is not None or error.exit_status != 128 + signal.SIGINT:
                raise
            interrupted = error
        objective.processes.wait()
        best = self.record.best_weights()
        if best is not None:
            load_weights(objective.model, best)
        objective.model.eval()
        self._count_seconds()
        best_metrics, before = self.state.best_metrics, self.state.stages
        steps = {"steps": self.state.progress["seconds"]} if self.settings.num_steps else {}
        seconds = time.perf_counter() - begin
        result = TrainingResult(
            num_steps=self.state.step,
            best_step=self.state.step if best_metrics is None else self.state.best_step,
            metrics=best_metrics or {},
            seconds=seconds if resumed_from else seconds + sum(before.values()),
            num_examples=self._num_examples,
            num_tokens=self._num_tokens,
            num_bad_steps=self.state.progress.get("num_bad_steps", 0),
            stopped_early=self.state.step < self.settings.num_steps,
            resumed_from=resumed_from,
            stages={**before, **steps},
            cross_validated=self.state.cross_validated,
        )
        if interrupted is not None:
            raise interrupted.keeping(result)
        return result

    def _train_step(self, request: StopRequest, watchdog: Watchdog) -> None:
        """One step, and what is due after it."""
        begin, step, before = time.perf_counter(), self.state.step, dict(self.state.progress)
        with watchdog.step(step + 1, partial(self.objective.place, step, before)):
            work = self.objective.work(step, before)
            with self._says_too_little_memory(step, work):
                self._launch(step, work, begin, before)
                done = self.figures.read(self.figures.late)
        self._report(done)
        if self.record.is_due(self.settings.eval_steps):
            self._report(self.figures.read())
            with self._says_too_little_memory(step, work):
                self._evaluate()
        # All processes must agree, because each has to stop here for the same step.
        is_late = time.perf_counter() - self._saved_at > 60 * self.settings.save_minutes
        # The time of a step and a checkpoint, twice, because neither is known beforehand.
        needed = 2 * (time.perf_counter() - begin + self.record.seconds_to_save) + 1
        stops = request.is_due(self.settings.preempt_seconds, needed)
        stops, is_late = self.objective.processes.any(stops, is_late)
        if stops or is_late or self.record.is_due(self.settings.save_steps):
            self._report(self.figures.read())
            self._save()
        if stops and not self.record.is_over:
            # The signal may have come to another process only.
            raise self.record.interrupted(request.signal_number or signal.SIGTERM)

    def _launch(self, step: int, work: Work, begin: float, before: Mapping[str, Any]) -> None:
        """One update, or none where the loss or the gradient is not finite; counts the step."""
        objective, settings = self.objective, self.settings
        if work.batches is None:
            self._skip(step, work)
            return
        self._is_skipping = False
        rate, draws = objective.learning_rate(step), objective.draws_from_default
        # On a CPU others in the process get PyTorch's own generator back after each step.
        may_seed = draws and objective.device.type != "cuda"
        with seeds_allowed() if may_seed else nullcontext():
            seed = settings.seed, step, objective.processes.rank
            numbers = begin_step(objective.model, objective.optimizer, rate, *seed, default=draws)
            sums = objective.add_gradients(work, numbers)
            norm = clip(objective.trained, objective.optimizer, settings.max_grad_norm)
            figures = torch.cat([sums, whole(norm).reshape(1).to(sums.dtype)])
            update(objective.optimizer, self.bad_steps.is_bad(figures))
        self.state.step += 1
        self.state.progress |= work.progress
        self.figures.add(LaunchedStep(step + 1, begin, work, before, rate, Fetched(figures)))

    def _skip(self, step: int, work: Work) -> None:
        """Count a step whose data are passed over."""
        self.state.step += 1
        self.state.progress |= work.progress
        self.record.log.write({"step": step + 1, "skipped": True})
        if not self._is_skipping:
            self.reporter.tell(f"from step {step + 1} on, data are passed over without an update")
        self._is_skipping = True

    def _report(self, done: Sequence[StepReport]) -> None:
        for each in done:
            self._num_examples += each.num_examples
            self._num_tokens += each.num_tokens
            self.reporter.step(each)

    def _evaluate(self) -> None:
        """Measure the model; every process does, and the first one keeps the best weights."""
        objective, step, best = self.objective, self.state.step, self.state.best_metrics
        objective.model.eval()
        try:
            with self.whole_model():
                metrics = objective.evaluate()
        except WeightsError as error:
            if not step:
                raise
            raise DivergedError(
                f"after step {step} of {self.settings.num_steps} the model's outputs on the dev "
                f"part are not finite: its weights have grown too large. {objective.advice}"
            ) from error
        if metrics is None:
            return
        give_up_gathered(objective.model)
        self.reporter.plot("eval", self.record.log_evaluation(metrics), step)
        self.reporter.metrics(step, metrics)
        is_better = best is None or objective.is_better(metrics, best)
        if best is not None and self.state.best_step == 0:
            is_better |= objective.is_surer(metrics, best)
        # Figures of two devices may differ in their last bits, and gathering takes all processes.
        if objective.processes.any(is_better and objective.processes.is_first)[0]:
            with self.whole_model():
                self.record.keep_best(metrics, objective.model.state_dict())
        else:
            self.state.evaluations_since_best += 1

    def _has_patience_ended(self) -> bool:
        patience = self.settings.patience
        return patience is not None and self.state.evaluations_since_best >= patience

    def _save(self) -> None:
        self._saved_at = time.perf_counter()
        self._count_seconds()
        if self.record.run is None:
            return
        model = self.objective.model
        moments = optimizer_tensors(model, self.objective.optimizer)
        with self.whole_model():
            self.record.save(model.state_dict(), moments)

    def _count_seconds(self) -> None:
        """Add the time that has passed to the run's, unless only that of its steps counts."""
        now = time.perf_counter()
        if not self.settings.times_steps:
            self.state.progress["seconds"] += now - self._counted_until
        self._counted_until = now

    def whole_model(self) -> AbstractContextManager[None]:
        """Within the block the model has all parameters that it has after the training."""
        return self.objective.whole_model(self.state.step)

    @contextmanager
    def _says_too_little_memory(self, step: int, work: Work) -> Iterator[None]:
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(self.objective.too_little_memory(step, work)) from error
