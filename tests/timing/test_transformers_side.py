"""transformers' side of a fine-tuning: the precision that it trains and scores in."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers.models.bert.modeling_bert import BertEmbeddings

from tidybert.timing.transformers_side import run_finetuning
from tidybert.timing.work import FinetuningWork


def test_both_sides_train_in_bfloat16_and_score_in_float32(
    work: FinetuningWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = replace(work, precision="bfloat16", max_steps=2)
    seen: list[tuple[bool, bool]] = []

    def recorded(self: BertEmbeddings, *given: Any, **named: Any) -> Any:
        seen.append((self.training, torch.is_autocast_enabled("cpu")))
        return forward(self, *given, **named)

    forward = BertEmbeddings.forward
    monkeypatch.setattr(BertEmbeddings, "forward", recorded)
    run_finetuning(mixed)

    assert mixed.arguments().precision == "bfloat16"
    assert (True, True) in seen
    assert (False, False) in seen
    assert all(is_mixed == is_training for is_training, is_mixed in seen)
