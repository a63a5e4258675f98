"""The one loop of training: steps of an objective, and what a run needs around them.

    loop = TrainingLoop(objective, run=run, identity=identity)
    loop.resume()
    result = loop.train()

The loop knows no task: objective.py says what it is handed.  Everything random follows from (seed,
step, process), and a checkpoint has the place in the data, so a resumed run ends with the same
bits.  figures.py reads what a step found, and stops a run whose loss is not finite; run_record.py
has what is on disk.
"""

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from tidybert.errors import DivergedError, TrainingError, WeightsError, is_out_of_memory
from tidybert.modeling.kernels.transfer import Fetched
from tidybert.options import Changes
from tidybert.system.reporter import Reporter
from tidybert.training.determinism import seeds_allowed
from tidybert.training.distributed import give_up_gathered, load_weights, whole
from tidybert.training.figures import BadSteps, LaunchedStep, StepFigures
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
