"""The objectives of pre-training: masked words and next sentence (paper 3.1; run_pretraining.py).

The loss of a micro-batch comes in parts, the masked words' and the pairs', each a sum with its
count, so that the parts of a step add up however the step was cut.
"""

import torch
from torch import nn
from torch.nn import functional

from tidybert.modeling.heads import BertForMaskedLM, BertForPreTraining
from tidybert.modeling.kernels.masked_lm_loss import IGNORED, SummedLoss
from tidybert.pretraining.masked_rows import MaskedRows

PretrainingModel = BertForPreTraining | BertForMaskedLM


def build_pretraining_model(objective: str) -> type[PretrainingModel]:
    """The class that has the heads of an objective."""
    return BertForMaskedLM if objective == "mlm" else BertForPreTraining


def loss_parts(model: nn.Module, batch: MaskedRows) -> dict[str, SummedLoss]:
    """The masked words' loss, and the pairs' where there are any."""
    found = model(
        batch.rows,
        masked_lm_positions=batch.masked_lm_positions,
        masked_lm_labels=batch.masked_lm_labels,
    )
    labels = batch.next_sentence_label
    if labels is None:
        return {"mlm": found}
    logits = found.seq_relationship_logits
    total = functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    with torch.no_grad():
        correct = (logits.argmax(1) == labels).sum()
    return {"mlm": found.masked_lm_loss, "nsp": SummedLoss(total, correct)}
