"""bfloat16 where it is asked for or pays, and nowhere else."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from tidybert.errors import UsageError, in_python
from tidybert.system.reporter import Reporter
from tidybert.training import precision
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
    ("slower", "device", "mixed", "is_noted"),
    [
        (1.63, "cpu", True, True),
        (0.6, "cpu", True, False),
        (1.63, "cpu", False, False),
        (1.63, "cuda", True, False),
    ],
)
def test_bfloat16_that_loses_its_trial_is_noted(
    slower: float, device: str, mixed: bool, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_trial", lambda: slower)
    monkeypatch.setattr(precision, "has_matrix_units", lambda: False)
    notes: list[str] = []

    note_slow_bfloat16(torch.device(device), mixed, Reporter(note=notes.append))

    assert [in_python(each) for each in notes] == is_noted * [
        "precision='bfloat16': products take 1.6 times as long as in float32 on this processor"
    ]


def test_matrix_units_need_no_trial_and_are_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(precision, "_trial", lambda: pytest.fail("a trial"))
    caplog.set_level("INFO")

    note_slow_bfloat16(torch.device("cpu"), True, Reporter(note=pytest.fail))

    assert not is_mixed("auto", torch.device("cpu"))
    assert "with which this one is faster (it has AMX)" in caplog.text


def test_the_trial_takes_both_and_draws_no_random_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product in bfloat16 takes 2 seconds, and 1 in float32."""
    seconds = 0.0

    taken: list[bool] = []

    def product(rows: torch.Tensor, weight: torch.Tensor, _bias: None) -> torch.Tensor:
        nonlocal seconds
        is_mixed = torch.is_autocast_enabled("cpu")
        taken.append(is_mixed)
        seconds += 2.0 if is_mixed else 1.0
        return rows[:2, :2] @ weight[:2, :2]

    monkeypatch.setattr(precision, "linear", product)
    monkeypatch.setattr(precision, "time", SimpleNamespace(perf_counter=lambda: seconds))
    before = torch.get_rng_state()

    found = precision._trial.__wrapped__()

    assert found == 2.0
    assert taken == 6 * [False, True]
    assert torch.equal(torch.get_rng_state(), before)
