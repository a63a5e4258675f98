"""The objective of fine-tuning: a step is an update from the examples of one batch.

A step's examples run in parts of at most ``tokens_per_batch`` tokens whose gradients add up, so
tokens bound memory while the batch size keeps the paper's meaning.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.data.batching import (
    Batch,
    collate,
    cut_by_tokens,
    epoch_order,
    pieces_for_threads,
)
from tidybert.data.features import Features
from tidybert.errors import TrainingError, UsageError, param
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import LowerStates
from tidybert.modeling.kernels.dropout import drawing_from
from tidybert.modeling.kernels.linear import RoundedWeights
from tidybert.options import changes_of
from tidybert.system.reporter import SILENT, Reporter
from tidybert.training.determinism import DefaultDraws
from tidybert.training.objective import LoopSettings, Objective, Work
from tidybert.training.optimization import (
    add_gradients_on_threads,
    build_optimizer,
    learning_rate_at,
)
from tidybert.training.precision import autocast, is_mixed, note_slow_bfloat16
from tidybert.training.runs.run_checkpoints import TrainingState
from tidybert.training.training_arguments import TrainingArguments

# The states of frozen layers, computed once and used in every epoch.
#
# Frozen layers run without dropout, so they give the same states each time.  A file mapped into
# memory keeps them in float32, one row a token.

LARGEST_FILE: Final = 16 * 2**30
"""Bytes; more states than that are computed again in each step."""
_TOKENS_PER_BLOCK: Final = 4096


def freeze(model: nn.Module, num_layers: int, embeddings: bool) -> list[nn.Module]:
    """Turn off the gradients of the lowest layers and the embeddings; returns the frozen parts."""
    if not num_layers and not embeddings:
        return []
    encoder = encoder_of(model)
    if num_layers > len(encoder.layers):
        raise UsageError(
            f"{param('freeze_layers')} is {num_layers}, but the model has {len(encoder.layers)} "
            "layers"
        )
    frozen = [encoder.embeddings, *encoder.layers[:num_layers]]
    for module in frozen:
        module.requires_grad_(False)
    return frozen


def frozen_states(
    model: nn.Module, num_layers: int, features: Sequence[Features], reporter: Reporter
) -> "FrozenStates | None":
    """The states after the frozen layers; None without any, and where they cannot be kept."""
    encoder = encoder_of(model)
    tokens = sum(len(one.input_ids) for one in features)
    if not num_layers or tokens * encoder.config.hidden_size * 4 > LARGEST_FILE:
        return None
    try:
        return FrozenStates(encoder, num_layers, features)
    except OSError as error:
        reporter.tell(
            "each step computes the frozen layers' states again, which is slower: the directory "
            f"of temporary files cannot keep them ({error.strerror}); TMPDIR can name another"
        )
        return None


class FrozenStates:
    """The states after the lowest ``num_layers`` layers, by feature.

    They are computed in fixed blocks of features, when a batch first needs one of a block.  So they
    have the same bits in any order.  Raises OSError where the directory of temporary files has no
    room for them.
    """

    def __init__(self, encoder: BertModel, num_layers: int, features: Sequence[Features]) -> None:
        self.encoder = encoder
        self.num_layers = num_layers
        self.features = features
        lengths = np.array([len(one.input_ids) for one in features])
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths
        self._blocks = cut_by_tokens(lengths, _TOKENS_PER_BLOCK)
        self._block_of = np.empty(len(features), dtype=np.int64)
        for number, block in enumerate(self._blocks):
            self._block_of[block] = number
        self._is_done = np.zeros(len(self._blocks), dtype=np.bool_)
        shape = (int(self._ends[-1]), encoder.config.hidden_size)
        # The file is unlinked at once, so nothing is left however the process ends; the mapping
        # holds it.
        with tempfile.TemporaryFile() as file:
            # On a full disk, writing into a mapped file would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, shape[0] * shape[1] * 4)
            self._states: npt.NDArray[np.float32] = np.memmap(
                file, dtype=np.float32, mode="w+", shape=shape
            )

    def attach(self, batch: Batch, numbers: npt.NDArray[Any]) -> Batch:
        """The batch with the states of its features, which have these numbers."""
        for block in np.unique(self._block_of[numbers]):
            if not self._is_done[block]:
                self._compute(int(block))
        states = np.concatenate(
            [self._states[self._starts[number] : self._ends[number]] for number in numbers]
        )
        hidden = torch.from_numpy(states).to(batch.rows.input_ids.device)
        return replace(batch, lower_states=LowerStates(hidden, self.num_layers))

    def _compute(self, block: int) -> None:
        chosen = self._blocks[block]
        device = next(self.encoder.parameters()).device
        batch = collate([self.features[index] for index in chosen]).to(device)
        with torch.no_grad():
            states = self.encoder.lowest_states(batch.rows, self.num_layers).float().cpu().numpy()
        start = 0
        for index in chosen:
            size = int(self._ends[index] - self._starts[index])
            self._states[self._starts[index] : self._ends[index]] = states[start : start + size]
            start += size
        self._is_done[block] = True


# Trains only the rows of the word embeddings that the training data uses.
#
# A row that no example uses gets no gradient, so AdamW keeps its moments at 0 and only decays it:
# after steps 0 to s - 1 it is its first value times the product of 1 - rate * decay.  These rows
# are half of a small model's parameters.  Without them the gradient, its norm, the moments and the
# update take less time and memory, and no result changes.  V vocabulary, U rows in use, H width.


class UsedVocabulary:
    """Swaps the embedding's (V, H) weight of step 0 for the (U, H) rows in use during steps."""

    def __init__(self, embedding: nn.Embedding, features: Sequence[Features]) -> None:
        self.embedding = embedding
        self.first_weight = embedding.weight.detach()
        used = np.unique(np.concatenate([one.input_ids for one in features]))
        self.used = torch.from_numpy(used.astype(np.int64))
        self.number_of = torch.zeros(embedding.num_embeddings, dtype=torch.int64)
        self.number_of[self.used] = torch.arange(len(used))
        self.used = self.used.to(embedding.weight.device)
        self.number_of = self.number_of.to(embedding.weight.device)
        self.weight = nn.Parameter(self.first_weight[self.used])
        self.narrow()

    def narrow(self) -> None:
        self.embedding.weight = self.weight

    def renumber(self, batch: Batch) -> Batch:
        """The batch with its input_ids as numbers of rows in use."""
        rows = replace(batch.rows, input_ids=self.number_of[batch.rows.input_ids])
        return replace(batch, rows=rows)

    @contextmanager
    def whole(self, unused_factor: float) -> Iterator[None]:
        """Within the block it has its (V, H) weight, unused rows times the factor; a load stays."""
        self.restore(unused_factor)
        try:
            yield
        finally:
            with torch.no_grad():
                self.weight.copy_(self.embedding.weight[self.used])
            self.narrow()

    def restore(self, unused_factor: float) -> None:
        """Give the embedding its (V, H) weight, until ``narrow``."""
        whole = self.first_weight * unused_factor
        whole[self.used] = self.weight.detach()
        self.embedding.weight = nn.Parameter(whole)


