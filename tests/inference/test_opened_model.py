"""One opened model under the classes that answer: its weights are read and held once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert import (
    Embedder,
    Explainer,
    MaskFiller,
    NextSentencePredictor,
    Predictor,
    TextScorer,
)
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import ConfigError, UsageError, WeightsError
from tidybert.inference.loading import OpenedModel, model_fingerprint
from tidybert.modeling import BertForPreTraining
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.kernels.linear import largest_weight

MODEL = "tidybert-small"
MASKED, PAIR = "the red [MASK] was near", ("the bill is wrong", "please send a new one")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories whose weights were read, as often as they were."""
    found: list[Path] = []
    read = ModelDirectory.tensors

    def counted(directory: ModelDirectory) -> Any:
        found.append(directory.path)
        return read(directory)

    monkeypatch.setattr(ModelDirectory, "tensors", counted)
    return found


def test_heads_of_one_model_have_its_weights_once_and_answer_as_alone(reads: list[Path]) -> None:
    opened = OpenedModel(MODEL, device="cpu", precision="float32")
    assert not reads

    filler, next_sentences = MaskFiller.of(opened), NextSentencePredictor.of(opened)
    embedder, scorer, explainer = (kind.of(opened) for kind in (Embedder, TextScorer, Explainer))

    networks = [filler.model, next_sentences.model, embedder.encoder, scorer.model, explainer.model]
    encoders = [encoder_of(each) for each in networks]
    for part in ("embeddings", "encoder"):
        assert len({id(getattr(each, part)) for each in encoders}) == 1
    assert next_sentences.model.bert.pooler is embedder.encoder.pooler
    assert filler.model.mlm is explainer.model.mlm
    # The head of MaskFiller, what NextSentencePredictor has beside it, and nothing again.
    assert len(reads) == 2
    assert filler.fill([MASKED]) == MaskFiller(MODEL).fill([MASKED])
    first, second = ([each] for each in PAIR)
    assert next_sentences.predict(first, second) == NextSentencePredictor(MODEL).predict(
        first, second
    )
    assert np.array_equal(embedder.embed(PAIR), Embedder(MODEL).embed(PAIR))
    assert embedder.fingerprint == Embedder(MODEL).fingerprint
    assert scorer.score(PAIR) == TextScorer(MODEL).score(PAIR)


def test_a_model_with_both_heads_gives_each_without_another_reading(reads: list[Path]) -> None:
    opened = OpenedModel(MODEL, device="cpu", precision=None)
    whole = opened.whole
    assert isinstance(whole, BertForPreTraining)

    alone = opened.head("BertForMaskedLM")

    assert alone is not None
    assert alone.mlm is whole.mlm
    assert opened.encoder.pooler is whole.bert.pooler
    assert len(reads) == 1


def test_a_part_that_the_weights_lack_is_no_part_of_another_network(tiny_run: Path) -> None:
    opened = OpenedModel(tiny_run, device="cpu")

    assert opened.is_finished
    assert opened.head("BertForMaskedLM") is None
    with pytest.raises(WeightsError, match="has no masked-LM head: its weights lack cls"):
        opened.with_head("BertForMaskedLM")
    assert opened.whole is opened.finished.model
    assert opened.encoder.pooler is encoder_of(opened.whole).pooler
    assert Predictor.of(opened.finished).predict("red") == Predictor(tiny_run).predict("red")


@pytest.mark.skipif(not largest_weight(), reason="no exact 8-bit products here")
def test_float32_beside_int8_reads_the_weights_again(tiny_run: Path) -> None:
    opened = OpenedModel(tiny_run, device="cpu", precision="int8")
    int8 = Predictor.of(opened.finished)
    exact = Predictor.of(opened.in_float32().finished)

    assert (int8.precision, exact.precision) == ("int8", "float32")
    assert encoder_of(int8.model).encoder is not encoder_of(exact.model).encoder
    assert exact.predict("red") == Predictor(tiny_run, device="cpu").predict("red")
    steady = OpenedModel(MODEL, device="cpu", precision="int8")
    assert MaskFiller.of(steady).fill([MASKED]) == MaskFiller(MODEL, precision="int8").fill(
        [MASKED]
    )
    assert NextSentencePredictor.of(steady).model.nsp.is_steady


def test_float32_beside_float32_shares_the_weights(tiny_run: Path) -> None:
    opened = OpenedModel(tiny_run, device="cpu")

    theirs = {each.data_ptr() for each in encoder_of(opened.whole).parameters()}
    ours = {each.data_ptr() for each in encoder_of(opened.in_float32().whole).parameters()}
    plain = encoder_of(opened.in_float32(is_plain=True).whole)

    assert ours == theirs
    assert encoder_of(opened.whole).encoder is encoder_of(opened.in_float32().whole).encoder
    assert len(list(plain.parameters())) > len(ours)
    assert model_fingerprint(plain, opened.tokenizer) == model_fingerprint(
        opened.encoder, opened.tokenizer
    )


def test_a_bert_is_no_language_model_and_a_wrong_precision_is_said_first() -> None:
    from tidybert import TextGenerator

    with pytest.raises(ConfigError, match="is a BERT, which reads both sides"):
        TextGenerator.of(OpenedModel(MODEL))
    with pytest.raises(UsageError, match="precision='int7'"):
        OpenedModel(MODEL, precision="int7")
