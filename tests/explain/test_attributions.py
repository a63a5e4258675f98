"""Attributions: sums that must come out, predictions that must change, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert import Explainer, MaskFiller, Predictor
from tidybert.checkpoints.example_kinds import KINDS
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import save_model_directory
from tidybert.configuration import BertConfig
from tidybert.data.batching import collate
from tidybert.errors import DataError, UsageError, WeightsError
from tidybert.modeling.encoder import LowerStates
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tokenization import BertTokenizer

TEXT = "the red hen was near a dog"


def log_odds(probability: float) -> float:
    return float(np.log(probability / (1 - probability)))


@pytest.fixture(scope="module")
def explainer(tiny_run: Path) -> Explainer:
    return Explainer(tiny_run)


@pytest.fixture
def untrained(
    tmp_path: Path, tiny_config: Callable[..., BertConfig], tiny_model: Path
) -> Callable[..., Path]:
    """Makes a RUN of a task with random weights."""

    def make(task: Any, inputs: str) -> Path:
        torch.manual_seed(0)
        config = tiny_config()
        save_model_directory(
            tmp_path / task.name,
            model_state=task.build_model(config).state_dict(),
            config=config,
            tokenizer=BertTokenizer.from_pretrained(tiny_model),
            metadata=ModelMetadata(
                task.name, task.label_names, 32, inputs=KINDS[inputs], settings=task.settings()
            ),
            architecture=task.architecture,
        )
        return tmp_path / task.name

    return make


def test_integrated_gradients_add_up_to_the_difference_of_the_scores(
    explainer: Explainer, tiny_run: Path
) -> None:
    found = explainer.attributions(TEXT, steps=100)
    (answer,) = Predictor(tiny_run, device="cpu").predict([TEXT])

    assert found.target == answer["label"]
    assert found.score == pytest.approx(log_odds(answer["score"]), abs=1e-3)
    total = float(found.values.sum())
    assert total == pytest.approx(found.score - found.baseline_score, abs=1e-3)
    assert found.completeness_gap == pytest.approx(
        found.score - found.baseline_score - total, abs=1e-5
    )
    assert abs(found.completeness_gap) < 1e-3
    assert found.values[0] == found.values[-1] == 0  # [CLS] and [SEP] are in the baseline too
    assert [word.text for word in found.words] == TEXT.split()
    np.testing.assert_allclose(found.word_values, found.values[1:-1])
    assert "with a gap of" in str(found)
    # The default is close; a single point is too few, and the result says so.
    near = explainer.attributions(TEXT)
    assert abs(near.completeness_gap) < 0.005 * abs(near.score - near.baseline_score)
    rough = explainer.attributions(TEXT, steps=1)
    assert abs(rough.completeness_gap) > 0.05 * abs(found.score - found.baseline_score)
    assert "the gap is wide: take more steps" in str(rough)


class Inside:
    """The tiny RUN's own score of TEXT, from the output of its embeddings."""

    def __init__(self, explainer: Explainer, target: str) -> None:
        assert explainer.predictor is not None
        self.predictor, self.embeddings = explainer.predictor, explainer.encoder.embeddings
        task = self.predictor.task
        (self.features,) = task.features(task.from_texts([TEXT], None), explainer.tokenizer, 32)
        self.chosen = task.label_ids[target]

    def embedded(self, **changes: Any) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = self.embeddings(collate([replace(self.features, **changes)]).rows)
        return found

    def score(self, embedded: torch.Tensor) -> torch.Tensor:
        rows = collate([self.features]).rows
        logits = self.predictor.model(rows, lower_states=LowerStates(embedded, 0))[0]
        difference: torch.Tensor = logits[self.chosen] - logits[1 - self.chosen]
        return difference / self.predictor.task.temperature


def test_integrated_gradients_are_the_integral(explainer: Explainer) -> None:
    found = explainer.attributions(TEXT, steps=100)
    inside = Inside(explainer, found.target)
    ids = inside.features.input_ids.copy()
    ids[1:-1] = explainer.tokenizer.pad_token_id
    at_input, baseline = inside.embedded(), inside.embedded(input_ids=ids)
    total = torch.zeros(at_input.shape)
    for step in range(100):
        point = (baseline + (step + 0.5) / 100 * (at_input - baseline)).requires_grad_()
        inside.score(point).backward()
        total += point.grad / 100

    expected = (total * (at_input - baseline)).sum(1)
    np.testing.assert_allclose(found.values, expected.numpy(), atol=2e-3)


def test_gradient_x_input_is_the_slope_of_the_score_as_the_input_grows(
    explainer: Explainer,
) -> None:
    found = explainer.attributions(TEXT, method="gradient-x-input")
    inside = Inside(explainer, found.target)
    with torch.no_grad():
        low, full, high = (
            float(inside.score(scale * inside.embedded())) for scale in (0.99, 1.0, 1.01)
        )

    assert float(found.values.sum()) == pytest.approx((high - low) / 0.02, rel=0.02, abs=1e-3)
    assert found.completeness_gap is found.baseline_score is None
    assert found.score == pytest.approx(full, abs=1e-4)


def test_leaving_a_word_out_is_running_the_text_without_it(
    explainer: Explainer, tiny_run: Path
) -> None:
    found = explainer.attributions(TEXT, method="leave-one-out", target="animal")
    words = TEXT.split()
    shorter = [" ".join(words[:at] + words[at + 1 :]) for at in range(len(words))]
    full, *without = (
        log_odds(each["scores"]["animal"])
        for each in Predictor(tiny_run, device="cpu").predict([TEXT, *shorter])
    )

    assert found.score == pytest.approx(full, abs=1e-3)
    np.testing.assert_allclose(found.word_values, [full - each for each in without], atol=1e-3)
    assert np.isnan(found.values).all()


