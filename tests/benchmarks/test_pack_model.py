"""A run packed by the maintainers' script: both programs agree, and its card says what it is."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.storage.atomic_files import file_sha256

pytest.importorskip("transformers")


def test_a_run_is_packed_and_its_card_written(
    run_script: Callable[..., None],
    page: Callable[[str], Path],
    pretrained_run: Path,
    tmp_path: Path,
    capsys,
) -> None:
    out, written = tmp_path / "packed", page("pack_model")
    run_script("pack_model", pretrained_run, out, "--write", written)
    found = json.loads(capsys.readouterr().out)
    assert found["sha256"] == file_sha256(out / "model.safetensors")
    assert 0 < found["difference"] < 2**-7
    assert found["difference_in_transformers"] == pytest.approx(found["difference"], rel=0.01)
    assert {each.dtype for each in read_tensors(out).values()} == {torch.float16}
    text = written.read_text()
    for row in (
        "| layers, width, heads | 2, 16, 2 |",
        "| vocabulary | 24 pieces |",
        f"| parameters, heads included | {found['num_parameters']:,} |",
        "| recipe | fast: muon, peak rate 0.002, 15% masked |",
        "| steps | 12 of at most 2,048 tokens |",
        "| tokens read | 24,000 |",
        "| held-out masked words | 25.0% right, perplexity 12.5 |",
        "| held-out pairs | 75.0% right |",
    ):
        assert row in text.splitlines(), row
    picture = (written.parent / "packed-curves.svg").read_text()
    assert picture.startswith("<svg")
    assert "(packed-curves.svg)" in text


def test_weights_that_transformers_reads_otherwise_are_not_kept(
    script: Callable[[str], ModuleType],
    run_script: Callable[..., None],
    pretrained_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pack_model = script("pack_model")
    ours = pack_model.probe_logits

    def otherwise(directory: Path) -> list[torch.Tensor]:
        words, pairs = ours(directory)
        return [words, pairs.flip(1)]

    monkeypatch.setattr(pack_model, "probe_logits", otherwise)
    with pytest.raises(SystemExit, match="in transformers: a logit differs"):
        run_script("pack_model", pretrained_run, tmp_path / "packed")
    assert not any(tmp_path.iterdir())


def test_what_is_no_run_is_refused(
    run_script: Callable[..., None], tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="not a RUN of tidybert pretrain"):
        run_script("pack_model", tiny_model, tmp_path / "packed")
