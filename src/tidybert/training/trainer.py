"""The loop of fine-tuning: epochs of steps, each an update from the examples of one batch.

A step's examples run in parts of at most ``tokens_per_batch`` tokens whose gradients add up, so
tokens bound memory while the batch size keeps the paper's meaning.  Everything random follows from
(seed, step): a resumed run goes on with the same bits.
"""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.data.batching import Batch, collate, cut_by_tokens, epoch_order
from tidybert.data.features import Features
from tidybert.errors import DivergedError, TrainingError, WeightsError, is_out_of_memory, param
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.kernels.dropout import drawing_from
from tidybert.modeling.kernels.transfer import Fetched, steps_late
from tidybert.training.course import Course
from tidybert.training.frozen_states import freeze, frozen_states
from tidybert.training.gradients import add_gradients_on_threads, pieces_for_threads
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.optimization import (
    begin_step,
    build_optimizer,
    decay_until,
    learning_rate_at,
    update,
)
from tidybert.training.precision import autocast, is_mixed, note_slow_bfloat16
from tidybert.training.random_numbers import DefaultDraws, seeds_allowed
from tidybert.training.run_checkpoints import (
    Checkpoint,
    TrainingState,
    check_fits,
    load_optimizer,
    optimizer_tensors,
)
from tidybert.training.run_record import Notes, RunRecord
from tidybert.training.training_arguments import TrainingArguments
from tidybert.training.used_vocabulary import used_vocabulary

Loss = Callable[[nn.Module, Batch], Tensor]
"""The weighted sum of the batch's losses: each example's loss times its features' weight."""

Evaluate = Callable[[nn.Module], dict[str, float]]
"""The metrics on dev of the model, which is in evaluation mode."""

_ADVICE: Final = (
    f"Try a lower {param('learning_rate')} or a longer {param('warmup_proportion')}; a checkpoint "
    "before this step can be resumed only with the same arguments"
)


@dataclass(frozen=True)
class StepReport:
    """The result of one step, for a display of progress."""

    step: int
    num_steps: int
    epoch: float
    loss: float
    learning_rate: float
    gradient_norm: float
    num_examples: int
    num_tokens: int
    seconds: float


@dataclass(frozen=True)
class _Launched:
    """A step whose figures may be on their way: the losses of its parts, then the gradient norm.

    step: its number, from 1.
    """

    step: int
    begin: float
    chosen: npt.NDArray[np.int64]
    learning_rate: float
    figures: Fetched


@dataclass
class TrainingResult:
    """How a run ended: ``metrics`` are those of the best step, whose weights the model holds."""

    num_steps: int
    best_step: int
    metrics: dict[str, float]
    seconds: float
    num_examples: int
    num_tokens: int
    stopped_early: bool = False
    resumed_from: int = 0


@dataclass(frozen=True)
class TrainingCallbacks(Notes):
    """Functions that get lines of text, each step, and each evaluation's step and metrics."""

    step: Callable[[StepReport], None] = lambda _done: None
    metrics: Callable[[int, dict[str, Any]], None] = lambda _step, _metrics: None