Loss = Callable[[nn.Module, Batch], Tensor]
"""The weighted sum of the batch's losses: each example's loss times its features' weight."""

Evaluate = Callable[[nn.Module], dict[str, float]]
"""The metrics on dev of the model, which is in evaluation mode."""

Numbers = npt.NDArray[np.int64]

CALIBRATED: Final = "calibrated_log_loss"
"""The metric by which a later step replaces step 0, where a task has a log-loss."""


class FineTuning(Objective):
    """Epochs of shuffled batches of ``features``.

    Without ``evaluate`` the last weights are the best; ``metric`` is its key that decides, the
    higher the better.
    """

    advice = (
        f"Try a lower {param('learning_rate')} or a longer {param('warmup_proportion')}; a "
        "checkpoint before this step can be resumed only with the same arguments"
    )

    def __init__(
        self,
        model: nn.Module,
        features: Sequence[Features],
        loss: Loss,
        arguments: TrainingArguments,
        *,
        evaluate: Evaluate | None = None,
        metric: str = "loss",
        reporter: Reporter = SILENT,
    ) -> None:
        if not features:
            raise TrainingError("there are no examples to train on")
        self.features = features
        self.loss = loss
        self.arguments = arguments.for_width(encoder_of(model).config.hidden_size)
        self.metric = metric
        self.reporter = reporter
        device = next(model.parameters()).device
        self.is_mixed = is_mixed(arguments.precision, device, encoder_of(model).config.hidden_size)
        note_slow_bfloat16(device, self.is_mixed, reporter)
        self.steps_per_epoch = math.ceil(len(features) / arguments.batch_size)
        self.frozen = freeze(model, arguments.freeze_layers, arguments.freeze_embeddings)
        words = encoder_of(model).word_embeddings
        self.vocabulary = UsedVocabulary(words, features) if words.weight.requires_grad else None
        self.frozen_states = frozen_states(model, arguments.freeze_layers, features, reporter)
        optimizer = build_optimizer(
            model,
            learning_rate=self.arguments.peak_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            epsilon=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
        )
        super().__init__(
            model,
            optimizer,
            LoopSettings.of(
                arguments,
                num_steps=self._num_steps(arguments),
                eval_steps=arguments.eval_steps or self.steps_per_epoch,
                save_steps=arguments.save_steps or self.steps_per_epoch,
                patience=arguments.early_stopping_patience,
            ),
        )
        self._evaluate = evaluate
        self.lengths = np.array([len(one.input_ids) for one in features])
        # Whether the loss draws from PyTorch's own generator; None until it was called once.
        self._draws: bool | None = None if device.type == "cpu" else True
        self._order_of_epoch = -1
        # The arguments of the steps before one, where they were others.
        self._earlier: list[tuple[int, TrainingArguments]] = []
        self._order = np.empty(0, dtype=np.int64)

    def _num_steps(self, arguments: TrainingArguments) -> int:
        # In floating point 25 steps times 2.2 are a little more than 55.
        num_steps = math.ceil(round(self.steps_per_epoch * arguments.epochs, 6))
        if arguments.epochs:
            num_steps = max(1, num_steps)
        return min(num_steps, arguments.max_steps or num_steps)

    def changed_before(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """The decay of rows that no example uses follows from the arguments of all steps so far."""
        arguments, names, earlier = self.arguments, changes_of(TrainingArguments), []
        for change in reversed(changes):
            before = {name: each[0] for name, each in change.items() if name in names}
            arguments = replace(arguments, **before)
            earlier.append((change["step"], arguments))
        self._earlier = earlier[::-1]

    @property
    def draws_from_default(self) -> bool:
        return self._draws is not False

    def learning_rate(self, step: int) -> float:
        return learning_rate_at(step, self.settings.num_steps, self.arguments)

    def work(self, step: int, progress: Mapping[str, Any]) -> Work:
        chosen = self._examples_of(step)
        num_tokens = int(self.lengths[chosen].sum())
        return Work(chosen, len(chosen), num_tokens, epoch=(step + 1) / self.steps_per_epoch)

    def epoch_order(self, epoch: int) -> Numbers:
        """All examples in the order of an epoch, which follows from the seed."""
        return epoch_order(len(self.features), self.arguments.seed, epoch)

    def _examples_of(self, step: int) -> Numbers:
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._order_of_epoch:
            self._order = self.epoch_order(epoch)
            self._order_of_epoch = epoch
        size = self.arguments.batch_size
        return self._order[place * size : (place + 1) * size]

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        """Add the gradient of the mean loss over the features' weights; its parts, float64."""
        for module in self.frozen:
            module.eval()
        total_weight = sum(self.features[index].weight for index in work.batches)
        weights = RoundedWeights()
        parts = [
            self._add_gradient(part, total_weight, numbers, weights) for part in self._parts(work)
        ]
        return torch.stack([each.double() for each in parts])

    def _parts(self, work: Work) -> list[Numbers]:
        """The numbers of examples that run together."""
        chosen = work.batches
        cut = cut_by_tokens(self.lengths[chosen], self.arguments.tokens_per_batch)
        return [chosen[part] for part in cut]

    def _add_gradient(
        self,
        chosen: Numbers,
        total_weight: float,
        numbers: torch.Generator,
        weights: RoundedWeights,
    ) -> Tensor:
        """Add the gradient of these examples' share of the step's loss; () that share."""

        def loss(batch: Batch) -> Tensor:
            with autocast(self.device, self.is_mixed, weights):
                return self.loss(self.model, batch) / total_weight

        is_new = self._draws is None
        if not self._draws:
            pieces = [chosen[piece] for piece in pieces_for_threads(self.lengths[chosen])]
            if len(pieces) > 1:
                batches = [self.batch_of(piece) for piece in pieces]
                found = add_gradients_on_threads(loss, batches, self.trained, numbers, watch=is_new)
                self._draws = found is None
                if found is not None:
                    return torch.tensor(found, dtype=torch.float64)
                self.reporter.tell(
                    "the loss draws random numbers from PyTorch's own generator, so threads do not "
                    "share a step; tidybert.modeling.kernels.dropout would allow it"
                )
        batch = self.batch_of(chosen)
        with drawing_from(numbers):
            with DefaultDraws() if is_new else nullcontext() as draws:
                part_loss = loss(batch)
            if draws is not None:
                self._draws = draws.found
            part_loss.backward()  # type: ignore[no-untyped-call]
        return part_loss.detach()

    def batch_of(self, chosen: Numbers) -> Batch:
        """The examples of these numbers, as the model reads them."""
        batch = collate([self.features[index] for index in chosen]).to(self.device)
        if self.frozen_states is not None:
            batch = self.frozen_states.attach(batch, chosen)
        return batch if self.vocabulary is None else self.vocabulary.renumber(batch)

    def evaluate(self) -> dict[str, Any] | None:
        return None if self._evaluate is None else self._evaluate(self.model)

    def is_better(self, metrics: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
        return bool(metrics[self.metric] > best[self.metric])

    def is_surer(self, metrics: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
        """A few texts decide the metric, so step 0 must also have the lower log-loss."""
        ours, theirs = metrics.get(CALIBRATED), start.get(CALIBRATED)
        return ours is not None and theirs is not None and bool(ours < theirs)

    def place(self, step: int, progress: Mapping[str, Any]) -> str:
        numbers = sorted(self._examples_of(step).tolist())
        return f"numbers {numbers} of the training data (from 0)"

    def too_little_memory(self, step: int, work: Work) -> str:
        lengths = self.lengths[work.batches]
        tokens = max(int(self.lengths[part].sum()) for part in self._parts(work))
        smaller = max(tokens // 2, int(lengths.max()))
        if smaller < tokens:
            advice = f"{param('tokens_per_batch', smaller)}: only rounding and dropout change"
        else:
            length, layers = param("max_seq_length"), param("freeze_layers")
            advice = f"a smaller {length}, with {layers}, or with a smaller model"
        return (
            f"at step {step + 1} of {self.settings.num_steps} the device's memory is too small "
            f"for {tokens:,} tokens at once; begin again with {advice}"
        )

    @contextmanager
    def at_work(self, state: TrainingState) -> Iterator[None]:
        """Within the block the word embeddings have only the rows in use."""
        if self.vocabulary is None:
            yield
            return
        self.vocabulary.narrow()
        try:
            yield
        finally:
            self.vocabulary.restore(self._decay(state.step))

    def whole_model(self, step: int) -> AbstractContextManager[None]:
        if self.vocabulary is None:
            return nullcontext()
        return self.vocabulary.whole(self._decay(step))

    def _decay(self, step: int) -> float:
        """The factor of the rows that no example uses."""
        factor, begin = 1.0, 0
        for end, arguments in (*self._earlier, (step, self.arguments)):
            steps, begin = range(begin, min(end, step)), end
            for each in steps:
                rate = learning_rate_at(each, self._num_steps(arguments), arguments)
                factor *= 1.0 - rate * arguments.weight_decay
        return factor
