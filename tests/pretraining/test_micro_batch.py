"""The search for the largest micro-batch, with a device that stands for one of little memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import TrainingError, UsageError, in_python
from tidybert.modeling.kernels.masked_lm_loss import SummedLoss
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.pretraining.pretraining_objective import (
    build_pretraining_model,
    largest_micro_batch,
    loss_parts,
    micro_batch_tokens,
)
from tidybert.system.reporter import SILENT, Reporter
from tidybert.training.distributed import Processes


class Device:
    """Runs out of memory above ``limit`` tokens, in the forward or, as a flag says, backward."""

    def __init__(self, limit: int, *, in_backward: bool = False) -> None:
        self.limit = limit
        self.in_backward = in_backward
        self.tried: list[int] = []
        self.model = nn.Linear(3, 2)
        self.error: Exception = torch.cuda.OutOfMemoryError("out of memory")

    def make_batch(self, tokens: int) -> Tensor:
        self.tried.append(tokens)
        return torch.ones(tokens, 3)

    def check(self, tokens: int) -> None:
        if tokens > self.limit:
            raise self.error

    def loss(self, model: nn.Module, batch: Tensor) -> dict[str, SummedLoss]:
        if not self.in_backward:
            self.check(len(batch))
        total = model(batch).sum()
        total.register_hook(lambda _gradient: self.check(len(batch)))
        return {"mlm": SummedLoss(total, torch.zeros(()))}

    def search(self, **changes: Any) -> int:
        given = {"start": 1000, "least": 100, "most": 100_000, "processes": Processes(), **changes}
        return largest_micro_batch(self.model, self.loss, self.make_batch, mixed=False, **given)


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize(
    ("limit", "found"),
    # A quarter more than the answer must fit: 1,250 for 1,000.
    [(1250, 1000), (2499, 1000), (2500, 2000), (11_000, 8000), (1249, 500), (160, 125), (130, 100)],
)
def test_the_largest_of_halves_and_doubles_that_fits(
    limit: int, found: int, in_backward: bool
) -> None:
    device = Device(limit, in_backward=in_backward)

    assert device.search() == found

    assert int(1.25 * found) in device.tried
    assert int(1.25 * found) <= limit
    assert all(each.grad is None for each in device.model.parameters())


@pytest.mark.parametrize("status", ["ALLOC_FAILED", "NOT_INITIALIZED"])
def test_cublas_without_memory_is_a_batch_that_does_not_fit(status: str) -> None:
    device = Device(1250)
    device.error = RuntimeError(
        f"CUDA error: CUBLAS_STATUS_{status} when calling `cublasCreate(handle)`"
    )

    assert device.search() == 1000


def test_another_error_is_not_taken_for_too_little_memory() -> None:
    device = Device(1250)
    device.error = RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal"):
        device.search()


def test_no_more_is_tried_than_a_step_has() -> None:
    device = Device(10**9)

    assert device.search(most=3000) == 3000
    assert device.tried == [1250, 2500, 3750]


def test_a_start_above_what_a_step_has_begins_there() -> None:
    device = Device(10**9)

    assert device.search(start=5000, most=300) == 300
    assert device.tried == [375]


def test_too_little_for_anything_is_said() -> None:
    with pytest.raises(TrainingError, match=r"too small for 100 tokens .* checkpoint_activations"):
        Device(124).search()


class OfTwo(Processes):
    """This process beside another one, which found 500."""

    def least(self, value: int) -> int:
        return min(value, 500)


def test_all_processes_take_the_smallest() -> None:
    assert Device(10_000).search(processes=OfTwo(0, 2)) == 500


def test_auto_is_refused_where_a_device_holds_a_share_of_the_model(
    tiny_config: Callable[..., Any], corpus: Path
) -> None:
    with pytest.raises(UsageError, match="sharding='full' is for models that do not fit"):
        micro_batch_tokens(
            build_pretraining_model("mlm")(tiny_config()),
            PretrainingPlan(
                TokenCorpus(corpus),
                PretrainingArguments(micro_batch="auto", sharding="full"),
                InstanceOptions(),
                MaskingOptions(),
                Processes(size=2),
                SILENT,
            ),
            torch.device("cuda"),
        )


def test_on_a_cpu_auto_is_the_default_and_is_told(
    small: Callable[..., Any], tmp_path: Path
) -> None:
    notes: list[str] = []

    small(
        tmp_path / "run",
        micro_batch="auto",
        max_steps=1,
        reporter=Reporter(note=notes.append),
    )

    assert "micro_batch='auto': 4,096, because the device is cpu" in map(in_python, notes)
    written = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert written["micro_batch"] == "auto"


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm"])
def test_auto_tries_the_longest_sequences_and_leaves_the_model_as_it_was(
    objective: str, corpus: Path, tiny_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_pretraining_model(objective)
    model = build(tiny_config())
    before = {name: each.clone() for name, each in model.state_dict().items()}
    tried: list[tuple[int, ...]] = []

    def loss_of(given: nn.Module, batch: Any) -> Any:
        tried.append(batch.rows.lengths)
        if batch.rows.num_tokens > 700:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return loss_parts(given, batch)

    monkeypatch.setattr("tidybert.pretraining.pretraining_objective.loss_parts", loss_of)
    notes: list[str] = []
    # The device is said to be CUDA; the model, which decides where things run, is on the CPU.
    found = micro_batch_tokens(
        model,
        PretrainingPlan(
            TokenCorpus(corpus),
            PretrainingArguments(
                micro_batch="auto",
                tokens_per_step=2048,
                long_share=0.1,
                long_seq_length=32,
                precision="float32",
            ),
            InstanceOptions(max_seq_length=16, objective=objective),
            MaskingOptions(),
            Processes(),
            Reporter(note=notes.append),
        ),
        torch.device("cuda"),
    )

    # 2,080 and 1,040 do not fit with a quarter more, 520 do.
    assert found == 520
    assert [*map(in_python, notes)] == ["micro_batch='auto': 520 at once fit, with a margin"]
    assert [sum(each) for each in tried] == [2592, 1280, 640]
    assert {length for each in tried for length in each} == {32}
    assert all(each.grad is None for each in model.parameters())
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name])
