"""Where a model of random weights begins: as drawn, or with what the corpus tells by counting."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import UsageError
from tidybert.system.reporter import Reporter

Small = Callable[..., Any]


def first_step(run: Path) -> dict[str, float]:
    with (run / "metrics.jsonl").open() as lines:
        found: dict[str, float] = json.loads(next(lines))
    assert found["step"] == 1
    return found


def test_words_begin_as_often_as_they_are(small: Small, corpus: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    tell = Reporter(note=notes.append)
    given = {"model": "tiny", "max_steps": 1, "learning_rate": 1e-30, "dropout": 0.0}
    small(tmp_path / "corpus", **given, reporter=tell)
    small(tmp_path / "random", **given, initial_weights="random")

    shards = TokenCorpus(corpus)
    size = int(shards.manifest.vocabulary["vocab_size"])
    ids = shards.tokens(np.array([0]), np.array([shards.num_tokens]))[0]
    counts = np.bincount(ids, minlength=size)
    started, drawn = (read_tensors(tmp_path / name) for name in ("corpus", "random"))
    bias = started["cls.predictions.bias"].numpy()
    np.testing.assert_allclose(bias, np.log((counts + 1) / (counts + 1).sum()), rtol=1e-5)
    assert drawn["cls.predictions.bias"].abs().max() < 1e-20
    # Both losses are those of a model that has learned nothing else.
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log(shares)).sum()
    assert first_step(tmp_path / "corpus")["mlm_loss"] == pytest.approx(entropy, rel=0.15)
    assert first_step(tmp_path / "random")["mlm_loss"] == pytest.approx(np.log(size), rel=0.15)

    words = "bert.embeddings.word_embeddings.weight"
    seen = counts > 0
    assert started[words][seen].std() == pytest.approx(0.05, rel=0.01)
    # The others are the random ones, made as large.
    torch.testing.assert_close(started[words][~seen], drawn[words][~seen] * 2.5)
    assert any(f"{int(seen.sum())} words' embeddings" in line for line in notes)
    assert any(f"in {counts.sum():,} tokens" in line for line in notes)


def test_a_stopped_run_goes_on_from_its_own_weights(small: Small, tmp_path: Path) -> None:
    given = {"model": "tiny", "max_steps": 4, "save_steps": 2, "eval_steps": 4}
    small(tmp_path / "whole", **given)

    def stop(report: Any) -> None:
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "run", **given, reporter=Reporter(step=stop))
    notes: list[str] = []
    small(tmp_path / "run", **given, resume=True, reporter=Reporter(note=notes.append))

    whole, resumed = (read_tensors(tmp_path / name) for name in ("whole", "run"))
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    assert any("resuming after step 2" in note for note in notes)
    # What is gone on with is not counted again.
    assert not any("start from the corpus" in note for note in notes)


def test_weights_that_are_gone_on_with_are_left_as_they_are(small: Small, tmp_path: Path) -> None:
    notes: list[str] = []
    small(tmp_path / "run", max_steps=1, reporter=Reporter(note=notes.append))
    assert not any("start from the corpus" in note for note in notes)
    assert json.loads((tmp_path / "run" / "arguments.json").read_text())["initial_weights"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_lower_case": False}, "do_lower_case is False"),
        ({"strip_accents": False}, "strip_accents is False"),
        # An uncased tokenizer strips accents anyway.
        ({"strip_accents": True}, None),
    ],
)
def test_a_corpus_cased_unlike_the_model_is_refused(
    small: Callable[..., Any],
    tiny_model: Path,
    tmp_path: Path,
    changes: dict[str, bool],
    message: str | None,
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    (model / "tokenizer.json").unlink(missing_ok=True)
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**settings, **changes}))

    if message is None:
        small(tmp_path / "run", model=model, max_steps=1)
        return
    with pytest.raises(UsageError, match=rf"other tokenizers \(.*{message}.* alone\)"):
        small(tmp_path / "run", model=model, max_steps=1)
