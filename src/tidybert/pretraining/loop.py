"""The loop of pre-training: steps over a stream of instances that knows its place.

A step's micro-batches add up to the mean over all that the step predicts, on all processes
together.  Random numbers follow from (seed, step, process), and each checkpoint has the stream's
position, so a run that was killed goes on with the same bits.

The program never waits for a GPU that has nothing else to do: it reads a step's figures after it
has launched the next step, and the device itself skips an update that is not finite.
"""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tidybert.errors import TrainingError, param
from tidybert.modeling.kernels.masked_lm_loss import SummedLoss
from tidybert.modeling.kernels.transfer import Fetched, steps_late
from tidybert.pretraining.masked_rows import MaskedRows
from tidybert.pretraining.micro_batch import memory_advice
from tidybert.pretraining.objectives import loss_parts
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, rate_at
from tidybert.pretraining.stream import StepBatches
from tidybert.storage.model_files import BAD_STEPS_FILE
from tidybert.training.background_writer import BackgroundWriter, snapshot
from tidybert.training.course import Course
from tidybert.training.distributed import Processes
from tidybert.training.interruption import StopRequest
from tidybert.training.optimization import begin_step, build_optimizer, update
from tidybert.training.precision import autocast, is_mixed, note_slow_bfloat16
from tidybert.training.random_numbers import seeds_allowed
from tidybert.training.run_checkpoints import (
    Checkpoint,
    TrainingState,
    check_fits,
    load_optimizer,
    optimizer_tensors,
)
from tidybert.training.run_record import MetricsLog, Notes, RunRecord
from tidybert.training.sharding import give_up_gathered, load_weights, whole
from tidybert.training.watchdog import Watchdog

Take = Callable[[int, Any], StepBatches]
"""This process's share of a step, by its number and its position in the data."""


@dataclass(frozen=True)
class PretrainingReport:
    """The result of one step.

    losses, accuracies: means over the step's predictions, by objective.  updated: whether the loss
    and the gradient were finite.  mfu: the share of the devices' peak that the step reached, None
    where the peak is not known.  padding_share: the padding among all rows.
    """

    step: int
    num_steps: int
    loss: float
    losses: dict[str, float]
    accuracies: dict[str, float]
    learning_rate: float
    gradient_norm: float
    num_tokens: int
    seconds: float
    updated: bool
    mfu: float | None = None
    padding_share: float = 0.0


@dataclass(frozen=True)
class _Launched:
    """A step whose figures may be on their way: two for each objective, then the gradient norm.

    step: its number, from 1.  before: its position in the data.  num_tokens: of the run, with it.
    counts: the predictions of all processes, by objective.
    """

    step: int
    begin: float
    taken: StepBatches
    before: Any
    num_tokens: int
    learning_rate: float
    counts: dict[str, int]
    figures: Fetched


@dataclass(frozen=True)
class PretrainingResult:
    """How a run ended; ``metrics`` are those of ``best_step``, whose weights the model holds."""

    num_steps: int
    best_step: int
    metrics: dict[str, Any]
    seconds: float
    num_tokens: int
    num_bad_steps: int


@dataclass(frozen=True)
class PretrainingCallbacks(Notes):
    """Functions that get lines of text, each step, each evaluation's metrics, and each figure."""

    step: Callable[[PretrainingReport], None] = lambda _done: None
    metrics: Callable[[int, dict[str, Any]], None] = lambda _step, _metrics: None


