"""Operations a token, and micro-batches that fit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tidybert.configuration import BertConfig
from tidybert.data.pretraining_options import InstanceOptions, MaskingOptions
from tidybert.pretraining import PretrainingCallbacks
from tidybert.pretraining.throughput import flops_per_token, micro_batch_tokens
from tidybert.tasks import pretraining as task
from tidybert.tasks.pretraining import loss_parts
from tidybert.training.distributed import Processes
from tidybert.training.pretraining_arguments import PretrainingArguments


def test_operations_of_base_are_about_six_a_parameter() -> None:
    config = BertConfig.from_name("base")

    assert flops_per_token(config, 0, 0) == 6 * 12 * 12 * 768**2
    assert flops_per_token(config, 128, 0.15) == pytest.approx(
        6 * (85e6 + 0.15 * 24e6) + 12 * 12 * 768 * 128, rel=0.01
    )


def test_on_a_cpu_auto_is_the_default_and_is_told(
    small: Callable[..., Any], tmp_path: Path
) -> None:
    notes: list[str] = []

    small(
        tmp_path / "run",
        micro_batch_tokens="auto",
        max_steps=1,
        callbacks=PretrainingCallbacks(note=notes.append),
    )

    assert "--micro-batch-tokens auto: 4,096, for the device is a CPU" in notes
    written = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert written["micro_batch_tokens"] == "auto"


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm"])
def test_auto_tries_the_longest_sequences_and_leaves_the_model_as_it_was(
    objective: str, tiny_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = task.build_pretraining_model(objective)
    model = build(tiny_config())
    before = {name: each.clone() for name, each in model.state_dict().items()}
    tried: list[tuple[int, ...]] = []

    def loss_of(given: nn.Module, batch: Any) -> Any:
        tried.append(batch.rows.lengths)
        if batch.rows.num_tokens > 700:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return loss_parts(given, batch)

    monkeypatch.setattr("tidybert.pretraining.throughput.loss_parts", loss_of)
    notes: list[str] = []
    # The device is said to be CUDA; the model, which decides where things run, is on the CPU.
    found = micro_batch_tokens(
        model,
        InstanceOptions(max_seq_length=16, objective=objective),
        MaskingOptions(),
        PretrainingArguments(
            micro_batch_tokens="auto",
            tokens_per_step=2048,
            long_share=0.1,
            long_seq_length=32,
            precision="float32",
        ),
        Processes(),
        torch.device("cuda"),
        notes.append,
    )

    # 2,080 and 1,040 do not fit with a quarter more, 520 do.
    assert found == 520
    assert notes == ["--micro-batch-tokens auto: 520 at once fit, with a margin"]
    assert [sum(each) for each in tried] == [2592, 1280, 640]
    assert {length for each in tried for length in each} == {32}
    assert all(each.grad is None for each in model.parameters())
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name])
