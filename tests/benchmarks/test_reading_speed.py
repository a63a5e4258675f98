"""Tokenising and inference timed: the sides do the same work, and their answers agree."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.harness import datasets, script
from benchmarks.harness.script import SIDES
from benchmarks.speed import infer
from benchmarks.speed.infer import (
    SENTENCES,
    STATES,
    Logits,
    Run,
    bench_tokenization,
    open_side,
    packages_of,
    save_classifier,
)
from tidybert.errors import TidyBertError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.inference.predictor import Predictor
from tidybert.modeling.kernels.linear import largest_weight
from tidybert.tokenization import SPECIAL_TOKENS, BertTokenizer

QUANTITIES = {
    "texts_per_second_in_order",
    "texts_per_second_by_length",
    "ms_of_16_tokens_p50",
    "ms_of_16_tokens_p99",
    "seconds_to_first_answer",
    "peak_mib",
}


def given_of(model: Path) -> Namespace:
    """The flags of a small measurement."""
    same = {"rounds": 1, "max_seq_length": 16, "threads": None, "profiled": False}
    return Namespace(model=str(model), device="cpu", precision="float32", **same)


@pytest.mark.parametrize("against", [None, "transformers"])
def test_tokenizers_are_timed_and_compared(against: str | None, tmp_path: Path) -> None:
    BertTokenizer([*SPECIAL_TOKENS, *"ab,e", "##b"]).save(tmp_path)
    lines = ["a", "b", "c"] * 3 + ["ab a, b", "中 é [MASK]", ""]

    result = bench_tokenization(str(tmp_path), lines, rounds=2, against=against)

    assert (result["lines"], result["lines_seen_before"]) == (3, 9)
    assert result["megabytes"] == pytest.approx(20e-6)
    assert result["lines_differing"] == 0
    assert all(result["medians"]["ours"][state] > 0 for state in STATES)
    for state in STATES if against else ():
        sides = ("ours", "tokenizers")
        pairs = zip(*(result["samples"][side][state] for side in sides), strict=True)
        assert result["ratios"][state] == pytest.approx(np.median([a / b for a, b in pairs]))


@pytest.fixture
def texts(toy_examples: Callable[..., list[TextExample]]) -> list[TextExample]:
    # Not a multiple of 32, and one that is cut.
    return [*toy_examples(40), TextExample("a hen and " * 30, None, None, 41)]


@pytest.mark.usefixtures("in_process")
def test_both_sides_beside_each_other(
    tiny_run: Path, tmp_path: Path, run_script: Callable[..., int], capsys: Any
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("a red hen\nthe dog\n" * 20 + "a hen and " * 30)
    flags = ["--model", tiny_run, "--texts", path, "--rounds", "1", "--threads", "1", "--json"]

    assert run_script("infer", *flags, "--against", "transformers") == 0

    result = json.loads(capsys.readouterr().out)
    assert (result["num_texts"], result["num_truncated"], result["rounds"]) == (41, 1, 1)
    assert (result["threads"], result["max_seq_length"]) == (1, 32)
    assert 0 <= result["largest_difference_of_logits"] <= 1e-4
    for side in SIDES:
        lengths = {name: len(values) for name, values in result["samples"][side].items()}
        assert lengths == dict.fromkeys(QUANTITIES, 1)
        assert all(value > 0 for value in result["medians"][side].values())
    assert set(result["ratios"]) == QUANTITIES


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_onnx_runtime_computes_the_same_model(
    precision: str, tiny_run: Path, texts: list[TextExample], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    if precision == "int8" and not largest_weight():
        pytest.skip("no exact 8-bit products here")
    save_classifier(str(tiny_run), tmp_path / "model", 16)
    given = (tmp_path / "model", 16, "cpu")

    expected = open_side("ours", *given)(texts)
    found = open_side("onnxruntime", *given, precision)(texts)
    ours = open_side("ours", *given, precision)(texts)

    theirs, mine = (np.abs(each - expected).max() / expected.std() for each in (found, ours))
    if precision == "float32":
        assert max(theirs, mine) < 1e-4
    else:
        assert 0 < mine < 0.2
        # Without VNNI sums of ONNX Runtime's saturate, whose weights have 8 bits there too.
        assert 0 < theirs < (0.2 if largest_weight() == 127 else float("inf"))


def test_a_side_without_int8_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="transformers has no int8 here; use "):
        open_side("transformers", tmp_path, 16, "cpu", "int8")


def test_lone_texts_have_the_tokens_asked_for(tiny_run: Path, texts: list[TextExample]) -> None:
    tokenizer = Predictor(tiny_run).tokenizer

    found = infer.lone_texts(tokenizer, [one.text for one in texts] * 9, 100)

    assert list(found) == [16, 62]
    assert [len(tokenizer.encode(text)) for text in found.values()] == [16, 62]


@pytest.mark.usefixtures("in_process")
def test_one_side_alone_needs_no_transformers_and_leaves_no_trace(
    tiny_model: Path, texts: list[TextExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    state = torch.get_rng_state()

    result = infer.bench_inference(texts, ("ours",), given_of(tiny_model))

    assert set(result["medians"]["ours"]) == QUANTITIES
    assert (result["ratios"], result["largest_difference_of_logits"]) == ({}, None)
    assert torch.equal(torch.get_rng_state(), state)


def test_pairs_give_equal_logits_in_the_order_given(tiny_run: Path, tmp_path: Path) -> None:
    pairs = [("the cat", "a red hen was near"), ("old and new", "cow"), ("a", "we saw the dog")]
    examples = [TextExample(*pair, None, row) for row, pair in enumerate(pairs, start=1)]
    save_classifier(str(tiny_run), tmp_path / "model", 16)

    ours, theirs = (open_side(side, tmp_path / "model", 16)(examples) for side in SIDES)

    assert ours.shape == (3, 2)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    # A head whose logits are all alike would agree with anything.
    assert ours.std(0).min() > 0.01


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("wrong", [2e-4, float("nan")])
def test_logits_that_differ_are_an_error(
    tiny_model: Path, texts: list[TextExample], wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_side(side: str, *_given: Any) -> Run:
        value = wrong if side == "transformers" else 0.0
        return lambda examples: np.full((len(examples), 2), value, dtype=np.float32)

    monkeypatch.setattr(infer, "open_side", open_side)

    with pytest.raises(TidyBertError, match="not done the same work"):
        infer.bench_inference(texts, SIDES, given_of(tiny_model))


@pytest.mark.usefixtures("in_process")
def test_sorted_texts_are_the_same_texts_the_longest_first(
    tiny_model: Path, texts: list[TextExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[TextExample]] = []

    def run(examples: Any) -> Logits:
        given.append(list(examples))
        return np.zeros((len(examples), 2), dtype=np.float32)

    monkeypatch.setattr(infer, "open_side", lambda *_given: run)
    infer.bench_inference(texts, ("ours",), given_of(tiny_model))

    first, warm_up, in_order, by_length, *_alone = given
    assert first == in_order[:1]
    assert [one.text for one in texts] == [one.text for one in in_order]
    assert warm_up == in_order
    assert by_length[0] == in_order[-1]
    assert sorted(one.row or 0 for one in by_length) == [one.row for one in in_order]
    lengths = [len(one.text.split()) for one in by_length]
    assert lengths == sorted(lengths, reverse=True)


FLOAT32_SIDES = ("transformers", "openvino", SENTENCES)


def saved_for(side: str, run: Path, folder: Path) -> tuple[Path, int, str]:
    """A classifier for this side, as ``open_side`` takes it; skips without the side's packages."""
    package = script.missing(*packages_of(side))
    if package is not None:
        pytest.skip(f"{package} is not installed")
    save_classifier(str(run), folder / "model", 16)
    return folder / "model", 16, "cpu"


