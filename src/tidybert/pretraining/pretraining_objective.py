"""The objective of pre-training: a step takes the next instances of a stream that knows its place.

A step's micro-batches add up to the mean over all that the step predicts, on all processes
together.  It has the losses of masked words with next sentences, and of next tokens.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import TrainingError, UsageError, is_out_of_memory, param
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.heads import BertForMaskedLM, BertForPreTraining, CausalLM
from tidybert.modeling.kernels.masked_lm_loss import IGNORED, SummedLoss
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.masked_rows import MaskedRows, longest_batch
from tidybert.pretraining.batches.pretraining_batch import Position
from tidybert.pretraining.batches.stream import InstanceStream, StepBatches
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import (
    PretrainingArguments,
    first_long_step,
    is_skipped,
    least_micro_batch,
    rate_at,
)
from tidybert.system.reporter import SILENT, Reporter
from tidybert.training.distributed import Processes
from tidybert.training.objective import LoopSettings, Objective, Work
from tidybert.training.optimization import build_optimizer
from tidybert.training.precision import autocast, is_mixed, note_slow_bfloat16
from tidybert.training.reports import Measured
from tidybert.training.runs.run_checkpoints import RunIdentity, TrainingState

# The objectives of pre-training: masked words and next sentence (paper 3.1; run_pretraining.py).
#
# The loss of a micro-batch comes in parts, the masked words' and the pairs', each a sum with its
# count.  So the parts of a step add up however the step was cut.  A language model's only part is
# that of all next tokens.

_HELD_OUT_SEED: Final = 0

PretrainingModel = BertForPreTraining | BertForMaskedLM | CausalLM


_MODELS: Final[dict[str, type[PretrainingModel]]] = {"mlm": BertForMaskedLM, "lm": CausalLM}


def build_pretraining_model(objective: str) -> type[PretrainingModel]:
    return _MODELS.get(objective, BertForPreTraining)


def loss_parts(model: nn.Module, batch: MaskedRows) -> dict[str, SummedLoss]:
    """The masked words' loss as mlm, or the next tokens' as lm; with pairs, theirs as nsp."""
    found = model(
        batch.rows,
        masked_lm_positions=batch.masked_lm_positions,
        masked_lm_labels=batch.masked_lm_labels,
    )
    labels = batch.next_sentence_label
    if labels is None:
        return {batch.words: found}
    logits = found.seq_relationship_logits
    total = functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    with torch.no_grad():
        correct = (logits.argmax(1) == labels).sum()
    return {"mlm": found.masked_lm_loss, "nsp": SummedLoss(total, correct)}


class HeldOut:
    """Measures on held-out documents, on the same instances and masks each time.

    The documents are cut at the length of each phase.  The plain metrics, which choose the best
    weights, are those at the longest; ``mlm_loss/sequences of 128`` is one at another length.
    Several corpora are measured apart, each on ``eval_tokens``; the metrics of all are means by the
    corpora's shares.  A language model may have a text whole, without any document held out:
    ``part`` is then train.
    """

    def __init__(
        self, plan: PretrainingPlan, phases: Sequence[InstanceStream], device: torch.device
    ) -> None:
        self.part = "held-out"
        # By length, of each corpus.
        self._taken: dict[int, list[StepBatches]] = {}
        corpora = [self._measured_part(plan, each) for each in plan.corpus.corpora]
        for training in phases:
            length = training.instances.options.max_seq_length
            options = replace(plan.instances, max_seq_length=length)
            self._taken[length] = []
            for corpus in corpora:
                instances = PretrainingInstances(corpus, options, plan.masking, _HELD_OUT_SEED)
                tokens = max(plan.arguments.eval_tokens, length if len(phases) > 1 else 0)
                if plan.is_causal:
                    # Nothing is drawn, so a text has the same loss each time that it is read.
                    tokens = min(tokens, corpus.num_tokens + corpus.num_documents)
                stream = InstanceStream(instances, tokens, training.micro_batch_tokens)
                # The graphs that training compiled serve here too.
                stream.shape = training.shape
                self._taken[length].append(stream.take(Position()))
        self._shares = plan.shares
        # Short ones, or the paths where two agree.
        paths = [each.directory for each in plan.corpus.corpora]
        names = [path.resolve().name for path in paths]
        self._names = names if len(set(names)) == len(names) else [str(path) for path in paths]
        self.device = device
        self.is_mixed = is_mixed(plan.arguments.precision, device)

    def _measured_part(self, plan: PretrainingPlan, corpus: TokenCorpus) -> TokenCorpus:
        held_out = TokenCorpus(corpus.directory, "held-out")
        if not plan.is_causal or held_out.num_documents:
            return held_out
        plan.reporter.tell("no document is held out: measured on the text that it learns from")
        self.part = "train"
        return corpus

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """Each part's loss and accuracy, their sum, the perplexity; also of each of the corpora."""
        longest = max(self._taken)
        apart = [self._measured(model, taken) for taken in self._taken[longest]]
        found = self._mean(apart)
        losses = [each for name, each in found.items() if name.endswith("_loss")]
        named = zip(self._names, apart, strict=True) if len(apart) > 1 else ()
        others = [
            (
                f"sequences of {length}",
                self._mean([self._measured(model, each) for each in self._taken[length]]),
            )
            for length in sorted(self._taken.keys() - {longest})
        ]
        return {
            "loss": sum(losses),
            "perplexity": math.exp(min(losses[0], 700.0)),
            **found,
            **{f"{name}/{what}": each[name] for what, each in (*named, *others) for name in each},
        }

    def _mean(self, apart: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The means of the corpora's metrics by their shares."""
        return {
            name: sum(share * each[name] for share, each in zip(self._shares, apart, strict=True))
            for name in apart[0]
        }

    def _measured(self, model: nn.Module, taken: StepBatches) -> dict[str, float]:
        sums = dict.fromkeys(taken.counts, 0.0)
        correct = dict.fromkeys(taken.counts, 0.0)
        # Not inference mode: what a sharded model gathers in it could not serve a backward.
        with torch.no_grad(), autocast(self.device, self.is_mixed):
            for batch in taken.batches:
                for name, part in loss_parts(model, batch.to(self.device)).items():
                    sums[name] += part.total.item()
                    correct[name] += part.correct.item()
        return {
            **{f"{name}_loss": each / taken.counts[name] for name, each in sums.items()},
            **{f"{name}_accuracy": each / taken.counts[name] for name, each in correct.items()},
        }


# The tokens of a micro-batch.
#
# ``auto`` finds the largest by trying: forward and backward of a batch, twice as large while it
# fits, half as large while it does not.  Each process tries alone, before the model is shared, so
# that none waits for one without memory; then all take the smallest answer.

_MICRO_BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 32_768}
# Later batches may need more than the tried one: other shapes, fragmented memory.
_MARGIN: Final = 1.25
# Values that a parameter has besides itself and its gradient: Adam's moments, and with several
# processes the buffer in which gradients travel.
_MOMENTS: Final = 2