class Trainer:
    """Trains ``model`` in place on ``features``.

    Args:
        model: its forward is only called by ``loss`` and ``evaluate``.
        loss: see Loss.
        evaluate: see Evaluate; without it the last weights are the best.
        metric: the key of ``evaluate``'s result that decides, the higher the better.
        run: directory for checkpoints and metrics.jsonl; None keeps everything in memory.
        course: what a resumed run must share with this one.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Sequence[Features],
        loss: Loss,
        arguments: TrainingArguments,
        *,
        evaluate: Evaluate | None = None,
        metric: str = "loss",
        run: Path | None = None,
        course: Course | None = None,
        callbacks: TrainingCallbacks | None = None,
    ) -> None:
        if not features:
            raise TrainingError("there are no examples to train on")
        self.model = model
        self.features = features
        arguments = arguments.for_width(encoder_of(model).config.hidden_size)
        self.loss = loss
        self.arguments = arguments
        self.evaluate = evaluate
        self.metric = metric
        self.callbacks = callbacks or TrainingCallbacks()
        note = self.callbacks.tell
        self.device = next(model.parameters()).device
        self.is_mixed = is_mixed(arguments.precision, self.device)
        note_slow_bfloat16(self.device, self.is_mixed, note)
        self.steps_per_epoch = math.ceil(len(features) / arguments.train_batch_size)
        # In floating point 25 steps times 2.2 are a little more than 55.
        num_steps = math.ceil(round(self.steps_per_epoch * arguments.num_train_epochs, 6))
        if arguments.num_train_epochs:
            num_steps = max(1, num_steps)
        self.num_steps = min(num_steps, arguments.max_steps or num_steps)
        self.frozen = freeze(model, arguments.freeze_layers, arguments.freeze_embeddings)
        self.vocabulary = used_vocabulary(model, features)
        self.frozen_states = frozen_states(model, arguments.freeze_layers, features, note)
        self.optimizer = build_optimizer(
            model,
            learning_rate=arguments.peak_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            epsilon=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
        )
        self.trained = [each for group in self.optimizer.param_groups for each in group["params"]]
        course = course or Course({}, {})
        self.record = RunRecord(
            run,
            self.num_steps,
            course,
            arguments.save_total_limit,
            # Checkpoints must have these entries from the beginning: a resume compares their form.
            progress={"seconds": 0.0},
            note=note,
        )
        self._lengths = np.array([len(one.input_ids) for one in features])
        self._begin = self._seconds_before = self._read_at = 0.0
        self._launched: deque[_Launched] = deque()
        self._steps_late = steps_late(self.device)
        # On a CUDA device, whether a step so far was not finite.
        self._has_diverged: Tensor | None = None
        # Whether the loss draws from PyTorch's own generator; None until it was called once.
        self._draws_from_default: bool | None = None if self.device.type == "cpu" else True
        self._numbers = torch.Generator()
        self._order_of_epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    @property
    def state(self) -> TrainingState:
        """Where the run is."""
        return self.record.state

    def resume(self) -> None:
        """Go on from the last valid checkpoint, and note where that is."""
        self.record.resume(self._load)

    def _load(self, checkpoint: Checkpoint) -> None:
        with self.whole_model():
            check_fits(self.model, checkpoint)
        load_optimizer(self.model, self.optimizer, checkpoint.moments)
        with self.whole_model():
            self.model.load_state_dict(checkpoint.weights)

    def train(self) -> TrainingResult:
        """Run the steps that are left, and leave the best weights in the model.

        Raises DivergedError, before the update, where the loss or the gradient is not finite, or
        after it, where outputs on dev are not.  Raises TrainingInterrupted after a signal and a
        checkpoint, and TrainingError where none can be written or memory is too small.
        """
        self._begin, resumed_from = time.perf_counter(), self.state.step
        self._seconds_before = self.state.progress["seconds"]
        if self.vocabulary is not None:
            self.vocabulary.narrow()
        interrupted, seen = None, [0, 0]
        try:
            on_gpu = seeds_allowed(self.device) if self.device.type == "cuda" else nullcontext()
            with on_gpu:
                self._train_steps(seen)
        except TrainingInterrupted as error:
            if self.record.run is not None or error.exit_status != 128 + signal.SIGINT:
                raise
            interrupted = error
        finally:
            if self.vocabulary is not None:
                factor = decay_until(self.state.step, self.num_steps, self.arguments)
                self.vocabulary.restore(factor)
        best = self.record.best_weights()
        if best is not None:
            self.model.load_state_dict(best)
        self.model.eval()
        self._count_seconds()
        result = TrainingResult(
            num_steps=self.state.step,
            best_step=self.state.best_step or self.state.step,
            metrics=self.state.best_metrics or {},
            seconds=time.perf_counter() - self._begin,
            num_examples=seen[0],
            num_tokens=seen[1],
            stopped_early=self.state.step < self.num_steps,
            resumed_from=resumed_from,
        )
        if interrupted is not None:
            raise interrupted.keeping(result)
        return result

    def _train_steps(self, seen: list[int]) -> None:
        """The steps that are left; adds the examples and tokens that they saw to ``seen``."""
        with self.record.stop_requests() as request, self.record.watchdog() as watchdog:
            while not (self.record.is_over or self._has_patience_ended()):
                try:
                    with watchdog.step(self.state.step + 1, self._place):
                        with self._may_seed():
                            self._launch()
                        done = self._read(self._steps_late)
                except (MemoryError, RuntimeError) as error:
                    if not is_out_of_memory(error):
                        raise
                    raise TrainingError(self._out_of_memory()) from error
                self._report(done, seen)
                is_evaluation_due = self._is_due(self.arguments.eval_steps)
                is_save_due = self._is_due(self.arguments.save_steps)
                signal_number = request.signal_number
                if is_evaluation_due or is_save_due or signal_number or self.record.is_over:
                    self._report(self._read(), seen)
                if is_evaluation_due and self.evaluate is not None:
                    self._evaluate_and_keep_best(self.evaluate)
                if is_save_due or request.signal_number:
                    self._save()
                if request.signal_number and not self.record.is_over:
                    raise self.record.interrupted(request.signal_number)

    def _report(self, done: Sequence[StepReport], seen: list[int]) -> None:
        """Show steps, and add their examples and tokens to ``seen``."""
        for each in done:
            seen[0] += each.num_examples
            seen[1] += each.num_tokens
            self.callbacks.step(each)

    def _may_seed(self) -> AbstractContextManager[None]:
        """Others in the process get PyTorch's own generator back after each step on a CPU."""
        is_untouched = self._draws_from_default is False or self.device.type == "cuda"
        return nullcontext() if is_untouched else seeds_allowed()

    def _launch(self) -> None:
        """One update from the next batch of examples, or none if something is not finite."""
        begin = time.perf_counter()
        step = self.state.step
        learning_rate = learning_rate_at(step, self.num_steps, self.arguments)
        self._numbers = begin_step(
            self.model,
            self.optimizer,
            learning_rate,
            self.arguments.seed,
            step,
            default=self._draws_from_default is not False,
        )
        for module in self.frozen:
            module.eval()
        chosen = self._examples_of(step)
        total_weight = sum(self.features[index].weight for index in chosen)
        losses = [
            self._add_gradient(chosen[part], total_weight)
            for part in cut_by_tokens(self._lengths[chosen], self.arguments.tokens_per_batch)
        ]
        norm = torch.nn.utils.clip_grad_norm_(self.trained, self.arguments.max_grad_norm)
        figures = torch.stack([each.double() for each in (*losses, norm)])
        is_bad = ~figures.isfinite().all()
        # Nothing may change after a bad step, though later ones are launched before it is read.
        if self._has_diverged is not None:
            is_bad |= self._has_diverged
        self._has_diverged = is_bad
        update(self.optimizer, is_bad)
        self.state.step += 1
        self._launched.append(_Launched(step + 1, begin, chosen, learning_rate, Fetched(figures)))

    def _read(self, most: int = 0) -> list[StepReport]:
        """Read the figures of launched steps until at most this many are left."""
        found = []
        while len(self._launched) > most:
            done = self._figures(self._launched.popleft())
            if self.record.is_due(self.arguments.logging_steps, done.step):
                self._log_step(done)
            found.append(done)
        return found

    def _figures(self, launched: _Launched) -> StepReport:
        """Wait for a step's figures.  Raises DivergedError where one is not finite."""
        *parts, norm = launched.figures.values()
        loss = sum(parts)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.state.step = launched.step - 1
            raise DivergedError(
                f"at step {launched.step} of {self.num_steps} the loss is {loss} and the gradient "
                f"norm {norm}; nothing was updated. The batch's examples are {self._place()}. "
                f"{_ADVICE}"
            )
        now = time.perf_counter()
        # A step that was launched while another ran begins when that one ends.
        seconds = now - max(launched.begin, self._read_at)
        self._read_at = now
        return StepReport(
            step=launched.step,
            num_steps=self.num_steps,
            epoch=launched.step / self.steps_per_epoch,
            loss=loss,
            learning_rate=launched.learning_rate,
            gradient_norm=norm,
            num_examples=len(launched.chosen),
            num_tokens=int(self._lengths[launched.chosen].sum()),
            seconds=seconds,
        )

    def _add_gradient(self, chosen: npt.NDArray[np.int64], total_weight: float) -> Tensor:
        """Add the gradient of these examples' share of the step's loss; () that share."""

        def loss(batch: Batch) -> Tensor:
            with autocast(self.device, self.is_mixed):
                return self.loss(self.model, batch) / total_weight

        is_new = self._draws_from_default is None
        if not self._draws_from_default:
            pieces = [chosen[piece] for piece in pieces_for_threads(self._lengths[chosen])]
            if len(pieces) > 1:
                batches = [self._batch(piece) for piece in pieces]
                found = add_gradients_on_threads(
                    loss, batches, self.trained, self._numbers, watch=is_new
                )
                self._draws_from_default = found is None
                if found is not None:
                    return torch.tensor(found, dtype=torch.float64)
                self.callbacks.tell(
                    "the loss draws random numbers from PyTorch's own generator, so threads do not "
                    "share a step; tidybert.modeling.kernels.dropout would allow it"
                )
        batch = self._batch(chosen)
        with drawing_from(self._numbers):
            with DefaultDraws() if is_new else nullcontext() as draws:
                part_loss = loss(batch)
            if draws is not None:
                self._draws_from_default = draws.found
            part_loss.backward()  # type: ignore[no-untyped-call]
        return part_loss.detach()

    def _batch(self, chosen: npt.NDArray[np.int64]) -> Batch:
        batch = collate([self.features[index] for index in chosen]).to(self.device)
        if self.frozen_states is not None:
            batch = self.frozen_states.attach(batch, chosen)
        return batch if self.vocabulary is None else self.vocabulary.renumber(batch)

    def _examples_of(self, step: int) -> npt.NDArray[np.int64]:
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._order_of_epoch:
            self._order = epoch_order(len(self.features), self.arguments.seed, epoch)
            self._order_of_epoch = epoch
        size = self.arguments.train_batch_size
        return self._order[place * size : (place + 1) * size]

    def _place(self) -> str:
        """The examples of the step at hand, in words."""
        numbers = sorted(self._examples_of(self.state.step).tolist())
        return f"numbers {numbers} of the training data (from 0)"

    def _is_due(self, every: int | None) -> bool:
        return self.record.is_due(every or self.steps_per_epoch)

    def _has_patience_ended(self) -> bool:
        patience = self.arguments.early_stopping_patience
        return patience is not None and self.state.evaluations_since_best >= patience

    def _evaluate_and_keep_best(self, evaluate: Evaluate) -> None:
        self.model.eval()
        try:
            with self.whole_model():
                metrics = evaluate(self.model)
        except WeightsError as error:
            raise DivergedError(
                f"after step {self.state.step} of {self.num_steps} the model's outputs on the dev "
                f"part are not finite: its weights have grown too large. {_ADVICE}"
            ) from error
        self.callbacks.plot("eval", self.record.log_evaluation(metrics), self.state.step)
        self.callbacks.metrics(self.state.step, metrics)
        best = self.state.best_metrics
        if best is None or metrics[self.metric] > best[self.metric]:
            with self.whole_model():
                self.record.keep_best(metrics, self.model.state_dict())
        else:
            self.state.evaluations_since_best += 1

    def _count_seconds(self) -> None:
        """Add the time of this process to that of those it resumed from."""
        spent = time.perf_counter() - self._begin
        self.state.progress["seconds"] = self._seconds_before + spent

    def _save(self) -> None:
        self._count_seconds()
        moments = optimizer_tensors(self.model, self.optimizer)
        with self.whole_model():
            self.record.save(self.model.state_dict(), moments)

    def whole_model(self) -> AbstractContextManager[None]:
        """Within the block the model has its whole vocabulary."""
        if self.vocabulary is None:
            return nullcontext()
        return self.vocabulary.whole(decay_until(self.state.step, self.num_steps, self.arguments))

    def _log_step(self, done: StepReport) -> None:
        figures = {
            "epoch": round(done.epoch, 4),
            "loss": done.loss,
            "learning_rate": done.learning_rate,
            "gradient_norm": done.gradient_norm,
            "tokens_per_second": round(done.num_tokens / done.seconds),
        }
        self.record.log.write({"step": done.step, **figures})
        self.callbacks.plot("train", figures, done.step)

    def _out_of_memory(self) -> str:
        """What to try where the examples of the step need more than the device's memory."""
        lengths = self._lengths[self._examples_of(self.state.step)]
        parts = cut_by_tokens(lengths, self.arguments.tokens_per_batch)
        tokens = max(int(lengths[part].sum()) for part in parts)
        smaller = max(tokens // 2, int(lengths.max()))
        if smaller < tokens:
            advice = f"{param('tokens_per_batch', smaller)}: only rounding and dropout change"
        else:
            length, freeze = param("max_seq_length"), param("freeze_layers")
            advice = f"a smaller {length}, with {freeze}, or with a smaller model"
        return (
            f"at step {self.state.step + 1} of {self.num_steps} the device's memory is too small "
            f"for {tokens:,} tokens at once; begin again with {advice}"
        )
