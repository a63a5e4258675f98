"""bfloat16 where it is asked for or pays, and nowhere else."""

from contextlib import nullcontext

import pytest
import torch

from tidybert.errors import UsageError
from tidybert.training.precision import is_mixed


@pytest.mark.parametrize("by_itself", [False, True])
def test_bfloat16_that_a_device_only_emulates_is_not_used(
    by_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda _device: nullcontext())
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or by_itself,
    )
    device = torch.device("cuda", 1)

    assert is_mixed("auto", device) is by_itself
    assert not is_mixed("float32", device)
    if not by_itself:
        with pytest.raises(UsageError, match="--precision bfloat16 needs"):
            is_mixed("bfloat16", device)