def micro_batch_tokens(model: PretrainingModel, plan: PretrainingPlan, device: torch.device) -> int:
    """micro_batch, its default, or as many tokens as fit the memory of every process's device."""
    arguments, processes = plan.arguments, plan.processes
    on_cuda = device.type == "cuda"
    given, default = arguments.micro_batch, _MICRO_BATCH_TOKENS["cuda" if on_cuda else "cpu"]
    if isinstance(given, int):
        return given
    if given is None or not on_cuda:
        if given is not None:
            plan.reporter.tell(
                f"{param('micro_batch', 'auto')}: {default:,}, because the device is {device.type}"
            )
        return default
    if arguments.sharding == "full" and processes.size > 1:
        raise UsageError(
            f"{param('micro_batch', 'auto')} tries the whole model on each device, and "
            f"{param('sharding', 'full')} is for models that do not fit one: give a number of "
            "tokens"
        )
    longest = plan.longest
    num_predictions = plan.num_predictions(longest)
    least = least_micro_batch(arguments, longest)
    found = largest_micro_batch(
        model,
        loss_parts,
        lambda tokens: longest_batch(tokens, longest, num_predictions, plan.instances.pairs),
        start=default,
        least=least,
        # A step gives a process no more than this, plus a last sequence.
        most=max(least, arguments.setting("tokens_per_step") // processes.size + longest),
        mixed=is_mixed(arguments.precision, device),
        processes=processes,
    )
    plan.reporter.tell(f"{param('micro_batch', 'auto')}: {found:,} at once fit, with a margin")
    return found


def largest_micro_batch(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Mapping[str, SummedLoss]],
    make_batch: Callable[[int], Any],
    *,
    start: int,
    least: int,
    most: int,
    mixed: bool,
    processes: Processes,
) -> int:
    """Tokens from ``least`` to ``most`` that fit all processes' devices; ``start`` comes first."""
    device = next(model.parameters()).device
    trained = [each for each in model.parameters() if each.requires_grad]
    kept = _MOMENTS + (processes.size > 1)

    def fits(tokens: int) -> bool:
        held = []
        try:
            held += [torch.empty(kept * each.numel(), device=device) for each in trained]
            with autocast(device, mixed):
                parts = loss(model, make_batch(int(_MARGIN * tokens)).to(device))
            torch.stack([each.total for each in parts.values()]).sum().backward()  # type: ignore[no-untyped-call]
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            model.zero_grad(set_to_none=True)
        return True

    model.train()
    found = processes.least(_largest(fits, start, least, most))
    torch.cuda.empty_cache()
    if not found:
        raise TrainingError(
            f"the device's memory is too small for {least:,} tokens at once, forward and backward; "
            f"try {param('checkpoint_activations')}, or a smaller model"
        )
    return found


