"""Measuring on held-out documents."""

import math
from typing import Any, Final

import torch
from torch import nn

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.instances import Position, PretrainingInstances
from tidybert.pretraining.objectives import loss_parts
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.stream import InstanceStream
from tidybert.training.precision import autocast, is_mixed

_HELD_OUT_SEED: Final = 0


class HeldOut:
    """Held-out documents, the same instances with the same masks each time."""

    def __init__(
        self, plan: PretrainingPlan, training: InstanceStream, device: torch.device
    ) -> None:
        corpus = TokenCorpus(plan.corpus.directory, "held-out")
        instances = PretrainingInstances(corpus, plan.instances, plan.masking, _HELD_OUT_SEED)
        stream = InstanceStream(instances, plan.arguments.eval_tokens, training.micro_batch_tokens)
        # The graphs that training compiled serve here too.
        stream.shape = training.shape
        self.taken = stream.take(Position())
        self.device = device
        self.is_mixed = is_mixed(plan.arguments.precision, device)

    def measure(self, model: nn.Module) -> dict[str, Any]:
        """loss, and of each part its loss and accuracy; perplexity of the masked words."""
        sums = dict.fromkeys(self.taken.counts, 0.0)
        correct = dict.fromkeys(self.taken.counts, 0.0)
        with (
            # Not inference mode: what a sharded model gathers in it could not serve a backward.
            torch.no_grad(),
            autocast(self.device, self.is_mixed),
        ):
            for batch in self.taken.batches:
                for name, part in loss_parts(model, batch.to(self.device)).items():
                    sums[name] += part.total.item()
                    correct[name] += part.correct.item()
        losses = {name: each / self.taken.counts[name] for name, each in sums.items()}
        return {
            "loss": sum(losses.values()),
            "perplexity": math.exp(min(losses["mlm"], 700.0)),
            **{f"{name}_loss": each for name, each in losses.items()},
            **{
                f"{name}_accuracy": each / self.taken.counts[name] for name, each in correct.items()
            },
        }
