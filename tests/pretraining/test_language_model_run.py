"""train-lm: it learns, its RUN is a language model alone, and it resumes with the same bits."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import tidybert
from tidybert.checkpoints.unfinished import find_unfinished
from tidybert.errors import ConfigError, UsageError
from tidybert.inference.predictor import Predictor
from tidybert.pretraining import pretraining_run as language_model_run
from tidybert.pretraining.batches.instance_options import NextTokenOptions
from tidybert.pretraining.pretraining_arguments import LanguageModelArguments
from tidybert.pretraining.pretraining_job import PretrainingJob
from tidybert.pretraining.pretraining_run import run_pretraining
from tidybert.system.reporter import Reporter
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.reports import StepReport

TEXT = "the red cat saw\nthe old dog\n\nwe don't see a hen in 1,000 days\n"


def train(data: Path, run: Path, **given: Any) -> Any:
    arguments = LanguageModelArguments(
        max_steps=given.pop("max_steps", 8), tokens_per_step=64, eval_tokens=64, eval_steps=4,
        save_steps=3, dropout=given.pop("dropout", 0.0),
    )  # fmt: skip
    options = NextTokenOptions(max_seq_length=32, positions=given.pop("positions", "sinusoidal"))
    size = given.pop("model", "transformer-tiny")
    reporter = given.pop("reporter", None)
    job = PretrainingJob(size, data, arguments, instances=options, out=run, device="cpu", **given)
    return run_pretraining(job, reporter)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    (folder / "text.txt").write_text(TEXT)
    result = train(folder / "text.txt", folder / "run", max_steps=80)
    assert result.metrics["lm_accuracy"] > 0.9
    return folder / "run"


def test_text_is_learnt_and_said(run: Path) -> None:
    generator = tidybert.TextGenerator(run)

    assert generator.generate("The red")["text"] == "the red cat saw the old dog"
    assert json.loads((run / "config.json").read_text())["model_type"] == "causal-lm"
    assert "tidybert generate run" in (run / "README.md").read_text()
    assert "Training text" in (run / "README.md").read_text()
    assert not generator.tokenizer.special_tokens_in_text


def test_nothing_takes_it_for_a_bert(run: Path, tiny_model: Path) -> None:
    import transformers

    with pytest.raises(ValueError, match="causal-lm"):
        transformers.AutoModel.from_pretrained(run)
    for opens in (tidybert.load, tidybert.MaskFiller, Predictor):
        with pytest.raises(ConfigError, match="is a language model"):
            opens(run)
    with pytest.raises(ConfigError, match="is a BERT, which reads both sides"):
        tidybert.TextGenerator(tiny_model)


@pytest.mark.parametrize(("positions", "dropout"), [("sinusoidal", 0.0), ("learned", 0.1)])
def test_a_stopped_run_ends_with_the_same_bits(
    positions: str, dropout: float, corpus: Path, tmp_path: Path
) -> None:
    given: Any = {"positions": positions, "dropout": dropout}

    def stop(done: StepReport) -> None:
        if done.step == 5:
            signal.raise_signal(signal.SIGTERM)

    whole = train(corpus, tmp_path / "whole", **given)
    with pytest.raises(TrainingInterrupted):
        train(corpus, tmp_path / "run", reporter=Reporter(step=stop), **given)
    unfinished = find_unfinished(tmp_path / "run")
    assert unfinished is not None
    assert unfinished.command().startswith("tidybert train-lm --config ")
    train(corpus, tmp_path / "run", resume=True, **given)

    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]
    assert whole.metrics["lm_loss"] < 3.0


def test_what_does_not_fit_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    for data, match, given in (
        (corpus, "vocab='mini' goes with text", {"vocab": "mini"}),
        (corpus, "held_out=0.1 goes with text", {"held_out": 0.1}),
        (corpus, "expected one of transformer-tiny, transformer-mini", {"model": "mini"}),
    ):
        with pytest.raises(UsageError, match=match):
            train(data, tmp_path / "run", **given)
    monkeypatch.setattr(language_model_run, "MOST_WORDS", 3)
    with pytest.raises(UsageError, match="has 18 different words"):
        train(tmp_path / "text.txt", tmp_path / "run")
    with pytest.raises(UsageError, match="begins with random weights"):
        LanguageModelArguments(initial_weights="corpus")
