"""Answers without PyTorch timed: the same batches on both sides, and answers compared."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.harness import datasets
from benchmarks.speed import light
from tidybert.errors import TidyBertError
from tidybert.inference.predictor import Predictor

TEXTS = ["the red cat", "a dog saw the hen", "cat", "we saw the white dog"] * 3
# One of each class that answers; tests/export compares the answers of all.
HEADS = ["classify", "fill-mask", "next-sentence"]


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for heads and their graphs: one takes seconds to make."""
    return tmp_path_factory.mktemp("heads")


def test_heads_answer_alike_and_are_timed(
    tiny_model: Path,
    heads: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = {"seconds": 0.5, "MiB": 200.0}
    commands = []
    monkeypatch.setattr(light, "processor_of", lambda command: commands.append(command) or shell)
    monkeypatch.setattr(datasets, "mixed_texts", lambda: ("toys", TEXTS))
    write = light.write_head
    monkeypatch.setattr(light, "write_head", lambda model, name, _: write(model, name, heads))
    flags = ["--model", str(tiny_model), "--num-texts", "8", "--rounds", "1", "--json"]
    flags += ["--heads", *HEADS, "--python", "other"]
    monkeypatch.setattr(sys, "argv", ["light", *flags])

    light.light(light.argparse.ArgumentParser())

    found = json.loads(capsys.readouterr().out)
    assert list(found["apart"]) == HEADS
    for largest, others in found["apart"].values():
        assert (largest < 1e-4, others) == (True, 0)
    for values in found["medians"].values():
        assert values["texts_per_second"] > 0
        assert (values["shell_seconds"], values["shell_MiB"]) == (0.5, 200.0)
    assert [each[0] for each in commands[:3]] == ["other", "other", sys.executable]


def test_onnx_runtime_itself_gets_the_batches_of_all_texts(tiny_model: Path, heads: Path) -> None:
    _, graph = light.write_head(str(tiny_model), "classify", heads)
    predictor = Predictor(graph)
    session = predictor.model.session

    with light._kept(predictor.model) as kept:
        predictor.predict(TEXTS)

    assert sum(len(given["input_ids"]) for _, given in kept.batches) == len(TEXTS)
    assert predictor.model.session is session


@pytest.mark.parametrize(
    ("found", "expected", "apart"),
    [
        ({"score": 0.5, "label": "a"}, {"score": 0.25, "label": "a"}, 0.25),
        ({"score": 0.5, "label": "a"}, {"score": 0.5, "label": "b"}, float("inf")),
        ({"score": 0.5}, {"value": 0.5}, float("inf")),
        ([1, 2.0], [1], float("inf")),
        ([1, [2.0, 3.5]], [1, [2.5, 3.0]], 0.5),
        (None, 1.0, float("inf")),
    ],
)
def test_differences_of_answers(found: object, expected: object, apart: float) -> None:
    assert light.difference(found, expected) == apart


def test_a_command_s_processor_time_and_its_failure() -> None:
    found = light.processor_of([sys.executable, "-c", "sum(range(10**6))"])

    assert found["seconds"] > 0
    assert found["MiB"] > 1
    with pytest.raises(TidyBertError, match="no such thing"):
        light.processor_of([sys.executable, "-c", "raise SystemExit('no such thing')"])
