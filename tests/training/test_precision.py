"""bfloat16 where it is asked for or pays, and nowhere else."""

from contextlib import nullcontext

import pytest
import torch

from tidybert.errors import UsageError, in_python
from tidybert.training.precision import is_mixed, note_slow_bfloat16


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
        with pytest.raises(UsageError, match="precision='bfloat16' needs"):
            is_mixed("bfloat16", device)


@pytest.mark.parametrize(
    ("capabilities", "device", "mixed", "is_noted"),
    [
        ({"avx512_f": True, "avx512_bf16": False}, "cpu", True, True),
        ({"avx512_f": True, "avx512_bf16": True}, "cpu", True, False),
        ({"amx_bf16": True}, "cpu", True, False),
        ({"neon": True, "bf16": True}, "cpu", True, False),
        ({"avx2": True}, "cpu", False, False),
        ({"avx2": True}, "cuda", True, False),
    ],
)
def test_a_processor_without_bfloat16_of_its_own_is_told_of(
    capabilities: dict[str, bool],
    device: str,
    mixed: bool,
    is_noted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    notes: list[str] = []

    note_slow_bfloat16(torch.device(device), mixed, notes.append)

    assert bool(notes) is is_noted
    assert all("precision='bfloat16'" in in_python(each) for each in notes)


def test_pytorch_that_does_not_tell_what_the_processor_has_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)

    note_slow_bfloat16(torch.device("cpu"), True, pytest.fail)
