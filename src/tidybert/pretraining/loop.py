"""The loop of pre-training: steps without end in sight, over a stream that knows its place.

It is handed a model, a stream of batches, and a loss in parts, each a sum with its count.  A step's
micro-batches add up to the mean over all that the step predicts, on all processes together.  What
is random follows from (seed, step, process), and where the stream stands is in each checkpoint, so
a run that was killed goes on with the same bits.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tidybert.errors import TrainingError, param
from tidybert.model_files import BAD_STEPS_FILE
from tidybert.pretraining.pretraining_arguments import (
    PretrainingArguments,
    least_micro_batch,
    rate_at,
)
from tidybert.pretraining.step_reports import (
    Part,
    PretrainingReport,
    PretrainingResult,
    Stream,
    StreamStep,
)
from tidybert.training.background_writer import BackgroundWriter, snapshot
from tidybert.training.distributed import Processes
from tidybert.training.interruption import StopRequest, TrainingInterrupted, stop_requests
from tidybert.training.metrics_log import MetricsLog
from tidybert.training.optimization import adamw, muon
from tidybert.training.precision import autocast, is_mixed
from tidybert.training.run_checkpoints import (
    Checkpoint,
    TrainingState,
    load_optimizer,
    optimizer_tensors,
    read_best,
    read_checkpoint,
    remove_unfinished,
    write_best,
    write_checkpoint,
)
from tidybert.training.sharding import give_up_gathered, load_weights, whole


class Pretrainer:
    """Trains ``model`` in place.

    Args:
        model: already on its device, the same on every process.
        stream: this process's share of each step.
        loss: the parts of a batch's loss, by name.
        evaluate: the metrics of held-out text; "loss" decides which weights are the best.
        run: directory for checkpoints and metrics.jsonl, written by the first process.
        first_position: where the stream begins.
        tensorboard: called with a name, a value and a step for each figure that is logged.
        mfu: the share of all devices' peak that a step reaches, by its number and tokens a second;
            None where the peak is not known.
    """

    def __init__(
        self,
        model: nn.Module,
        stream: Stream,
        loss: Callable[[nn.Module, Any], Mapping[str, Part]],
        arguments: PretrainingArguments,
        *,
        evaluate: Callable[[nn.Module], dict[str, Any]],
        run: Path,
        first_position: Any,
        fingerprint: str,
        processes: Processes | None = None,
        report: Callable[[PretrainingReport], None] | None = None,
        report_metrics: Callable[[int, dict[str, Any]], None] | None = None,
        tensorboard: Callable[[str, float, int], None] | None = None,
        mfu: Callable[[int, float], float] | None = None,
    ) -> None:
        self.model = model
        self.stream = stream
        self.loss = loss
        self.arguments = arguments
        self.evaluate = evaluate
        self.run = run
        self.processes = processes or Processes()
        self.report = report
        self.report_metrics = report_metrics
        self.tensorboard = tensorboard
        self.num_steps: int = arguments.setting("max_steps")
        self.device = next(model.parameters()).device
        self.is_mixed = is_mixed(arguments.precision, self.device)
        self.mfu = mfu
        # Before the optimizer, which is to hold the shards.
        self.shared = self.processes.shared(model, arguments.sharding, self.is_mixed)
        self.optimizer = self._optimizer()
        self.trained = [each for each in model.parameters() if each.requires_grad]
        counted = {"num_tokens": 0, "num_bad_steps": 0, "seconds": 0.0}
        self.state = TrainingState(fingerprint, progress={"position": first_position, **counted})
        self.log = MetricsLog(run if self.processes.is_first else None)
        self.bad_steps = MetricsLog(run if self.processes.is_first else None, BAD_STEPS_FILE)
        self._bad_in_a_row = 0
        self._saved_at = time.perf_counter()

    def _optimizer(self) -> torch.optim.Optimizer:
        arguments = self.arguments
        build = (
            partial(muon, encoder=self.model.get_submodule("bert.encoder"))
            if arguments.optimizer == "muon"
            else adamw
        )
        return build(
            self.model,
            learning_rate=arguments.setting("learning_rate"),
            betas=(arguments.adam_beta1, arguments.setting("adam_beta2")),
            epsilon=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
        )

    def resume(self) -> list[str]:
        """Go on from the last valid checkpoint; returns notes on any that was passed over."""
        if self.processes.is_first:
            remove_unfinished(self.run)
        self.processes.wait()
        found, notes = read_checkpoint(self.run, self.state.fingerprint)
        if found is not None:
            load_optimizer(self.model, self.optimizer, found.moments)
            load_weights(self.model, found.weights)
            self.state = found.state
        self.log.rewind(self.state.step)
        self.bad_steps.rewind(self.state.step)
        return notes

    def train(self) -> PretrainingResult:
        """Run the steps that are left, and leave the best weights in the model.

        Raises TrainingError after ``max_bad_steps`` steps in a row that were not finite, and
        TrainingInterrupted after a signal, once a checkpoint is written.
        """
        writer = BackgroundWriter()
        try:
            forwarded = self.processes.size > 1
            with stop_requests(forwarded=forwarded) as request, ThreadPoolExecutor(1) as ahead:
                self._train_steps(writer, request, ahead)
        finally:
            writer.close()
        self.processes.wait()
        if self.state.best_step not in (0, self.state.step):
            load_weights(self.model, read_best(self.run))
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
        self,
        writer: BackgroundWriter,
        request: StopRequest,
        ahead: ThreadPoolExecutor,
    ) -> None:
        following: Future[StreamStep] | None = None
        while self.state.step < self.num_steps:
            begin = time.perf_counter()
            step = self.state.step
            taken = (
                following.result()
                if following
                else self.stream.take(step, self.state.progress["position"])
            )
            if self.device.type == "cuda" and step + 1 < self.num_steps:
                # A GPU would wait for the next instances; a CPU has no core to spare for them.
                following = ahead.submit(self.stream.take, step + 1, taken.position)
            with self._told_of_memory(taken):
                done = self._step(taken, begin)
            if self.report is not None:
                self.report(done)
            stopping = self.processes.any(bool(request.signal_number), self.device)
            is_last = self.state.step == self.num_steps
            if is_last or self.state.step % self.arguments.eval_steps == 0:
                with self._told_of_memory(taken):
                    self._evaluate(writer)
            if is_last or stopping or self._save_is_due():
                self._save(writer)
            if stopping and not is_last:
                writer.wait()
                raise self._interrupted(request.signal_number)

    def _step(self, taken: StreamStep, begin: float) -> PretrainingReport:
        """One update, or none where the loss or the gradient is not finite."""
        step, arguments = self.state.step, self.arguments
        rate = rate_at(step, arguments)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        words = [arguments.seed, step, self.processes.rank]
        torch.manual_seed(int(np.random.SeedSequence(words).generate_state(1)[0]))
        self.model.train()
        counts = self.processes.totals(taken.counts, self.device)
        sums = {name: torch.zeros((), device=self.device) for name in counts}
        correct = {name: torch.zeros((), device=self.device) for name in counts}
        for number, batch in enumerate(taken.batches, start=1):
            is_last = number == len(taken.batches)
            with nullcontext() if is_last else self.processes.apart(self.shared):
                parts = self._forward_backward(batch, counts)
            for name, each in parts.items():
                sums[name] += each.total.detach()
                correct[name] += each.correct
        figures = self.processes.sum(torch.stack([*sums.values(), *correct.values()])).tolist()
        losses = {n: v / counts[n] for n, v in zip(sums, figures, strict=False)}
        rights = figures[len(sums) :]
        accuracies = {n: v / counts[n] for n, v in zip(sums, rights, strict=True)}
        loss = sum(losses.values())
        norm = whole(torch.nn.utils.clip_grad_norm_(self.trained, arguments.max_grad_norm)).item()
        is_finite = math.isfinite(loss) and math.isfinite(norm)
        if is_finite:
            self.optimizer.step()
        self.optimizer.zero_grad()
        before = self.state.progress["position"]
        self.state.step += 1
        progress = self.state.progress
        progress["position"] = taken.position
        progress["num_tokens"] += taken.num_tokens
        seconds = time.perf_counter() - begin
        progress["seconds"] += seconds
        self._bad_in_a_row = 0 if is_finite else self._bad_in_a_row + 1
        done = PretrainingReport(
            step=self.state.step,
            num_steps=self.num_steps,
            loss=loss,
            losses=losses,
            accuracies=accuracies,
            learning_rate=rate,
            gradient_norm=norm,
            num_tokens=taken.num_tokens,
            seconds=seconds,
            updated=is_finite,
            mfu=self.mfu(step, taken.num_tokens / seconds) if self.mfu else None,
            padding_share=1 - taken.num_tokens / taken.num_rows,
        )
        if not is_finite:
            progress["num_bad_steps"] += 1
            self._note_bad_step(done, before, taken)
        if self.state.step % arguments.logging_steps == 0 or self.state.step == self.num_steps:
            self._log_step(done)
        return done

    def _forward_backward(self, batch: Any, counts: Mapping[str, int]) -> Mapping[str, Part]:
        """Add a batch's gradients."""
        with autocast(self.device, self.is_mixed):
            parts = self.loss(self.shared, batch.to(self.device))
        # DDP and FSDP divide the sum of the gradients by the number of processes.
        scaled = [each.total * (self.processes.size / counts[name]) for name, each in parts.items()]
        torch.stack(scaled).sum().backward()  # type: ignore[no-untyped-call]
        return parts

    @contextmanager
    def _told_of_memory(self, taken: StreamStep) -> Iterator[None]:
        """TrainingError with what to try where the device's memory is too small."""
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            tokens = max(batch.rows.num_tokens for batch in taken.batches)
            longest = max(batch.rows.max_seqlen for batch in taken.batches)
            smaller = max(tokens // 2, least_micro_batch(self.arguments, longest))
            advice = []
            if smaller < tokens:
                advice.append(param("micro_batch", smaller))
            if not self.arguments.checkpoint_activations:
                advice.append(param("checkpoint_activations"))
            raise TrainingError(
                f"the device's memory is too small for {tokens:,} tokens at once; try "
                + (
                    f"{', or '.join(advice)}. The result is the same but for rounding and dropout"
                    if advice
                    else "a smaller model"
                )
            ) from error

    def _save_is_due(self) -> bool:
        if self.state.step % self.arguments.save_steps == 0:
            return True
        late = time.perf_counter() - self._saved_at > 60 * self.arguments.save_minutes
        # All processes must agree, for each has to stop here for the same step.
        return self.processes.any(late, self.device) if self.processes.size > 1 else late

    def _save(self, writer: BackgroundWriter) -> None:
        self._saved_at = time.perf_counter()
        is_first = self.processes.is_first
        weights = snapshot(self.model.state_dict(), is_first)
        moments = snapshot(optimizer_tensors(self.model, self.optimizer), is_first)
        if not is_first:
            return
        state = replace(self.state, progress=dict(self.state.progress))
        checkpoint = Checkpoint(state, weights, moments)
        keep = self.arguments.save_total_limit
        writer.start(partial(write_checkpoint, self.run, checkpoint, keep))

    def _evaluate(self, writer: BackgroundWriter) -> None:
        """Measure held-out text; every process does, and the first one keeps the best weights."""
        self.model.eval()
        metrics = self.evaluate(self.model)
        give_up_gathered(self.model)
        step = self.state.step
        figures = {name: each for name, each in metrics.items() if isinstance(each, int | float)}
        self.log.write({"step": step, **{f"eval_{name}": each for name, each in figures.items()}})
        self._tell_tensorboard({f"eval/{name}": each for name, each in figures.items()}, step)
        if self.report_metrics is not None:
            self.report_metrics(step, metrics)
        best, is_first = self.state.best_metrics, self.processes.is_first
        is_best = best is None or metrics["loss"] < best["loss"]
        # Figures of two devices may differ in their last bits, and gathering takes all processes.
        if self.processes.any(is_best and is_first, self.device):
            self.state.best_metrics, self.state.best_step = metrics, step
            weights = snapshot(self.model.state_dict(), is_first)
            if is_first:
                writer.start(partial(write_best, self.run, weights))

    def _log_step(self, done: PretrainingReport) -> None:
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
        self.log.write(
            {"step": done.step, "num_tokens": self.state.progress["num_tokens"], **finite}
        )
        self._tell_tensorboard({f"train/{name}": each for name, each in finite.items()}, done.step)

    def _tell_tensorboard(self, figures: dict[str, float], step: int) -> None:
        if self.tensorboard is not None and self.processes.is_first:
            for name, value in figures.items():
                self.tensorboard(name, value, step)

    def _note_bad_step(self, done: PretrainingReport, before: Any, taken: StreamStep) -> None:
        """Write down where the batch was, and stop where too many were bad."""
        where = {
            **asdict(done),
            "loss": str(done.loss),
            "losses": {name: str(each) for name, each in done.losses.items()},
            "gradient_norm": str(done.gradient_norm),
            "position": before,
            "num_sequences": taken.num_sequences,
        }
        self.bad_steps.write(where)
        if self._bad_in_a_row >= self.arguments.max_bad_steps:
            raise TrainingError(
                f"the loss or the gradient was not finite in {self._bad_in_a_row} steps in a row, "
                f"up to step {done.step} of {self.num_steps} (loss {done.loss}, gradient norm "
                f"{done.gradient_norm}); the weights are as they were before. Where the batches "
                f"stand in the data is in {self.run / BAD_STEPS_FILE}. Resume from the last "
                f"checkpoint, or begin again with a lower {param('learning_rate')} or more "
                f"{param('warmup_steps')}"
            )

    def _interrupted(self, signal_number: int) -> TrainingInterrupted:
        error = TrainingInterrupted(
            f"stopped after step {self.state.step} of {self.num_steps}; the same command with "
            f"{param('resume')} goes on from there in {self.run}",
            signal_number,
        )
        if signal_number != signal.SIGINT:
            # A scheduler that takes the machine away requeues what ended well.
            error.exit_status = 0
        return error