@pytest.mark.parametrize("side", FLOAT32_SIDES)
@pytest.mark.filterwarnings("ignore")
def test_every_engine_gives_the_logits_of_one_model(
    side: str, tiny_run: Path, texts: list[TextExample], tmp_path: Path
) -> None:
    given = saved_for(side, tiny_run, tmp_path)

    np.testing.assert_allclose(
        open_side(side, *given)(texts), open_side("ours", *given)(texts), atol=1e-4
    )


@pytest.mark.parametrize("side", ["ours", "openvino", SENTENCES])
@pytest.mark.filterwarnings("ignore")
def test_bfloat16_is_near_float32(
    side: str, tiny_run: Path, texts: list[TextExample], tmp_path: Path
) -> None:
    given = saved_for(side, tiny_run, tmp_path)
    expected = open_side("ours", *given)(texts)

    found = open_side(side, *given, "bfloat16")(texts)

    assert np.abs(found - expected).max() < 0.2 * expected.std()


@pytest.mark.usefixtures("in_process")
def test_the_table_of_engines_has_a_row_a_side_and_names_what_is_missing(
    tiny_run: Path, toy_data: Path, run_script: Callable[..., int], monkeypatch: Any, capsys: Any
) -> None:
    lacking = {"openvino": "openvino"}
    monkeypatch.setattr(script, "missing", lambda *names: next(map(lacking.get, names[-1:]), None))
    monkeypatch.setattr(datasets, "wikipedia_lines", lambda: ("toys", ["the red cat " * 80] * 3))
    sides = ["--sides", "ours", "ours int8", "openvino int8"]

    status = run_script("engines", "--model", tiny_run, *sides, "--rounds", "1", "--train", "8")

    printed = capsys.readouterr()
    assert status == 0
    assert "openvino int8 is left out: it needs openvino (pip install openvino)" in printed.err
    rows = [line for line in printed.out.splitlines() if line.startswith("| tidybert")]
    assert [row.split(" | ")[0] for row in rows] == ["| tidybert", "| tidybert int8"]
    assert run_script("infer", "--model", tiny_run, "--against", "openvino") == 2
    assert "needs openvino, which is not installed" in capsys.readouterr().err
