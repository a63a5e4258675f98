"""The precision of answers: what auto chooses, what is refused, and what stays as it was."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.errors import UsageError, in_python
from tidybert.inference.embedding import Embedder
from tidybert.inference.forward import answering_in, choose_precision
from tidybert.inference.language_model import TextGenerator, TextScorer
from tidybert.inference.predictor import Predictor
from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor
from tidybert.modeling.kernels import answer_layers, linear, processor
from tidybert.modeling.kernels.linear import has_bfloat16_products, largest_weight
from tidybert.training import precision as precision_module

needs_int8 = pytest.mark.skipif(not largest_weight(), reason="no exact 8-bit products here")
ROUNDED = [
    pytest.param("int8", marks=needs_int8),
    pytest.param(
        "bfloat16",
        marks=pytest.mark.skipif(not has_bfloat16_products(), reason="no products of bfloat16"),
    ),
]
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ({"precision": "auto", "record": {"device": "cuda:0"}}, "bfloat16"),
        ({"precision": "bfloat16", "record": {"device": "cpu"}}, "bfloat16"),
        ({"precision": "auto", "record": {"device": "cpu"}}, "float32"),
        ({"precision": "float32", "record": {"device": "cuda"}}, "float32"),
        ({"precision": "auto", "record": {"device": "cpu", "precision": "bfloat16"}}, "bfloat16"),
        ({"precision": "auto", "record": {"device": "cuda", "precision": "float32"}}, "float32"),
        (None, "float32"),
    ],
)
def test_auto_is_bfloat16_where_training_was_in_it_and_the_device_suits_it(
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
    for units, cpu_chosen in ((None, "float32"), ("AMX", chosen)):
        monkeypatch.setattr(precision_module, "bfloat16_units", lambda units=units: units)
        assert choose_precision("auto", tmp_path, torch.device("cpu"), 256) == cpu_chosen
        assert choose_precision("auto", tmp_path, torch.device("cpu"), 128) == "float32"
    assert choose_precision("float16", tmp_path, CUDA) == "float16"


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("float16", "precision='float16' needs a CUDA device, and the model is on cpu"),
        ("half", "precision is half; expected auto, float32, bfloat16, float16 or int8"),
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


TEXTS = ["the red cat", "a dog was near", "we saw blue and white and the old red dog", "cat"]


@pytest.mark.parametrize("precision", ROUNDED)
def test_each_text_is_answered_alone_as_in_company(precision: str, served: dict[str, str]) -> None:
    for run in ("colours", "labels", "scores", "tags"):
        texts = [each.split() for each in TEXTS] if run == "tags" else TEXTS
        exact, rounded = (
            Predictor(served[run], device="cpu", precision=p) for p in ("float32", precision)
        )

        together = rounded.predict(texts)

        assert together == [rounded.predict([each])[0] for each in texts]
        assert together != exact.predict(texts)
        assert rounded.precision == precision
    outputs = (each.predict([TEXTS[0]])[0]["tags"] for each in (exact, rounded))
    assert len({len(each) for each in outputs}) == 1


@pytest.mark.parametrize("precision", ROUNDED)
@pytest.mark.parametrize("settings", [{}, {"pooling": "cls"}, {"layers": "all"}, {"layers": 1}])
def test_rounded_vectors_are_near_float32(
    settings: dict[str, Any], precision: str, served: dict[str, str]
) -> None:
    exact, rounded = (
        Embedder(served["base"], precision=p, **settings) for p in ("float32", precision)
    )

    expected, found = exact.embed(TEXTS), rounded.embed(TEXTS)

    assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)
    assert np.array_equal(found, np.concatenate([rounded.embed([each]) for each in TEXTS]))
    # Only those in int8 are of their own kind.
    assert (rounded.fingerprint != exact.fingerprint) is (precision == "int8")


@pytest.mark.parametrize("rounding", ROUNDED)
def test_rounded_heads_fill_masks_compare_sentences_and_score(
    rounding: str, served: dict[str, str]
) -> None:
    def answers(precision: str) -> list[float]:
        given: Any = {"device": "cpu", "precision": precision}
        filled = MaskFiller(served["base"], **given).fill(["the red [MASK]"])
        compared = NextSentencePredictor(served["base"], **given).predict([TEXTS[0]], [TEXTS[1]])
        scored = TextScorer(served["base"], **given).score([TEXTS[0]])
        words = filled[0]["masks"][0]["words"]
        return [words[0]["probability"], compared[0]["follows"], scored[0]["pseudo_perplexity"]]

    exact, rounded = map(answers, ("float32", rounding))

    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("model", ["poem"])
def test_int8_of_a_language_model_is_refused(model: str, served: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="is a language model: use float32"):
        TextGenerator(served[model], device="cpu", precision="int8")


def test_int8_needs_a_cpu(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        choose_precision("int8", tmp_path, CUDA)
    assert in_python(caught.value.message) == (
        "precision='int8' needs a CPU, and the model is on cuda:0: add device='cpu', or use auto"
    )


def test_without_8_bit_products_answers_are_float32_and_a_note_says_so(
    served: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answer_layers, "largest_weight", lambda: 0)

    predictor = Predictor(served["colours"], device="cpu", precision="int8")

    assert predictor.precision == "float32"
    assert "precision: float32 in place of int8, because this processor" in caplog.text
    exact = Predictor(served["colours"], device="cpu", precision="float32")
    assert predictor.predict(TEXTS) == exact.predict(TEXTS)


@needs_int8
@pytest.mark.parametrize(
    ("has_amx", "largest", "said"),
    [
        (False, 127, None),
        (True, 127, "bfloat16 is as fast as int8"),
        (False, 63, "has no VNNI: in int8 a single text takes longer"),
    ],
)
def test_int8_says_where_another_precision_is_as_fast(
    has_amx: bool,
    largest: int,
    said: str | None,
    served: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(processor, "has", {"AMX": has_amx}.__getitem__)
    monkeypatch.setattr(linear, "largest_weight", lambda: largest)

    Predictor(served["colours"], device="cpu", precision="int8")

    assert said in caplog.text if said else "precision" not in caplog.text


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