def _largest(fits: Callable[[int], bool], start: int, least: int, most: int) -> int:
    """By doubling from ``start`` up to ``most``, or halving down to ``least``; 0 if none fits."""
    tokens = max(least, min(start, most))
    if fits(tokens):
        while tokens < most and fits(min(most, 2 * tokens)):
            tokens = min(most, 2 * tokens)
        return tokens
    while tokens > least:
        tokens = max(least, tokens // 2)
        if fits(tokens):
            return tokens
    return 0


Take = Callable[[int, Any], StepBatches]
"""This process's share of a step, by its number and its position in the data."""


class PretrainingObjective(Objective):
    """Steps of ``take``, on all processes.

    ``evaluate`` gives the metrics of held-out text, of which the least "loss" decides; ``mfu`` the
    share of the peak by a step's number and tokens a second; ``in_new_order`` where data go on
    after a position in another order.
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
        reporter: Reporter = SILENT,
    ) -> None:
        self.take = take
        self.arguments = arguments
        self.mfu = mfu
        processes = processes or Processes()
        device = next(model.parameters()).device
        self.is_mixed = is_mixed(arguments.precision, device, encoder_of(model).config.hidden_size)
        note_slow_bfloat16(device, self.is_mixed, reporter)
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
            LoopSettings.of(
                arguments,
                num_steps=arguments.setting("max_steps"),
                command=arguments.COMMAND,
                writes_beside=True,
                times_steps=True,
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
        return rate_at(step, self.arguments)

    @contextmanager
    def at_work(self, state: TrainingState) -> Iterator[None]:
        """Within the block a thread makes a GPU's next batches; a CPU has no core to spare."""
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
        """Add the gradient of the mean over all that is predicted."""
        taken: StepBatches = work.batches
        sums = {name: torch.zeros(2, device=self.device) for name in taken.counts}
        for number, batch in enumerate(taken.batches, start=1):
            is_last = number == len(taken.batches)
            with nullcontext() if is_last else self.processes.apart(self.shared):
                with autocast(self.device, self.is_mixed):
                    parts = self.losses(batch.to(self.device))
                # DDP and FSDP divide the sum of the gradients by the number of processes.
                size = self.processes.size
                scaled = [each.total * (size / taken.counts[n]) for n, each in parts.items()]
                torch.stack(scaled).sum().backward()  # type: ignore[no-untyped-call]
            for name, each in parts.items():
                sums[name] += torch.stack([each.total.detach(), each.correct])
        return self.processes.sum(torch.stack([*sums.values()])).flatten()

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
        return self._evaluate(self.model)

    def is_other(self, step: int) -> bool:
        return step == first_long_step(self.arguments)

    def in_new_order(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        return {"position": self._in_new_order(progress["position"])}

    def place(self, step: int, progress: Mapping[str, Any]) -> str:
        position = progress["position"]
        if len(position) == 4:
            return f"position {position} of the corpus (phase, epoch, group, instance)"
        return f"position {position} (phase; epoch, group, instance and tokens of each corpus)"

    def too_little_memory(self, step: int, work: Work) -> str:
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
