"""What a step on CUDA launches, copies and waits for, counted on a stub of a device.

Without a compiler these tests skip.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the stub"),
    pytest.mark.skipif(
        torch.version.cuda is not None, reason="the stub needs a PyTorch without CUDA"
    ),
]


@pytest.fixture(scope="module")
def counts() -> dict[str, Any]:
    """A summary by what was counted; see count_on_stub.py."""
    script = Path(__file__).with_name("count_on_stub.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_waits_are_found(counts: dict[str, Any]) -> None:
    found = counts["what waits"]

    assert found["blocking_copies"] == 1
    assert sum(found["waits"].values()) == 1


@pytest.mark.parametrize(
    ("name", "operations", "gigabytes"),
    [
        ("pretrain 0.0 half", 280, 14),
        ("pretrain 0.1 half", 300, 15),
        ("pretrain 0.1 float32", 300, 21.5),
    ],
)
def test_a_micro_batch_of_pretraining_waits_for_nothing(
    name: str, operations: int, gigabytes: float, counts: dict[str, Any]
) -> None:
    """Three layers of base, 32,700 tokens, dropout 0 or 0.1, a residual stream in half or not.

    Forward and backward; GB of 10^9 bytes outside products.
    """
    holds(counts[name], operations, gigabytes, layers=3)


@pytest.mark.parametrize(
    "task", ["classify", "classify --multi-label", "regress", "choose", "answer", "tag"]
)
def test_a_part_of_a_step_of_fine_tuning_waits_for_nothing(
    task: str, counts: dict[str, Any]
) -> None:
    """Three layers of base."""
    holds(counts[f"finetune {task}"], operations=270, gigabytes=20.5, layers=3)


@pytest.mark.parametrize("name", ["classify", "answer", "mean", "cls", "max", "fill-mask"])
def test_predictions_wait_for_nothing(name: str, counts: dict[str, Any]) -> None:
    """Batches through three layers of base: three of a task, one of vectors or [MASK]s."""
    found = counts[f"predict {name}"]

    assert found["blocking_copies"] == 0
    assert found["waits"] == {}
    batches = 3 if name in ("classify", "answer") else 1
    assert found["attention"] == {"_flash_attention_forward": 3 * batches}


@pytest.mark.parametrize(
    ("steps", "operations"),
    [("pretrain steps adamw", 1250), ("pretrain steps muon", 1520), ("finetune steps", 1000)],
)
def test_whole_steps_of_a_training_wait_for_nothing(
    steps: str, operations: int, counts: dict[str, Any]
) -> None:
    """Two layers of base, two steps with their updates, of two micro-batches each."""
    found = counts[steps]

    assert operations * 0.7 < found["operations"] <= operations
    assert found["blocking_copies"] == 0
    assert found["waits"] == {}
    # The thread that makes a batch also pins it.
    maker = "a thread beside it" if "pretrain" in steps else "the program"
    assert set(found["pinned_by"]) == {maker}
    # A step is read when the next one is launched.
    assert found["reported"] == [1, 2, 3]
    assert found["launched"] == [2, 3, 4]


def test_float32_takes_few_groups(counts: dict[str, Any]) -> None:
    """The flash kernel takes half precision alone; 305 sequences of 84 lengths are two groups."""
    found = counts["pretrain float32"]

    assert found["operations"] <= 260
    assert found["blocking_copies"] == 0
    assert found["attention"]["_scaled_dot_product_efficient_attention"] == 2 * 3


def holds(found: dict[str, Any], operations: int, gigabytes: float, layers: int) -> None:
    assert operations * 0.7 < found["operations"] <= operations
    assert found["blocking_copies"] == 0
    assert found["waits"] == {}
    assert gigabytes * 0.7 < found["gb_outside_products"] <= gigabytes
    # One launch a layer, whatever the lengths.
    assert found["attention"] == {
        "_flash_attention_forward": layers,
        "_flash_attention_backward": layers,
    }
