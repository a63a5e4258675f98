"""Pre-training: masked language model and next sentence (paper 3.1; run_pretraining.py).

A step's instances become micro-batches of rows, and the loss of each is told in parts: the masked
words' and the pairs', each as a sum with its count, so that the parts of a step add up however it
was cut.  T tokens, B sequences, M masked positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.configuration import BertConfig
from tidybert.data.batching import cut_by_tokens
from tidybert.data.instances import Places, Position, PretrainingBatch, PretrainingInstances
from tidybert.modeling.heads import BertForMaskedLM, BertForPreTraining
from tidybert.modeling.rows import Rows

PretrainingModel = BertForPreTraining | BertForMaskedLM


@dataclass(frozen=True)
class MaskedRows:
    """A micro-batch.

    rows: T tokens of B sequences.  masked_lm_positions (M,) int64: the rows to predict,
    masked_lm_labels (M,) int64: what stood there.  next_sentence_label (B,) int64, or None for mlm.
    """

    rows: Rows
    masked_lm_positions: Tensor
    masked_lm_labels: Tensor
    next_sentence_label: Tensor | None

    def to(self, device: torch.device | str) -> "MaskedRows":
        """The same on another device."""
        label = self.next_sentence_label
        return MaskedRows(
            self.rows.to(device),
            self.masked_lm_positions.to(device, non_blocking=True),
            self.masked_lm_labels.to(device, non_blocking=True),
            None if label is None else label.to(device, non_blocking=True),
        )


@dataclass(frozen=True)
class LossPart:
    """One objective's loss: its sum over ``count`` predictions, and how many were right."""

    total: Tensor
    count: int
    correct: Tensor


@dataclass(frozen=True)
class StepBatches:
    """One process's share of a step.

    ``counts`` are the predictions of each objective over all processes, which the sums are divided
    by; ``position`` is where the next step goes on, as JSON can hold it.
    """

    batches: list[MaskedRows]
    counts: dict[str, int]
    num_tokens: int
    num_sequences: int
    position: Any


class InstanceStream:
    """Steps of so many tokens from a corpus's instances, each process its share.

    Args:
        tokens_per_step: of all processes together; a step has as many sequences as fit, one at
            least.
        micro_batch_tokens: most tokens of one of the batches that a share is cut into.
        rank, num_processes: whose share; the steps are the same for any number of processes.
    """

    def __init__(
        self,
        instances: PretrainingInstances,
        tokens_per_step: int,
        micro_batch_tokens: int,
        rank: int = 0,
        num_processes: int = 1,
    ) -> None:
        self.instances = instances
        self.tokens_per_step = tokens_per_step
        self.micro_batch_tokens = micro_batch_tokens
        self.rank = rank
        self.num_processes = num_processes

    def take(self, position: Position, tokens: int | None = None) -> StepBatches:
        """The step that begins at a position; ``tokens`` stands for ``tokens_per_step``."""
        places, after = self._places(position, tokens or self.tokens_per_step)
        lengths = self.instances.lengths(places)
        built = self.instances.build(places)
        # Where another process has other sequences, each must still know the count of all.
        counts = {"mlm": len(built.masked_lm_labels)}
        if built.next_sentence_label is not None:
            counts["nsp"] = len(places)
        if self.num_processes > 1:
            mine = places[np.arange(self.rank, len(places), self.num_processes)]
        else:
            mine = places
        batches = [
            masked_rows(self.instances.build(mine[chosen]))
            for chosen in cut_by_tokens(self.instances.lengths(mine), self.micro_batch_tokens)
        ]
        return StepBatches(batches, counts, int(lengths.sum()), len(places), after)

    def _places(self, position: Position, tokens_per_step: int) -> tuple[Places, Position]:
        longest = self.instances.options.max_seq_length
        count = -(-tokens_per_step // longest)
        while True:
            places, _ = self.instances.take(position, count)
            tokens = np.cumsum(self.instances.lengths(places))
            if tokens[-1] > tokens_per_step:
                break
            count *= 2
        fitting = max(1, int(np.searchsorted(tokens, tokens_per_step, "right")))
        # A process without a sequence would have no gradient to share.
        fitting = max(fitting, self.num_processes)
        return self.instances.take(position, fitting)


def masked_rows(batch: PretrainingBatch) -> MaskedRows:
    """Instances as tensors."""
    label = batch.next_sentence_label
    return MaskedRows(
        Rows.from_flat(batch.input_ids, batch.token_type_ids, tuple(batch.lengths.tolist())),
        torch.from_numpy(batch.masked_lm_positions),
        torch.from_numpy(batch.masked_lm_labels.astype(np.int64)),
        None if label is None else torch.from_numpy(label),
    )


def build_pretraining_model(objective: str) -> Callable[[BertConfig], PretrainingModel]:
    """The class that has the heads of an objective."""
    return BertForMaskedLM if objective == "mlm" else BertForPreTraining


def loss_parts(model: nn.Module, batch: MaskedRows) -> dict[str, LossPart]:
    """The masked words' loss, and the pairs' where there are any."""
    found = model(batch.rows, masked_lm_positions=batch.masked_lm_positions)
    if batch.next_sentence_label is None:
        return {"mlm": _part(found, batch.masked_lm_labels)}
    return {
        "mlm": _part(found.prediction_logits, batch.masked_lm_labels),
        "nsp": _part(found.seq_relationship_logits, batch.next_sentence_label),
    }


def _part(logits: Tensor, labels: Tensor) -> LossPart:
    total = functional.cross_entropy(logits.float(), labels, reduction="sum")
    with torch.no_grad():
        correct = (logits.argmax(1) == labels).sum()
    return LossPart(total, len(labels), correct)
