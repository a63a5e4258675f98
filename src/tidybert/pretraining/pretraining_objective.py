"""The objective of pre-training: a step takes the next instances of a stream that knows its place.

A step's micro-batches add up to the mean over all that the step predicts, on all processes
together.  objectives.py has the losses of masked words with next sentences, and of next tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from tidybert.errors import param
from tidybert.modeling.kernels.masked_lm_loss import SummedLoss
from tidybert.pretraining.batches.masked_rows import MaskedRows
from tidybert.pretraining.batches.stream import StepBatches
from tidybert.pretraining.objectives import loss_parts
from tidybert.pretraining.pretraining_arguments import (
    PretrainingArguments,
    first_long_step,
    is_skipped,
    least_micro_batch,
    rate_at,
)
from tidybert.training.distributed import Processes
from tidybert.training.objective import LoopSettings, Objective, Work
from tidybert.training.optimization import build_optimizer
from tidybert.training.precision import autocast, is_mixed, note_slow_bfloat16
from tidybert.training.reports import Measured
from tidybert.training.runs.run_checkpoints import TrainingState
from tidybert.training.runs.run_identity import RunIdentity

# Of the arguments, for the loop.
_SETTINGS: Final = (
    "eval_steps", "save_steps", "logging_steps", "save_minutes", "save_total_limit", "seed",
    "max_grad_norm", "max_bad_steps", "preempt_seconds",
)  # fmt: skip

Take = Callable[[int, Any], StepBatches]
"""This process's share of a step, by its number and its position in the data."""


