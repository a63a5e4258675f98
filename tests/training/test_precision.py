"""bfloat16 where it is asked for or pays, and nowhere else."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from tidybert.errors import UsageError, in_python
from tidybert.system.reporter import Reporter
from tidybert.training import precision
from tidybert.training.precision import bfloat16_units, decided, is_mixed, note_slow_bfloat16


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
    monkeypatch.setattr(precision, "bfloat16_units", lambda: None)
    notes: list[str] = []

    note_slow_bfloat16(torch.device(device), mixed, Reporter(note=notes.append))

    assert [in_python(each) for each in notes] == is_noted * [
        "precision='bfloat16': products take 1.6 times as long as in float32 on this processor"
    ]


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("amx", "avx512", "amd", "units", "least"),
    [
        (True, True, False, "AMX", 256),
        (False, True, True, "AVX-512 BF16", 768),
        # Not measured: MKL's float32 is faster there.
        (False, True, False, None, None),
        (False, False, True, None, None),
    ],
)
def test_the_processors_flags_and_the_models_width_decide(
    amx: bool,
    avx512: bool,
    amd: bool,
    units: str | None,
    least: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {"AMX": amx, "AVX-512 BF16": avx512}
    monkeypatch.setattr(precision, "has", there.__getitem__)
    monkeypatch.setattr(precision, "is_amd", lambda: amd)
    monkeypatch.setattr(precision, "_trial", lambda: 1.0)

    note_slow_bfloat16(CPU, True, Reporter(note=pytest.fail))

    assert bfloat16_units() == units
    assert [is_mixed("auto", CPU, width) for width in (64, 256, 384, 768)] == [
        least is not None and width >= least for width in (64, 256, 384, 768)
    ]
    assert is_mixed("bfloat16", CPU)
    assert not is_mixed("float32", CPU, 768)


def test_a_run_says_what_auto_is_and_goes_on_as_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    reporter = Reporter(note=lambda line: notes.append(in_python(line)))
    monkeypatch.setattr(precision, "bfloat16_units", lambda: "AMX")

    assert decided("auto", CPU, 768, reporter) == "bfloat16"
    assert decided("auto", CPU, 768, reporter, "bfloat16") == "bfloat16"
    assert decided("auto", CPU, 768, reporter, "float32") == "float32"
    assert decided("bfloat16", CPU, 64, reporter, "float32") == "bfloat16"

    told = (
        "precision: bfloat16, for which this processor has AMX; precision='float32' is slower and "
        "has more digits"
    )
    assert notes == [
        told,
        told,
        "precision: float32, as the run began; a new run here takes bfloat16",
    ]
    with pytest.raises(UsageError, match="precision='bfloat16' needs"):
        decided("auto", torch.device("mps"), 768, reporter, "bfloat16")


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
