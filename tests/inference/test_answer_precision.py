"""The precision of answers: what auto chooses, what is refused, and what stays as it was."""

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from tidybert.errors import UsageError, in_python
from tidybert.inference.answer_precision import answering_in, choose_precision
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ({"precision": "auto", "record": {"device": "cuda:0"}}, "bfloat16"),
        ({"precision": "bfloat16", "record": {"device": "cpu"}}, "bfloat16"),
        ({"precision": "auto", "record": {"device": "cpu"}}, "float32"),
        ({"precision": "float32", "record": {"device": "cuda"}}, "float32"),
        (None, "float32"),
    ],
)
def test_auto_is_bfloat16_on_cuda_alone_where_training_was_in_it(
    arguments: dict[str, object] | None,
    chosen: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda _device: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    (tmp_path / "config.json").write_text("{}")
    if arguments is not None:
        (tmp_path / "arguments.json").write_text(json.dumps(arguments))

    assert choose_precision("auto", tmp_path, CUDA) == chosen
    assert choose_precision("auto", tmp_path, torch.device("cpu")) == "float32"
    assert choose_precision("float16", tmp_path, CUDA) == "float16"


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("float16", "precision='float16' needs a CUDA device, and the model is on cpu"),
        ("half", "precision='half': expected one of auto, float32, bfloat16, float16"),
    ],
)
def test_a_precision_that_does_not_fit_is_refused(
    precision: str, said: str, tiny_run: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        Predictor(tiny_run, device="cpu", precision=precision)
    assert said in in_python(caught.value.message)


def test_products_of_float32_on_cuda_take_tf32_within_the_block_alone() -> None:
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    with answering_in("float32", CUDA):
        assert products.fp32_precision == "tf32"
        assert torch.is_inference_mode_enabled()
    assert products.fp32_precision == before

    with answering_in("float32", torch.device("cpu")):
        assert products.fp32_precision == before


def test_float32_on_a_cpu_keeps_its_bits_and_bfloat16_is_near(tiny_run: Path) -> None:
    texts = ["the red cat", "a dog was near", "we saw blue and white"]
    found = {
        precision: np.array(
            [
                list(each["scores"].values())
                for each in Predictor(tiny_run, device="cpu", precision=precision).predict(texts)
            ]
        )
        for precision in ("auto", "float32", "bfloat16")
    }

    assert np.array_equal(found["auto"], found["float32"])
    assert not np.array_equal(found["bfloat16"], found["float32"])
    assert np.abs(found["bfloat16"] - found["float32"]).max() < 0.02


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_take_it_too(pooling: str, tiny_model: Path) -> None:
    texts = ["the red cat", "a dog was near"]
    exact, rounded = (
        Embedder(tiny_model, device="cpu", pooling=pooling, precision=precision).embed(texts)
        for precision in ("float32", "bfloat16")
    )

    assert rounded.dtype == np.float32
    assert not np.array_equal(exact, rounded)
    assert np.abs(exact - rounded).max() < 0.1


def test_metrics_say_it(tiny_run: Path, toy_examples) -> None:
    for precision in ("float32", "bfloat16"):
        predictor = Predictor(tiny_run, device="cpu", precision=precision)
        assert predictor.evaluate(toy_examples(4))["computed_in"] == precision


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [("auto", 5e-3), ("float32", 5e-3), ("bfloat16", 0.03), ("float16", 5e-3)],
)
def test_cuda_answers_as_a_cpu_does(
    precision: str, tolerance: float, tiny_run: Path, toy_examples
) -> None:
    texts = [one.text for one in toy_examples(50)]
    here, there = (
        np.array([list(each["scores"].values()) for each in predictor.predict(texts)])
        for predictor in (
            Predictor(tiny_run, device="cpu"),
            Predictor(tiny_run, device="cuda", precision=precision),
        )
    )

    assert np.abs(here - there).max() < tolerance
