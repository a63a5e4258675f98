"""The objectives of pre-training: masked words and next sentence (paper 3.1; run_pretraining.py).

The loss of a micro-batch comes in parts, the masked words' and the pairs', each a sum with its
count.  So the parts of a step add up however the step was cut.  A language model's only part is
that of all next tokens.
"""

import math
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
from tidybert.pretraining.batches.stream import InstanceStream
from tidybert.pretraining.plan import PretrainingPlan
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

    A language model may have a text whole, without any document held out: ``part`` is then train.
    """

    def __init__(
        self, plan: PretrainingPlan, training: InstanceStream, device: torch.device
    ) -> None:
        corpus = TokenCorpus(plan.corpus.directory, "held-out")
        if plan.is_causal and not corpus.num_documents:
            corpus = plan.corpus
            plan.note("no document is held out: measured on the text that it learns from")
        self.part = corpus.part
        instances = PretrainingInstances(corpus, plan.instances, plan.masking, _HELD_OUT_SEED)
        tokens = plan.arguments.eval_tokens
        if plan.is_causal:
            # Nothing is drawn, so a text has the same loss each time that it is read.
            tokens = min(tokens, corpus.num_tokens + corpus.num_documents)
        stream = InstanceStream(instances, tokens, training.micro_batch_tokens)
        # The graphs that training compiled serve here too.
        stream.shape = training.shape
        self.taken = stream.take(Position())
        self.device = device
        self.is_mixed = is_mixed(plan.arguments.precision, device)

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """The loss, each part's loss and accuracy, and the perplexity of the words."""
        sums = dict.fromkeys(self.taken.counts, 0.0)
        correct = dict.fromkeys(self.taken.counts, 0.0)
        # Not inference mode: what a sharded model gathers in it could not serve a backward.
        with torch.no_grad(), autocast(self.device, self.is_mixed):
            for batch in self.taken.batches:
                for name, part in loss_parts(model, batch.to(self.device)).items():
                    sums[name] += part.total.item()
                    correct[name] += part.correct.item()
        counts = self.taken.counts
        losses = {name: each / counts[name] for name, each in sums.items()}
        return {
            "loss": sum(losses.values()),
            "perplexity": math.exp(min(next(iter(losses.values())), 700.0)),
            **{f"{name}_loss": each for name, each in losses.items()},
            **{f"{name}_accuracy": each / counts[name] for name, each in correct.items()},
        }
