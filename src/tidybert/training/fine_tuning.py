"""The objective of fine-tuning: a step is an update from the examples of one batch.

A step's examples run in parts of at most ``tokens_per_batch`` tokens whose gradients add up, so
tokens bound memory while the batch size keeps the paper's meaning.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

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
from tidybert.errors import TrainingError, param
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.kernels.dropout import drawing_from
from tidybert.training.changes import changes_of
from tidybert.training.frozen_states import freeze, frozen_states
from tidybert.training.gradients import add_gradients_on_threads
from tidybert.training.objective import LoopSettings, Objective, Work
from tidybert.training.optimization import build_optimizer, decay_over, learning_rate_at
from tidybert.training.precision import autocast, is_mixed, note_slow_bfloat16
from tidybert.training.random_numbers import DefaultDraws
from tidybert.training.runs.run_checkpoints import TrainingState
from tidybert.training.training_arguments import TrainingArguments
from tidybert.training.used_vocabulary import used_vocabulary

Loss = Callable[[nn.Module, Batch], Tensor]
"""The weighted sum of the batch's losses: each example's loss times its features' weight."""

Evaluate = Callable[[nn.Module], dict[str, float]]
"""The metrics on dev of the model, which is in evaluation mode."""

Numbers = npt.NDArray[np.int64]


class FineTuning(Objective):
    """Epochs of shuffled batches of ``features``.

    Args:
        model: its forward is only called by ``loss`` and ``evaluate``.
        loss: see Loss.
        evaluate: see Evaluate; without it the last weights are the best.
        metric: the key of ``evaluate``'s result that decides, the higher the better.
        note: called with lines of text.
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
        note: Callable[[str], None] = lambda _line: None,
    ) -> None:
        if not features:
            raise TrainingError("there are no examples to train on")
        self.features = features
        self.loss = loss
        self.arguments = arguments.for_width(encoder_of(model).config.hidden_size)
        self.metric = metric
        self.note = note
        device = next(model.parameters()).device
        self.is_mixed = is_mixed(arguments.precision, device)
        note_slow_bfloat16(device, self.is_mixed, note)
        self.steps_per_epoch = math.ceil(len(features) / arguments.batch_size)
        self.frozen = freeze(model, arguments.freeze_layers, arguments.freeze_embeddings)
        self.vocabulary = used_vocabulary(model, features)
        self.frozen_states = frozen_states(model, arguments.freeze_layers, features, note)
        optimizer = build_optimizer(
            model,
            learning_rate=self.arguments.peak_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            epsilon=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
        )
        super().__init__(model, optimizer, self._settings())
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

    def _settings(self) -> LoopSettings:
        arguments = self.arguments
        return LoopSettings(
            num_steps=self._num_steps(arguments),
            eval_steps=arguments.eval_steps or self.steps_per_epoch,
            save_steps=arguments.save_steps or self.steps_per_epoch,
            logging_steps=arguments.logging_steps,
            save_total_limit=arguments.save_total_limit,
            seed=arguments.seed,
            max_grad_norm=arguments.max_grad_norm,
            patience=arguments.early_stopping_patience,
        )

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
        """Whether the loss may draw from PyTorch's own generator."""
        return self._draws is not False

    def learning_rate(self, step: int) -> float:
        """A rise over the warm-up, then a fall to 0."""
        return learning_rate_at(step, self.settings.num_steps, self.arguments)

    def work(self, step: int, progress: Mapping[str, Any]) -> Work:
        """The numbers of a batch's examples."""
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
        parts = [self._add_gradient(part, total_weight, numbers) for part in self._parts(work)]
        return torch.stack([each.double() for each in parts])

    def _parts(self, work: Work) -> list[Numbers]:
        """The numbers of examples that run together."""
        chosen = work.batches
        cut = cut_by_tokens(self.lengths[chosen], self.arguments.tokens_per_batch)
        return [chosen[part] for part in cut]

    def _add_gradient(
        self, chosen: Numbers, total_weight: float, numbers: torch.Generator
    ) -> Tensor:
        """Add the gradient of these examples' share of the step's loss; () that share."""

        def loss(batch: Batch) -> Tensor:
            with autocast(self.device, self.is_mixed):
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
                self.note(
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
        """The metrics on dev, where there is one."""
        return None if self._evaluate is None else self._evaluate(self.model)

    def is_better(self, metrics: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
        """Whether the metric that decides is higher."""
        return bool(metrics[self.metric] > best[self.metric])

    def place(self, step: int, progress: Mapping[str, Any]) -> str:
        """The examples of a step, in words."""
        numbers = sorted(self._examples_of(step).tolist())
        return f"numbers {numbers} of the training data (from 0)"

    def too_little_memory(self, step: int, work: Work) -> str:
        """What to try where the examples of the step need more than the device's memory."""
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
        """Within the block the model has its whole vocabulary."""
        if self.vocabulary is None:
            return nullcontext()
        return self.vocabulary.whole(self._decay(step))

    def _decay(self, step: int) -> float:
        """The factor of the rows that no example uses."""
        factor, begin = 1.0, 0
        for end, arguments in (*self._earlier, (step, self.arguments)):
            steps, begin = range(begin, min(end, step)), end
            factor = decay_over(steps, self._num_steps(arguments), arguments, factor)
        return factor
