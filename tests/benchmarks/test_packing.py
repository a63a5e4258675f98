"""A packed model: the run's logits in half the bytes, or nothing at all."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tidybert import MaskFiller, NextSentencePredictor
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError
from tidybert.modeling import BertForMaskedLM, BertForPreTraining
from tidybert.storage.atomic_files import file_sha256
from tidybert.tokenization import BertTokenizer

METADATA = ModelMetadata(
    task="pretrain", max_seq_length=16, settings={"objective": "mlm+nsp"}, metrics={"loss": 1.5}
)


@pytest.fixture
def packing(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("pack_model")


@pytest.fixture
def save(
    tmp_path: Path, tiny_model: Path, tiny_config: Callable[..., BertConfig]
) -> Callable[..., Path]:
    """Writes a RUN of pre-training with every parameter random."""

    def save(build: Any = BertForPreTraining, **changes: Any) -> Path:
        torch.manual_seed(0)
        config = tiny_config(intermediate_size=64)
        model = build(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
                if name in changes:
                    parameter.fill_(changes[name])
        save_model_directory(
            tmp_path / "run",
            model_state=model.state_dict(),
            config=config,
            tokenizer=BertTokenizer.from_pretrained(tiny_model),
            metadata=METADATA,
            architecture=build.__name__,
        )
        return tmp_path / "run"

    return save


def test_packed_weights_are_the_rounded_ones_in_half_the_bytes(
    packing: ModuleType, save: Callable[..., Path], tmp_path: Path
) -> None:
    run, out = save(), tmp_path / "packed"
    (run / "checkpoints").mkdir()
    (run / "metrics.jsonl").write_text("{}\n")
    packed = packing.pack(run, out)

    old, new = read_tensors(run), read_tensors(out)
    assert new.keys() == old.keys()
    assert all(torch.equal(new[name], old[name].half()) for name in old)
    assert {tensor.dtype for tensor in new.values()} == {torch.float16}
    assert packed.num_parameters == sum(tensor.numel() for tensor in old.values())
    assert packed.sha256 == file_sha256(out / "model.safetensors")
    assert packed.num_bytes == sum(path.stat().st_size for path in out.iterdir())
    assert 0 < packed.difference < packing.TOLERANCE
    # What tells of the run's course stays behind.
    assert {path.name for path in out.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tidybert.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
    metadata = ModelDirectory(out).metadata
    assert metadata is not None
    for name in ("task", "max_seq_length", "settings", "metrics"):
        assert getattr(metadata, name) == getattr(METADATA, name)


def test_transformers_opens_what_is_packed_with_the_same_logits(
    packing: ModuleType, save: Callable[..., Path], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    run, out = save(), tmp_path / "packed"
    packing.pack(run, out)

    theirs, info = transformers.BertForPreTraining.from_pretrained(
        out, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    words, pairs = packing.probe_logits(ModelDirectory(out))
    begin = 0
    with torch.inference_mode():
        for number, (ids, types) in enumerate(packing.probe_inputs(ModelDirectory(out))):
            found = theirs.eval()(torch.tensor([ids]), token_type_ids=torch.tensor([types]))
            expected = words[begin : begin + len(ids)]
            torch.testing.assert_close(found.prediction_logits[0], expected, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(
                found.seq_relationship_logits[0], pairs[number], atol=1e-4, rtol=1e-4
            )
            begin += len(ids)
    assert begin == len(words)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert (
        tokenizer("the red cat")["input_ids"]
        == BertTokenizer.from_pretrained(out).encode("the red cat").input_ids
    )


def test_packed_weights_answer_as_the_run_does(
    packing: ModuleType, save: Callable[..., Path], tmp_path: Path
) -> None:
    run, out = save(), tmp_path / "packed"
    packing.pack(run, out)
    text = "the red [MASK] is near"
    (old,), (new,) = (MaskFiller(each).fill([text], top_k=3) for each in (run, out))
    one, two = ([word["word"] for word in each["masks"][0]["words"]] for each in (old, new))
    assert one == two
    (old,), (new,) = (
        NextSentencePredictor(each).predict(["the cat"], ["we saw a dog"]) for each in (run, out)
    )
    assert new["follows"] == pytest.approx(old["follows"], abs=0.01)


def test_an_old_one_is_replaced_as_a_whole(
    packing: ModuleType, save: Callable[..., Path], tmp_path: Path
) -> None:
    run, out = save(), tmp_path / "packed"
    out.mkdir()
    (out / "added_tokens.json").write_text("{}")
    packing.pack(run, out)
    assert not (out / "added_tokens.json").exists()


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        # Above 65,504, the largest number of float16.
        ({"mlm.bias": 70_000.0}, {}, r"not finite in mlm\.bias \(\d+ of \d+\)"),
        ({}, {"max_bytes": 1000}, "at most 1,000"),
        ({"build": BertForMaskedLM}, {}, "nsp.weight.*objective='mlm\\+nsp'"),
    ],
)
def test_what_cannot_be_packed_leaves_the_old_one(
    packing: ModuleType,
    changes: dict[str, Any],
    options: dict[str, Any],
    said: str,
    save: Callable[..., Path],
    tmp_path: Path,
) -> None:
    run, out = save(**changes), tmp_path / "packed"
    out.mkdir()
    (out / "old").write_text("old")
    with pytest.raises(WeightsError, match=said):
        packing.pack(run, out, **options)
    assert [path.name for path in out.iterdir()] == ["old"]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "packed"}


def test_logits_that_moved_further_than_rounding_explains_are_refused(
    packing: ModuleType, save: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = save_model_directory

    def save_otherwise(directory: Path, **given: Any) -> ModelMetadata:
        state = dict(given["model_state"])
        name = "bert.encoder.layers.1.output.weight"
        state[name] = state[name] * 1.1
        return written(directory, **{**given, "model_state": state})

    monkeypatch.setattr(packing, "save_model_directory", save_otherwise)
    with pytest.raises(WeightsError, match="float16 explains at most"):
        packing.pack(save(), tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_only_a_run_of_pretraining_is_packed(
    packing: ModuleType, save: Callable[..., Path], tmp_path: Path, tiny_run: Path, tiny_model: Path
) -> None:
    for other in (tiny_run, tiny_model):
        with pytest.raises(WeightsError, match="not a RUN of tidybert pretrain"):
            packing.pack(other, tmp_path / "packed")
    run = save()
    shutil.copy(tiny_model / "vocab.txt", run / "vocab.txt")
    (run / "vocab.txt").write_text((run / "vocab.txt").read_text() + "more\n")
    with pytest.raises(WeightsError, match=r"changed since .* saved: vocab\.txt"):
        packing.pack(run, tmp_path / "packed")


def test_packing_twice_gives_the_same_bytes(
    packing: ModuleType, save: Callable[..., Path], tmp_path: Path
) -> None:
    run = save()
    first, second = (packing.pack(run, tmp_path / name) for name in ("one", "two"))
    assert first == second
    assert (tmp_path / "one/tidybert.json").read_text() == (
        tmp_path / "two/tidybert.json"
    ).read_text()
