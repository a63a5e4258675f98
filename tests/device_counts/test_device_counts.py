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

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the stub")


@pytest.fixture(scope="module")
def counts() -> dict[str, Any]:
    """A summary by what was counted; see count_on_stub.py."""
    script = Path(__file__).with_name("count_on_stub.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("dropout", "operations", "gigabytes"), [("0.0", 800, 42.0), ("0.1", 900, 45.0)]
)
def test_a_micro_batch_of_pretraining_waits_for_nothing(
    dropout: str, operations: int, gigabytes: float, counts: dict[str, Any]
) -> None:
    found = counts[f"pretrain {dropout}"]

    assert found["tokens"] == pytest.approx(32_700, abs=100)
    assert found["operations"] <= operations
    assert found["blocking_copies"] == 0
    assert found["waits"] == {}
    assert found["gb_outside_products"] <= gigabytes
    # One launch a layer, whatever the lengths.
    assert found["attention"] == {
        "_flash_attention_forward": 12,
        "_flash_attention_backward": 12,
    }
