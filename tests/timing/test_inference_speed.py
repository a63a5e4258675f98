"""Inference timed: both sides do the same work, and their logits agree."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.errors import TidyBertError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.timing import inference_speed as inference
from tidybert.timing.setting import SIDES

QUANTITIES = {"texts_per_second_in_order", "texts_per_second_by_length", "peak_mib"}


@pytest.fixture
def texts(toy_examples: Callable[..., list[TextExample]]) -> list[TextExample]:
    # Not a multiple of 32, and one that is cut.
    return [*toy_examples(40), TextExample("a hen and " * 30, None, None, 41)]


@pytest.fixture
def no_processes(monkeypatch) -> None:
    monkeypatch.setattr(inference, "run_apart", lambda *_given: {"peak_mib": 100})


@pytest.mark.usefixtures("no_processes")
def test_both_sides_beside_each_other(tiny_run: Path, texts: list[TextExample]) -> None:
    notes: list[str] = []

    result = inference.bench_inference(
        str(tiny_run), texts, rounds=2, max_seq_length=16, threads=1, report=notes.append
    )

    assert (result["num_texts"], result["num_truncated"], result["rounds"]) == (41, 1, 2)
    assert result["threads"] == 1
    assert 0 <= result["largest_difference_of_logits"] <= 1e-4
    assert set(result["samples"]) == set(result["medians"]) == {"ours", "transformers"}
    for quantities in result["samples"].values():
        assert {name: len(values) for name, values in quantities.items()} == {
            "texts_per_second_in_order": 2,
            "texts_per_second_by_length": 2,
            "peak_mib": 1,
        }
        assert all(value > 0 for values in quantities.values() for value in values)
    assert set(result["ratios"]) == QUANTITIES
    assert notes[-1] == "round 2 of 2 done"


@pytest.mark.usefixtures("no_processes")
def test_one_side_alone_needs_no_transformers(
    tiny_model: Path, texts: list[TextExample], monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)

    result = inference.bench_inference(
        str(tiny_model), texts, sides=("ours",), rounds=1, max_seq_length=16
    )

    assert set(result["medians"]["ours"]) == QUANTITIES
    assert result["ratios"] == {}
    assert result["largest_difference_of_logits"] is None


def test_pairs_give_equal_logits_in_the_order_given(tiny_run: Path, tmp_path: Path) -> None:
    pairs = [("the cat", "a red hen was near"), ("old and new", "cow"), ("a", "we saw the dog")]
    examples = [TextExample(*pair, None, row) for row, pair in enumerate(pairs, start=1)]
    lengths, cut = inference._prepare(str(tiny_run), tmp_path / "model", examples, 16)
    assert (lengths, cut) == ([10, 7, 8], 0)

    ours, theirs = (inference._open(side, tmp_path / "model", 16)(examples) for side in SIDES)

    assert ours.shape == (3, 2)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    # A head whose logits are all alike would agree with anything.
    assert ours.std(0).min() > 0.01


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize("wrong", [2e-4, float("nan")])
def test_logits_that_differ_are_an_error(
    tiny_model: Path, texts: list[TextExample], wrong: float, monkeypatch
) -> None:
    def open_(side: str, *_given: Any) -> inference.Run:
        value = wrong if side == "transformers" else 0.0
        return lambda examples: np.full((len(examples), 2), value, dtype=np.float32)

    monkeypatch.setattr(inference, "_open", open_)

    with pytest.raises(TidyBertError, match="not done the same work"):
        inference.bench_inference(str(tiny_model), texts, rounds=1, max_seq_length=16)


@pytest.mark.usefixtures("no_processes")
def test_sorted_texts_are_the_same_texts_the_longest_first(
    tiny_model: Path, texts: list[TextExample], monkeypatch
) -> None:
    given: list[list[TextExample]] = []

    def open_(*_given: Any) -> inference.Run:
        def run(examples: Any) -> inference.Logits:
            given.append(list(examples))
            return np.zeros((len(examples), 2), dtype=np.float32)

        return run

    monkeypatch.setattr(inference, "_open", open_)
    inference.bench_inference(str(tiny_model), texts, sides=("ours",), rounds=1, max_seq_length=16)

    warm_up, in_order, by_length = given
    assert warm_up == in_order == texts
    assert by_length[0] is texts[-1]
    assert sorted(one.row for one in by_length) == [one.row for one in texts]
    lengths = [len(one.text.split()) for one in by_length]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.usefixtures("no_processes")
def test_threads_and_random_state_are_put_back(tiny_model: Path, texts: list[TextExample]) -> None:
    before, state = torch.get_num_threads(), torch.get_rng_state()

    result = inference.bench_inference(
        str(tiny_model),
        texts,
        sides=("ours",),
        rounds=1,
        max_seq_length=16,
        threads=before + 1,
    )

    assert result["threads"] == before + 1
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("no_processes")
def test_more_tokens_than_positions_are_refused(tiny_model: Path, texts: list[TextExample]) -> None:
    with pytest.raises(UsageError, match="positions for 32"):
        inference.bench_inference(str(tiny_model), texts, sides=("ours",), max_seq_length=64)