class Pretrainer:
    """Trains ``model`` in place.

    Args:
        model: already on its device, the same on every process.
        take: see Take.
        evaluate: the metrics of held-out text; the least "loss" decides which weights are the best.
        run: directory for checkpoints and metrics.jsonl, written by the first process.
        first_position: where the data begin.
        course: what a resumed run must share with this one.
        mfu: the share of all devices' peak that a step reaches, by its number and tokens a second;
            None where the peak is not known.
    """

    def __init__(
        self,
        model: nn.Module,
        take: Take,
        arguments: PretrainingArguments,
        *,
        evaluate: Callable[[nn.Module], dict[str, Any]],
        run: Path,
        first_position: Sequence[int],
        course: Course,
        processes: Processes | None = None,
        callbacks: PretrainingCallbacks | None = None,
        mfu: Callable[[int, float], float] | None = None,
    ) -> None:
        self.model = model
        self.take = take
        self.arguments = arguments
        self.evaluate = evaluate
        self.run = run
        self.processes = processes or Processes()
        self.callbacks = callbacks or PretrainingCallbacks()
        self.mfu = mfu
        self.num_steps: int = arguments.setting("max_steps")
        self.device = next(model.parameters()).device
        self.is_mixed = is_mixed(arguments.precision, self.device)
        note_slow_bfloat16(self.device, self.is_mixed, self.callbacks.tell)
        # Before the optimizer, which must hold the shards.
        self.shared = self.processes.shared(model, arguments.sharding, self.is_mixed)
        self.optimizer = build_optimizer(
            model,
            learning_rate=arguments.setting("learning_rate"),
            betas=(arguments.adam_beta1, arguments.setting("adam_beta2")),
            epsilon=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
            with_muon=arguments.optimizer == "muon",
            processes=self.processes,
        )
        self.trained = [each for each in model.parameters() if each.requires_grad]
        self.writer = BackgroundWriter()
        position = list(first_position)
        progress = {"position": position, "num_tokens": 0, "num_bad_steps": 0, "seconds": 0.0}
        self.record = RunRecord(
            run,
            self.num_steps,
            course,
            arguments.save_total_limit,
            progress=progress,
            note=self.callbacks.tell,
            processes=self.processes,
            write=self.writer.start,
        )
        log_of = run if self.processes.is_first else None
        self.bad_steps = MetricsLog(log_of, BAD_STEPS_FILE, self.callbacks.tell)
        self._bad_in_a_row = 0
        self._launched: deque[_Launched] = deque()
        self._steps_late = steps_late(self.device)
        self._saved_at = self._read_at = time.perf_counter()

    @property
    def state(self) -> TrainingState:
        """Where the run is."""
        return self.record.state

    def resume(self) -> None:
        """Go on from the last valid checkpoint, and note where that is."""
        self.record.resume(self._load)
        self.bad_steps.rewind(self.state.step)

    def _load(self, checkpoint: Checkpoint) -> None:
        check_fits(self.model, checkpoint)
        load_optimizer(self.model, self.optimizer, checkpoint.moments)
        load_weights(self.model, checkpoint.weights)

    def train(self) -> PretrainingResult:
        """Run the steps that are left, and leave the best weights in the model.

        Raises TrainingError after ``max_bad_steps`` steps in a row that were not finite, and
        TrainingInterrupted after a signal, once a checkpoint is written.
        """
        record = self.record
        try:
            with (
                record.stop_requests() as request,
                record.watchdog() as watchdog,
                self._ahead() as ahead,
                seeds_allowed(self.device),
            ):
                self._train_steps(request, watchdog, ahead)
        finally:
            self.writer.close()
        self.processes.wait()
        best = self.record.best_weights()
        if best is not None:
            load_weights(self.model, best)
        self.model.eval()
        progress = self.state.progress
        return PretrainingResult(
            num_steps=self.state.step,
            best_step=self.state.best_step or self.state.step,
            metrics=self.state.best_metrics or {},
            seconds=progress["seconds"],
            num_tokens=progress["num_tokens"],
            num_bad_steps=progress["num_bad_steps"],
        )

    def _train_steps(
        self, request: StopRequest, watchdog: Watchdog, ahead: ThreadPoolExecutor | None
    ) -> None:
        following: Future[StepBatches] | None = None
        while not self.record.is_over:
            begin = time.perf_counter()
            step = self.state.step
            position = self.state.progress["position"]
            with watchdog.step(step + 1, partial(_place, position)):
                if ahead is None:
                    taken = self.take(step, position)
                else:
                    taken = (following or ahead.submit(self._pinned, step, position)).result()
                    if step + 1 < self.num_steps:
                        following = ahead.submit(self._pinned, step + 1, taken.position)
                with memory_advice(taken.batches, self.arguments):
                    self._launch(taken, begin)
                done = self._read(self._steps_late)
            self._report(done)
            # All processes must agree, because each has to stop here for the same step.
            stopping, is_late = self.processes.any(bool(request.signal_number), self._is_late())
            is_save_due = self.record.is_due(self.arguments.save_steps) or stopping or is_late
            is_evaluation_due = self.record.is_due(self.arguments.eval_steps)
            if is_save_due or is_evaluation_due or self.record.is_over:
                self._report(self._read())
            if is_evaluation_due:
                with memory_advice(taken.batches, self.arguments):
                    self._evaluate()
            if is_save_due:
                self._save()
            if stopping and not self.record.is_over:
                self.writer.wait()
                # The signal may have come to another process alone.
                raise self.record.interrupted(request.signal_number or signal.SIGTERM)

    def _ahead(self) -> AbstractContextManager[ThreadPoolExecutor | None]:
        """A thread that makes the next step's batches while a GPU computes.

        A GPU would wait for them; a CPU has no core to spare for them.
        """
        if self.device.type != "cuda":
            return nullcontext()
        # A new thread would pin memory for the first device, whichever this process has.
        return ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=(self.device,))

    def _pinned(self, step: int, position: Any) -> StepBatches:
        """A step's batches in pinned memory: the main thread then only launches their copies."""
        taken = self.take(step, position)
        return replace(taken, batches=[batch.pinned() for batch in taken.batches])

    def _launch(self, taken: StepBatches, begin: float) -> None:
        """One update, or none where the loss or the gradient is not finite; counts the step."""
        step, arguments = self.state.step, self.arguments
        rate = rate_at(step, arguments)
        begin_step(self.model, self.optimizer, rate, arguments.seed, step, self.processes.rank)
        counts = self.processes.totals(taken.counts)
        sums = self._add_gradients(taken, counts)
        norm = whole(torch.nn.utils.clip_grad_norm_(self.trained, arguments.max_grad_norm))
        figures = torch.cat([sums.flatten(), norm.reshape(1)])
        update(self.optimizer, ~figures.isfinite().all())
        progress = self.state.progress
        before = progress["position"]
        self.state.step += 1
        progress["position"] = taken.position
        progress["num_tokens"] += taken.num_tokens
        tokens = progress["num_tokens"]
        fetch = Fetched(figures)
        self._launched.append(
            _Launched(step + 1, begin, taken, before, tokens, rate, counts, fetch)
        )

    def _add_gradients(self, taken: StepBatches, counts: dict[str, int]) -> Tensor:
        """Add the gradient of the step's loss.

        Returns (P, 2), the sum of the losses and the correct predictions of each objective.
        """
        sums = {name: torch.zeros(2, device=self.device) for name in counts}
        for number, batch in enumerate(taken.batches, start=1):
            is_last = number == len(taken.batches)
            with nullcontext() if is_last else self.processes.apart(self.shared):
                parts = self._forward_backward(batch, counts)
            for name, each in parts.items():
                sums[name] += torch.stack([each.total.detach(), each.correct])
        return self.processes.sum(torch.stack([*sums.values()]))

    def _forward_backward(self, batch: MaskedRows, counts: dict[str, int]) -> dict[str, SummedLoss]:
        """Add the gradient of one batch."""
        with autocast(self.device, self.is_mixed):
            parts = loss_parts(self.shared, batch.to(self.device))
        # DDP and FSDP divide the sum of the gradients by the number of processes.
        scaled = [each.total * (self.processes.size / counts[name]) for name, each in parts.items()]
        torch.stack(scaled).sum().backward()  # type: ignore[no-untyped-call]
        return parts

    def _read(self, most: int = 0) -> list[PretrainingReport]:
        """Read the figures of launched steps until at most this many are left; note bad steps."""
        found = []
        while len(self._launched) > most:
            launched = self._launched.popleft()
            done = self._figures(launched)
            self.state.progress["seconds"] += done.seconds
            self._bad_in_a_row = 0 if done.updated else self._bad_in_a_row + 1
            if not done.updated:
                self.state.progress["num_bad_steps"] += 1
                self._note_bad_step(done, launched)
            if self.record.is_due(self.arguments.logging_steps, done.step):
                self._log_step(done, launched.num_tokens)
            found.append(done)
        return found

    def _figures(self, launched: _Launched) -> PretrainingReport:
        """Wait for a step's figures."""
        *sums, norm = launched.figures.values()
        now = time.perf_counter()
        # A step that was launched while another ran begins when that one ends.
        seconds = now - max(launched.begin, self._read_at)
        self._read_at = now
        taken, counts = launched.taken, launched.counts
        losses = {name: each / counts[name] for name, each in zip(counts, sums[::2], strict=True)}
        right = zip(counts, sums[1::2], strict=True)
        loss = sum(losses.values())
        tokens_per_second = taken.num_tokens / seconds
        return PretrainingReport(
            step=launched.step,
            num_steps=self.num_steps,
            loss=loss,
            losses=losses,
            accuracies={name: each / counts[name] for name, each in right},
            learning_rate=launched.learning_rate,
            gradient_norm=norm,
            num_tokens=taken.num_tokens,
            seconds=seconds,
            updated=math.isfinite(loss) and math.isfinite(norm),
            mfu=self.mfu(launched.step - 1, tokens_per_second) if self.mfu else None,
            padding_share=1 - taken.num_tokens / taken.num_rows,
        )

    def _report(self, done: Sequence[PretrainingReport]) -> None:
        for each in done:
            self.callbacks.step(each)

    def _is_late(self) -> bool:
        """Whether ``save_minutes`` have passed since the last checkpoint."""
        return time.perf_counter() - self._saved_at > 60 * self.arguments.save_minutes

    def _save(self) -> None:
        self._saved_at = time.perf_counter()
        is_first = self.processes.is_first
        weights = snapshot(self.model.state_dict(), is_first)
        moments = snapshot(optimizer_tensors(self.model, self.optimizer), is_first)
        self.record.save(weights, moments)

    def _evaluate(self) -> None:
        """Measure held-out text; every process does, and the first one keeps the best weights."""
        self.model.eval()
        metrics = self.evaluate(self.model)
        give_up_gathered(self.model)
        step, best, is_first = self.state.step, self.state.best_metrics, self.processes.is_first
        figures = self.record.log_evaluation(metrics)
        self.callbacks.plot("eval", figures, step)
        self.callbacks.metrics(step, metrics)
        is_best = best is None or metrics["loss"] < best["loss"]
        # Figures of two devices may differ in their last bits, and gathering takes all processes.
        if self.processes.any(is_best and is_first)[0]:
            self.record.keep_best(metrics, snapshot(self.model.state_dict(), is_first))

    def _log_step(self, done: PretrainingReport, num_tokens: int) -> None:
        figures = {
            "loss": done.loss,
            **{f"{name}_loss": each for name, each in done.losses.items()},
            **{f"{name}_accuracy": each for name, each in done.accuracies.items()},
            "learning_rate": done.learning_rate,
            "gradient_norm": done.gradient_norm,
            "tokens_per_second": round(done.num_tokens / done.seconds),
        }
        if done.mfu is not None:
            figures["mfu"] = round(done.mfu, 4)
        if self.arguments.compile:
            figures["padding_share"] = round(done.padding_share, 4)
        finite = {name: each for name, each in figures.items() if math.isfinite(each)}
        self.record.log.write({"step": done.step, "num_tokens": num_tokens, **finite})
        self.callbacks.plot("train", finite, done.step)

    def _note_bad_step(self, done: PretrainingReport, launched: _Launched) -> None:
        """Write down where the batch was, and stop where too many were bad."""
        where = {
            **asdict(done),
            "loss": str(done.loss),
            "losses": {name: str(each) for name, each in done.losses.items()},
            "gradient_norm": str(done.gradient_norm),
            "position": launched.before,
            "num_sequences": launched.taken.num_sequences,
        }
        self.bad_steps.write(where)
        if self._bad_in_a_row >= self.arguments.max_bad_steps:
            raise TrainingError(
                f"the loss or the gradient was not finite in {self._bad_in_a_row} steps in a row, "
                f"up to step {done.step} of {self.num_steps} (loss {done.loss}, gradient norm "
                f"{done.gradient_norm}); the weights are as they were before. "
                f"{self.run / BAD_STEPS_FILE} has the places of the batches in the data. Resume "
                f"from the last checkpoint, or begin again with a lower {param('learning_rate')} "
                f"or more {param('warmup_steps')}"
            )


def _place(position: Any) -> str:
    """Where a step's instances begin, in words."""
    return f"position {position} of the corpus (phase, epoch, group, instance)"