class PretrainingObjective(Objective):
    """Steps of ``take``, on all processes.

    Args:
        model: already on its device, the same on every process.
        take: see Take.
        evaluate: the metrics of held-out text; the least "loss" decides which weights are the best.
        first_position: where the data begin.
        in_new_order: where they go on after a position if they come in a new order from there on.
        mfu: the share of all devices' peak that a step reaches, by its number and tokens a second;
            None where the peak is not known.
        note: called with lines of text.
    """

    advice = (
        f"Resume from the last checkpoint, or begin again with a lower {param('learning_rate')} or "
        f"more {param('warmup_steps')}"
    )

    def __init__(
        self,
        model: nn.Module,
        take: Take,
        arguments: PretrainingArguments,
        *,
        evaluate: Callable[[nn.Module], dict[str, Any]],
        first_position: Sequence[int],
        in_new_order: Callable[[Sequence[int]], list[int]] = list,
        processes: Processes | None = None,
        mfu: Callable[[int, float], float] | None = None,
        note: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.take = take
        self.arguments = arguments
        self.mfu = mfu
        processes = processes or Processes()
        device = next(model.parameters()).device
        self.is_mixed = is_mixed(arguments.precision, device)
        note_slow_bfloat16(device, self.is_mixed, note)
        # Before the optimizer, which must hold the shards.
        self.shared = processes.shared(model, arguments.sharding, self.is_mixed)
        optimizer = build_optimizer(
            model,
            learning_rate=arguments.setting("learning_rate"),
            betas=(arguments.adam_beta1, arguments.setting("adam_beta2")),
            epsilon=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
            with_muon=arguments.optimizer == "muon",
            mixed=self.is_mixed,
            processes=processes,
        )
        super().__init__(
            model,
            optimizer,
            LoopSettings(
                num_steps=arguments.setting("max_steps"),
                command=arguments.COMMAND,
                writes_beside=True,
                times_steps=True,
                **{name: getattr(arguments, name) for name in _SETTINGS},
            ),
            trained=[each for each in model.parameters() if each.requires_grad],
            processes=processes,
            progress={"position": list(first_position), "num_tokens": 0},
        )
        self._evaluate = evaluate
        self._in_new_order = in_new_order
        self._ahead: ThreadPoolExecutor | None = None
        self._following: Future[StepBatches] | None = None

    def identity(self, of_plan: RunIdentity) -> RunIdentity:
        """What a resumed run must share with this one; a subclass adds to the plan's."""
        return of_plan

    def learning_rate(self, step: int) -> float:
        """The schedule's."""
        return rate_at(step, self.arguments)

    @contextmanager
    def at_work(self, state: TrainingState) -> Iterator[None]:
        """Within the block a thread makes the next step's batches while a GPU computes.

        A GPU would wait for them; a CPU has no core to spare for them.
        """
        if self.device.type != "cuda":
            yield
            return
        # A new thread would pin memory for the first device, whichever this process has.
        set_device = torch.cuda.set_device
        try:
            with ThreadPoolExecutor(1, initializer=set_device, initargs=(self.device,)) as pool:
                self._ahead = pool
                yield
        finally:
            self._ahead = self._following = None

    def work(self, step: int, progress: Mapping[str, Any]) -> Work:
        """This process's share of a step, with the counts of all processes."""
        position = progress["position"]
        if self._ahead is None:
            taken = self.take(step, position)
        else:
            taken = (self._following or self._ahead.submit(self._pinned, step, position)).result()
            self._following = None
            if step + 1 < self.settings.num_steps:
                self._following = self._ahead.submit(self._pinned, step + 1, taken.position)
        if is_skipped(step, self.arguments):
            return Work(None, 0, 0, {"position": taken.position})
        # The parts of a step on all processes add up to the mean over all predictions.
        taken = replace(taken, counts=self.processes.totals(taken.counts))
        so_far = progress["num_tokens"] + taken.num_tokens
        after = {"position": taken.position, "num_tokens": so_far}
        return Work(taken, taken.num_sequences, taken.num_tokens, after)

    def _pinned(self, step: int, position: Any) -> StepBatches:
        """A step's batches in pinned memory: the main thread then only launches their copies."""
        taken = self.take(step, position)
        return replace(taken, batches=[batch.pinned() for batch in taken.batches])

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        """Add the gradient of the mean over all that is predicted.

        Returns (2 P,): of each loss the sum and the correct predictions.
        """
        taken: StepBatches = work.batches
        sums = {name: torch.zeros(2, device=self.device) for name in taken.counts}
        for number, batch in enumerate(taken.batches, start=1):
            is_last = number == len(taken.batches)
            with nullcontext() if is_last else self.processes.apart(self.shared):
                parts = self._forward_backward(batch, taken.counts)
            for name, each in parts.items():
                sums[name] += torch.stack([each.total.detach(), each.correct])
        return self.processes.sum(torch.stack([*sums.values()])).flatten()

    def _forward_backward(self, batch: MaskedRows, counts: dict[str, int]) -> dict[str, SummedLoss]:
        """Add the gradient of one batch."""
        with autocast(self.device, self.is_mixed):
            parts = self.losses(batch.to(self.device))
        # DDP and FSDP divide the sum of the gradients by the number of processes.
        scaled = [each.total * (self.processes.size / counts[name]) for name, each in parts.items()]
        torch.stack(scaled).sum().backward()  # type: ignore[no-untyped-call]
        return parts

    def losses(self, batch: MaskedRows) -> dict[str, SummedLoss]:
        """The losses of a batch by their names, each summed over its predictions."""
        return loss_parts(self.shared, batch)

    def measured(self, step: int, work: Work, figures: Sequence[float], seconds: float) -> Measured:
        """Means over the step's predictions, the share of the peak, and that of padding."""
        taken: StepBatches = work.batches
        sums = dict(zip(taken.counts, zip(figures[::2], figures[1::2], strict=True), strict=True))
        means = {
            name: (total / taken.counts[name], correct / taken.counts[name])
            for name, (total, correct) in sums.items()
        }
        return Measured(
            sum(loss for loss, _ in means.values()),
            losses={name: loss for name, (loss, _) in means.items()},
            accuracies={name: accuracy for name, (_, accuracy) in means.items()},
            figures={
                "mfu": self.mfu(step, taken.num_tokens / seconds) if self.mfu else None,
                "padding_share": (
                    1 - taken.num_tokens / taken.num_rows if self.arguments.compile else None
                ),
            },
        )

    def evaluate(self) -> dict[str, Any]:
        """The metrics of held-out text."""
        return self._evaluate(self.model)

    def is_other(self, step: int) -> bool:
        """Whether longer sequences begin with a step."""
        return step == first_long_step(self.arguments)

    def in_new_order(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        """The beginning of an order of the documents that the run has not had."""
        return {"position": self._in_new_order(progress["position"])}

    def place(self, step: int, progress: Mapping[str, Any]) -> str:
        """Where a step's instances begin, in words."""
        position = progress["position"]
        if len(position) == 4:
            return f"position {position} of the corpus (phase, epoch, group, instance)"
        return f"position {position} (phase; epoch, group, instance and tokens of each corpus)"

    def too_little_memory(self, step: int, work: Work) -> str:
        """What to try where the step's batches need too much memory."""
        batches = work.batches.batches
        tokens = max(batch.rows.num_tokens for batch in batches)
        longest = max(batch.rows.max_seqlen for batch in batches)
        smaller = max(tokens // 2, least_micro_batch(self.arguments, longest))
        flags = [param("micro_batch", smaller)] if smaller < tokens else []
        if not self.arguments.checkpoint_activations:
            flags.append(param("checkpoint_activations"))
        advice = f"{', or '.join(flags)}: only rounding and dropout change"
        return (
            f"the device's memory is too small for {tokens:,} tokens at once; try "
            f"{advice if flags else 'a smaller model'}"
        )
