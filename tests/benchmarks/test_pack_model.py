"""A packed model: the run's logits in half the bytes and a card of it, or nothing at all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import pack_model
from tidybert import MaskFiller, NextSentencePredictor
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.errors import WeightsError
from tidybert.modeling import BertForMaskedLM, BertForPreTraining
from tidybert.storage.atomic_files import file_sha256
from tidybert.tokenization import BertTokenizer


@pytest.fixture
def save(tmp_path: Path, pretrained_run: Path) -> Callable[..., Path]:
    """Writes the RUN again with another head, or with a parameter filled."""

    def save(build: Any = BertForPreTraining, **changes: float) -> Path:
        origin = ModelDirectory(pretrained_run)
        model, _ = origin.build(build)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in changes:
                    parameter.fill_(changes[name])
        save_model_directory(
            tmp_path / "run",
            model_state=model.state_dict(),
            config=origin.config,
            tokenizer=origin.tokenizer,
            metadata=ModelMetadata(task="pretrain", metrics={"loss": 1.5}),
            architecture=build.__name__,
        )
        return tmp_path / "run"

    return save


def test_packed_weights_are_the_rounded_ones_with_the_logits_of_the_run(
    pretrained_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "packed"
    out.mkdir()
    (out / "added_tokens.json").write_text("{}")

    packed = pack_model.pack(pretrained_run, out)

    old, new = read_tensors(pretrained_run), read_tensors(out)
    assert new.keys() == old.keys()
    assert all(torch.equal(new[name], old[name].half()) for name in old)
    assert packed["num_parameters"] == sum(tensor.numel() for tensor in old.values())
    assert packed["sha256"] == file_sha256(out / "model.safetensors")
    assert packed["num_bytes"] == sum(path.stat().st_size for path in out.iterdir())
    assert 0 < packed["difference"] < pack_model.TOLERANCE
    assert packed["difference_in_transformers"] == pytest.approx(packed["difference"], rel=0.01)
    # An old pack is replaced as a whole, and what tells of the run's course stays behind.
    names = ["model.safetensors", "tidybert.json", "tokenizer.json", "tokenizer_config.json"]
    assert {path.name for path in out.iterdir()} == {"config.json", "vocab.txt", *names}
    metadata, origin = ModelDirectory(out).metadata, ModelDirectory(pretrained_run).metadata
    assert metadata is not None
    assert origin is not None
    assert (metadata.task, metadata.metrics) == (origin.task, origin.metrics)
    again = pack_model.pack(pretrained_run, tmp_path / "again")
    assert again == packed
    assert (tmp_path / "again/tidybert.json").read_text() == (out / "tidybert.json").read_text()


def test_packed_weights_answer_as_the_run_does(pretrained_run: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    out = tmp_path / "packed"
    pack_model.pack(pretrained_run, out)
    models = (pretrained_run, out)

    filled = [MaskFiller(each).fill(["the red [MASK] is near"], top_k=3)[0] for each in models]
    words = [[word["word"] for word in one["masks"][0]["words"]] for one in filled]
    assert words[0] == words[1]
    pair = (["the cat"], ["we saw a dog"])
    follows = [NextSentencePredictor(each).predict(*pair)[0]["follows"] for each in models]
    assert follows[1] == pytest.approx(follows[0], abs=0.01)
    ids = transformers.AutoTokenizer.from_pretrained(out)("the red cat")["input_ids"]
    assert ids == BertTokenizer.from_pretrained(out).encode("the red cat").input_ids


def test_the_card_of_a_pack(
    run_script: Callable[..., int],
    page: Callable[[str], Path],
    pretrained_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = page("pack_model")
    assert run_script("pack_model", pretrained_run, tmp_path / "packed", "--write", written) == 0

    found = json.loads(capsys.readouterr().out.splitlines()[0])
    rows = written.read_text().splitlines()
    for row in (
        "| layers, width, heads | 2, 16, 2 |",
        "| vocabulary | 24 tokens |",
        f"| parameters, heads included | {found['num_parameters']:,} |",
        "| recipe | fast: muon, peak rate 0.002, 15% masked |",
        "| steps | 12 of at most 2,048 tokens |",
        "| tokens read | 24,000 |",
        "| held-out masked words | 25.0% right, perplexity 12.5 |",
        "| held-out pairs | 75.0% right |",
        "![The losses over steps and tokens](packed-curves.svg)",
    ):
        assert row in rows, row
    assert (written.parent / "packed-curves.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("changes", "most", "message"),
    [
        # Above 65,504, the largest number of float16.
        ({"mlm.bias": 70_000.0}, None, r"not finite in mlm\.bias \(\d+ of \d+\)"),
        ({}, 1000, "at most 1,000"),
        ({"build": BertForMaskedLM}, None, "nsp.weight.*objective='mlm\\+nsp'"),
    ],
)
def test_what_cannot_be_packed_leaves_the_old_one(
    changes: dict[str, Any],
    most: int | None,
    message: str,
    save: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, out = save(**changes), tmp_path / "packed"
    out.mkdir()
    (out / "old").write_text("old")
    monkeypatch.setattr(pack_model, "MAX_BYTES", most or pack_model.MAX_BYTES)

    with pytest.raises(WeightsError, match=message):
        pack_model.pack(run, out)

    assert [path.name for path in out.iterdir()] == ["old"]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "packed"}


@pytest.mark.parametrize(("whose", "message"), [("ours", "packed: a"), ("theirs", "transformers")])
def test_logits_that_moved_further_than_rounding_explains_are_refused(
    whose: str,
    message: str,
    pretrained_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, theirs = save_model_directory, pack_model.transformers_logits

    def save_otherwise(directory: Path, **given: Any) -> ModelMetadata:
        state = dict(given["model_state"])
        name = "bert.encoder.layers.1.output.weight"
        state[name] = state[name] * 1.1
        return written(directory, **{**given, "model_state": state})

    if whose == "ours":
        monkeypatch.setattr(pack_model, "save_model_directory", save_otherwise)
    else:
        monkeypatch.setattr(
            pack_model,
            "transformers_logits",
            lambda directory: [each.flip(1) for each in theirs(directory)],
        )
    with pytest.raises(WeightsError, match=f"{message}.*float16 explains at most"):
        pack_model.pack(pretrained_run, tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_only_a_run_of_pretraining_is_packed(
    save: Callable[..., Path], tmp_path: Path, tiny_run: Path, tiny_model: Path
) -> None:
    for other in (tiny_run, tiny_model):
        with pytest.raises(WeightsError, match="not a RUN of tidybert pretrain"):
            pack_model.pack(other, tmp_path / "packed")
    run = save()
    shutil.copy(tiny_model / "vocab.txt", run / "vocab.txt")
    (run / "vocab.txt").write_text((run / "vocab.txt").read_text() + "more\n")
    with pytest.raises(WeightsError, match=r"changed since .* saved: vocab\.txt"):
        pack_model.pack(run, tmp_path / "packed")
