"""A bfloat16 residual stream on a CPU: what it rounds, and the table of a trial."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tidybert.modeling.kernels.layer_norm import LayerNorm
from tidybert.training.precision import autocast


@pytest.fixture
def trial(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("bfloat16_residual")


def test_layer_norm_gives_bfloat16_within_the_block_alone(trial: ModuleType) -> None:
    norm, hidden = LayerNorm(8), torch.randn(3, 8)

    with autocast(torch.device("cpu"), True):
        with trial.bfloat16_residual():
            inside = norm(hidden)
        outside = norm(hidden)

    assert inside.dtype == torch.bfloat16
    assert outside.dtype == torch.float32
    torch.testing.assert_close(inside.float(), outside, atol=0.02, rtol=0)


def test_runs_of_a_seed_are_compared_and_done_once(
    trial: ModuleType,
    run_script: Callable[..., None],
    write_corpus: Callable[..., Path],
    page: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    documents = [[[5 + (n + m) % 40 for m in range(9)]] * 4 for n in range(30)]
    corpus = write_corpus(tmp_path / "corpus", documents, documents[:2], vocab_size=50)
    out, written = tmp_path / "trial.jsonl", page("bfloat16-residual")
    flags = ["--size", "tiny", "--steps", "2", "--tokens-per-step", "128", "--seeds", "1"]

    for _ in range(2):
        run_script("bfloat16_residual", corpus, *flags, "--out", out, "--write", written)

    full, half, rounded = (json.loads(line) for line in out.read_text().splitlines())
    assert [each["kind"] for each in (full, half, rounded)] == ["float32", "bfloat16", "rounded"]
    assert len({str(each["losses"]) for each in (full, half, rounded)}) == 3
    for other in (half, rounded):
        assert other["losses"] == pytest.approx(full["losses"], abs=0.05)
    assert f"| 1 | 2 | 128 | {full['loss']:.4f} | {half['loss']:.4f} |" in written.read_text()
    assert f"| {rounded['loss'] - full['loss']:+.4f} |\n" in written.read_text()