def test_the_word_at_a_mask(pretrained: Callable[[str], tuple[Path, Any]]) -> None:
    directory, _ = pretrained("BertForMaskedLM")
    explainer = Explainer(directory)
    (filled,) = MaskFiller(directory, device="cpu").fill(["the [MASK] dog saw a hen"])
    (without,) = MaskFiller(directory, device="cpu").fill(["[MASK] dog saw a hen"], top_k=24)
    best = filled["masks"][0]["words"][0]

    found = explainer.attributions("the [MASK] dog saw a hen")
    left = explainer.attributions("the [MASK] dog saw a hen", method="leave-one-out")

    assert found.target == left.target == best["word"]
    assert found.score == pytest.approx(log_odds(best["probability"]), abs=1e-3)
    assert abs(found.completeness_gap) < 1e-2
    assert found.values[2] == 0  # the baseline has the [MASK]
    assert np.isnan(left.word_values[1])
    words = {each["word"]: each["probability"] for each in without["masks"][0]["words"]}
    change = log_odds(best["probability"]) - log_odds(words[best["word"]])
    assert left.word_values[0] == pytest.approx(change, abs=1e-3)
    # The last of two masks.
    (filled,) = MaskFiller(directory, device="cpu").fill(["the [MASK] dog saw a [MASK]"])
    last = filled["masks"][1]["words"][0]
    found = explainer.attributions("the [MASK] dog saw a [MASK]", at=(21, 27))
    assert found.target == last["word"]
    assert found.score == pytest.approx(log_odds(last["probability"]), abs=1e-3)


def test_labels_scores_and_answers_of_other_tasks(untrained: Callable[..., Path]) -> None:
    run = untrained(MultiLabelClassification(["a", "b", "c"], temperature=2.0), "text")
    (answer,) = Predictor(run, device="cpu").predict([TEXT])
    found = Explainer(run).attributions(TEXT, target="b")
    assert found.score == pytest.approx(log_odds(answer["scores"]["b"]), abs=1e-4)
    assert abs(found.completeness_gap) < 1e-3

    run = untrained(Regression(), "pair")
    (answer,) = Predictor(run, device="cpu").predict(["a red hen"], ["the dog"])
    found = Explainer(run).attributions("a red hen", "the dog", method="leave-one-out")
    assert found.score == pytest.approx(answer["value"], abs=1e-5)
    assert [(word.sequence_id, word.text) for word in found.words][-1] == (1, "dog")

    run = untrained(QuestionAnswering(no_answers=False, max_query_length=8), "question")
    (answer,) = Predictor(run, device="cpu").predict(["was a dog near"], ["the red hen saw a cow"])
    found = Explainer(run).attributions("was a dog near", "the red hen saw a cow")
    assert found.target == answer["answer"]
    assert abs(found.completeness_gap) < 1e-3


def test_the_tag_of_a_word(untrained: Callable[..., Path]) -> None:
    run = untrained(Tagging(["O", "NN", "VB"], temperature=0.5), "words")
    (answer,) = Predictor(run, device="cpu").predict([TEXT])

    found = Explainer(run).attributions(TEXT, at=(8, 11), method="leave-one-out")

    assert found.target == answer["tags"][2]
    assert found.score == pytest.approx(log_odds(answer["scores"][2]), abs=1e-4)
    assert np.isnan(found.word_values).tolist() == [at == 2 for at in range(7)]
    (shorter,) = Predictor(run, device="cpu").predict([TEXT.removeprefix("the ")])
    tag, without = shorter["tags"][1], log_odds(shorter["scores"][1])
    same = Explainer(run).attributions(TEXT, at=(8, 11), method="leave-one-out", target=tag)
    assert same.word_values[0] == pytest.approx(same.score - without, abs=1e-3)
    other = Explainer(run).attributions(TEXT, at=(8, 11), target="VB")
    assert abs(other.completeness_gap) < 1e-3


def test_what_is_refused(
    explainer: Explainer, untrained: Callable[..., Path], tiny_model: Path,
    pretrained: Callable[[str], tuple[Path, Any]],
) -> None:  # fmt: skip
    filler = Explainer(pretrained("BertForMaskedLM")[0])
    tagger = Explainer(untrained(Tagging(["O", "B-X", "I-X"]), "words"))
    chooser = Explainer(untrained(MultipleChoice(), "choices"))

    def ask(one: Explainer, *given: Any, **named: Any) -> Callable[[], object]:
        return lambda: one.attributions(*given, **named)

    for call, kind, message in (
        (ask(explainer, TEXT, target="colours"), UsageError, "mean 'colour'"),
        (ask(explainer, TEXT, method="saliency"), UsageError, "expected one of"),
        (ask(explainer, TEXT, method="leave-one-out", steps=3), UsageError, "steps has no meaning"),
        (ask(explainer, TEXT, steps=0), UsageError, "at least 1"),
        (ask(explainer, "red " * 40), DataError, "42 tokens.*at most"),
        (ask(tagger, TEXT), UsageError, "characters of one with at"),
        (ask(tagger, TEXT, at=(3, 4)), DataError, "3 to 4 have no token"),
        (ask(explainer, TEXT, at=(0, 3)), UsageError, "does not tag"),
        (ask(chooser, "a", "b"), DataError, "trained to choose"),
        (ask(filler, "no gap"), DataError, r"are 0 \[MASK\]"),
        (ask(filler, "[MASK] [MASK]"), DataError, r"are 2 \[MASK\]"),
        (ask(filler, "a [MASK]", target="redhen"), UsageError, "one token"),
        (ask(Explainer(tiny_model), "a [MASK]"), WeightsError, "no masked-LM"),
    ):
        with pytest.raises(kind, match=message):
            call()
