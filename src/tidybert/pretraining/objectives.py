"""The objectives of pre-training: masked words and next sentence (paper 3.1; run_pretraining.py).

The loss of a micro-batch comes in parts, the masked words' and the pairs', each a sum with its
count.  So the parts of a step add up however the step was cut.  A language model's only part is
that of all next tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.modeling.heads import BertForMaskedLM, BertForPreTraining, CausalLM
from tidybert.modeling.kernels.masked_lm_loss import IGNORED, SummedLoss
from tidybert.pretraining.batches.instances import PretrainingInstances
from tidybert.pretraining.batches.masked_rows import MaskedRows
from tidybert.pretraining.batches.places import Position
from tidybert.pretraining.batches.stream import InstanceStream, StepBatches
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.weighted_data import corpus_names
from tidybert.training.precision import autocast, is_mixed

_HELD_OUT_SEED: Final = 0

PretrainingModel = BertForPreTraining | BertForMaskedLM | CausalLM


_MODELS: Final[dict[str, type[PretrainingModel]]] = {"mlm": BertForMaskedLM, "lm": CausalLM}


def build_pretraining_model(objective: str) -> type[PretrainingModel]:
    """The class that has the heads of an objective."""
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
        self._names = corpus_names(plan.corpus)
        self.device = device
        self.is_mixed = is_mixed(plan.arguments.precision, device)

    def _measured_part(self, plan: PretrainingPlan, corpus: TokenCorpus) -> TokenCorpus:
        held_out = TokenCorpus(corpus.directory, "held-out")
        if not plan.is_causal or held_out.num_documents:
            return held_out
        plan.note("no document is held out: measured on the text that it learns from")
        self.part = "train"
        return corpus

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """The loss, each part's loss and accuracy, and the perplexity of the words.

        Of several corpora each one's losses and accuracies too, as ``mlm_loss/NAME``.
        """
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
        """Each part's loss and accuracy on one corpus."""
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
