"""Operations a token, and micro-batches that fit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, in_python
from tidybert.pretraining import stream as task
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.objectives import loss_parts
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.pretraining.pretraining_run import PretrainingCallbacks
from tidybert.pretraining.throughput import flops_per_token, micro_batch_tokens, peak_flops
from tidybert.training.distributed import Processes


def test_operations_of_base_are_about_six_a_parameter() -> None:
    config = BertConfig.from_name("base")

    # All rows of the last layer would be read, and no word were masked.
    whole = 12 * 12 * 768**2
    assert flops_per_token(config, 1, 0) == 6 * whole + 12 * 12 * 768
    # Of 85 M weights in the layers, 5.3 M are the last one's after attention.
    read = 0.15 + 1 / 128
    assert flops_per_token(config, 128, 0.15) == pytest.approx(
        6 * (85e6 - 5.3e6 * (1 - read) + 0.15 * 24e6) + 12 * 12 * 768 * 128, rel=0.01
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("Tesla T4", None),
    ],
)
def test_the_peak_is_that_of_the_device_by_its_name(
    name: str, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda each: (asked.append(each), name)[1])

    assert peak_flops(torch.device("cuda", 1)) == expected
    assert asked == [torch.device("cuda", 1)]
    assert peak_flops(torch.device("cpu")) is None


def test_auto_is_refused_where_a_device_holds_a_share_of_the_model(
    tiny_config: Callable[..., Any],
) -> None:
    with pytest.raises(UsageError, match="sharding='full' is for models that do not fit"):
        micro_batch_tokens(
            task.build_pretraining_model("mlm")(tiny_config()),
            InstanceOptions(),
            MaskingOptions(),
            PretrainingArguments(micro_batch="auto", sharding="full"),
            Processes(size=2),
            torch.device("cuda"),
            print,
        )


def test_on_a_cpu_auto_is_the_default_and_is_told(
    small: Callable[..., Any], tmp_path: Path
) -> None:
    notes: list[str] = []

    small(
        tmp_path / "run",
        micro_batch="auto",
        max_steps=1,
        callbacks=PretrainingCallbacks(note=notes.append),
    )

    assert "micro_batch='auto': 4,096, for the device is cpu" in map(in_python, notes)
    written = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert written["micro_batch"] == "auto"


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
            micro_batch="auto",
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
    assert [*map(in_python, notes)] == ["micro_batch='auto': 520 at once fit, with a margin"]
    assert [sum(each) for each in tried] == [2592, 1280, 640]
    assert {length for each in tried for length in each} == {32}
    assert all(each.grad is None for each in model.parameters())
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name])
