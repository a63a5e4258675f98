"""No label below a score: how the score is chosen, kept, told, and read by others."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.fixed_outputs import dicts_of, examples_of, make_features, rows_of

from tidybert import BertClassifier, Predictor, evaluate, finetune
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.cli.main import run as shell
from tidybert.errors import DataError, UsageError
from tidybert.metrics.calibration import ANSWERS_NONE, fewest_for, score_for
from tidybert.tasks.answer import Classified
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.task_options import ClassOptions

SURE = [0.99, 0.9, 0.8, 0.7, 0.6]


def test_the_score_of_a_coverage_is_the_highest_that_reaches_it() -> None:
    assert score_for(SURE, [1] * 5, min_coverage=0.6) == 0.8
    assert score_for(SURE, [1] * 5, min_coverage=0.61) == 0.7
    assert score_for(SURE, [1] * 5, min_coverage=1.0) == 0.6


def test_the_score_of_an_accuracy_needs_enough_right_answers() -> None:
    needed = fewest_for(None, 0.95)
    assert needed == 32
    sure = np.linspace(0.99, 0.5, 100)

    assert score_for(sure[:needed], np.ones(needed), min_accuracy=0.95) == sure[needed - 1]
    assert score_for(sure[: needed - 1], np.ones(needed - 1), min_accuracy=0.95) == ANSWERS_NONE
    # The last forty are wrong.
    chosen = score_for(sure, np.arange(100) < 60, min_accuracy=0.9)
    assert sure[59] >= chosen > sure[66]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_what_is_chosen_is_reached(rows: list[tuple[float, bool]]) -> None:
    sure, right = (np.array(each, dtype=float) for each in zip(*rows, strict=True))

    covered = score_for(sure, right, min_coverage=0.7)
    exact = score_for(sure, right, min_accuracy=0.7)

    assert (sure >= covered).mean() >= 0.7 - 1e-9
    assert (sure > covered).mean() < 0.7
    assert exact == ANSWERS_NONE or right[sure >= exact].mean() >= 0.7


def test_answers_below_the_score_have_no_label() -> None:
    task = Classification(["a", "b"]).with_min_score(0.8)
    features, examples = make_features(3), examples_of("a", "b", "b")
    task.add_labels(features, examples)

    answers = task.answers(rows_of([[3, 0], [0, 0.5], [4, 0]]), features, examples)

    assert [each["label"] for each in dicts_of(answers)] == ["a", None, "a"]
    assert [each.cells()["label"] for each in answers.predictions()] == ["a", "(none)", "a"]
    found = answers.metrics()
    assert (found["min_score"], found["accuracy"]) == (0.8, pytest.approx(2 / 3))
    assert (found["coverage"], found["answered_accuracy"]) == (pytest.approx(2 / 3), 0.5)
    assert answers.metrics(np.array([1])).items() >= {"coverage": 0.0}.items()


def test_an_accuracy_that_no_score_reaches_gives_no_label(caplog: Any) -> None:
    task = Classification(["a", "b"], options=ClassOptions(min_accuracy=0.9))
    features, examples = make_features(40), examples_of(*["a", "b"] * 20)
    task.add_labels(features, examples)

    found = task.calibrated(task.answers(rows_of([[3, 0]] * 40), features, examples))

    assert found.min_score == ANSWERS_NONE
    assert "no score reaches an accuracy of 0.9 on dev" in caplog.text


def test_an_answer_takes_another_score() -> None:
    answer = Classified("a", 0.7, {"b": 0.3, "a": 0.7})

    assert answer.from_score(0.8).label is None
    assert answer.from_score(0.8).from_score(0.7) == answer == answer.from_score(None)
    assert answer.from_score(0.8).with_values({"a": 1, "b": 2}).own() == {
        "label": None, "score": 0.7, "scores": {2: 0.3, 1: 0.7},
    }  # fmt: skip


def test_only_classes_have_a_score() -> None:
    with pytest.raises(UsageError, match="min_score is for models that give one label"):
        MultiLabelClassification(["a", "b"]).with_min_score(0.5)
    with pytest.raises(UsageError, match="min_score is 2; expected a fraction from 0 to 1"):
        Classification(["a", "b"]).with_min_score(2)
    with pytest.raises(UsageError, match="min_coverage and min_accuracy both choose a score"):
        ClassOptions(min_coverage=0.5, min_accuracy=0.5)


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, toy_examples: Callable[..., Any]
) -> Path:
    """A RUN with a score, which few steps leave unsure."""
    out = tmp_path_factory.mktemp("runs") / "unsure"
    train, dev = ([(one.text, one.label) for one in toy_examples(n, seed=n)] for n in (96, 64))
    finetune(
        train, model=tiny_model, dev=dev, out=out, min_coverage=0.5, max_steps=18,
        train_batch_size=16, head_start="random", learning_rate=1e-2, max_seq_length=16,
    )  # fmt: skip
    return out


def test_a_run_keeps_the_score_of_its_training(
    run: Path, toy_examples: Callable[..., Any], tmp_path: Path, capsys: Any
) -> None:
    dev = [(one.text, one.label) for one in toy_examples(64, seed=64)]
    texts = [text for text, _ in dev]
    stored = json.loads((run / "tidybert.json").read_text())

    answers = Predictor(run).predict(texts)

    score = stored["metrics"]["min_score"]
    assert [each["label"] is None for each in answers] == [
        each["score"] < score for each in answers
    ]
    assert 32 <= sum(each["label"] is not None for each in answers) < 64
    assert None not in [each["label"] for each in Predictor(run, min_score=0.0).predict(texts)]
    assert Predictor(run, min_score=0.0).fingerprint != Predictor(run).fingerprint
    found = evaluate(run, dev, report=tmp_path / "report")
    assert found["coverage"] >= 0.5
    page = (tmp_path / "report" / "report.html").read_text()
    shown = re.search(r"From a score of ([\d.]+) on", page)
    # It is rounded down, so that the score itself passes.
    assert shown is not None
    assert 0 <= score - float(shown[1]) < 0.01
    assert shell(["predict", str(run), "--input", texts[0], "--min-score", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] is None


def test_other_programs_read_a_run_with_a_score(run: Path) -> None:
    import transformers

    auto = transformers.AutoModelForSequenceClassification.from_pretrained(run)
    assert auto.config.id2label == {0: "animal", 1: "colour"}
    # An older tidybert refuses a setting that it does not know, and passes over a metric.
    assert json.loads((run / "tidybert.json").read_text())["settings"].keys() == {"temperature"}


def test_a_score_is_kept_without_a_dev_part(tmp_path: Path) -> None:
    task = Classification(["a", "b"]).with_min_score(0.8)
    written = ModelMetadata("classify", task.names, settings=task.settings()).write(tmp_path)
    read = ModelMetadata.read(tmp_path)
    assert read is not None
    assert read.settings == written.settings
    assert Classification.from_metadata(read).min_score == 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"min_accuracy": 0.95},
            "min_accuracy=0.95 needs 32 dev examples to know, and there are 8",
        ),
        ({"min_coverage": 0.5}, "min_coverage=0.5 needs 20 dev examples to know, and there are 8"),
    ],
)
def test_too_few_dev_texts_are_refused(
    tiny_model: Path, toy_examples: Callable[..., Any], options: Any, message: str
) -> None:
    rows = [(one.text, one.label) for one in toy_examples(40)]

    with pytest.raises(DataError, match=message):
        finetune(rows[8:], model=tiny_model, dev=rows[:8], max_seq_length=16, **options)


def test_an_estimator_predicts_none(
    tiny_model: Path, toy_examples: Callable[..., Any], tmp_path: Path
) -> None:
    texts, labels = zip(*((one.text, one.label) for one in toy_examples(64)), strict=True)
    quick = {"max_steps": 9, "head_start": "random", "learning_rate": 1e-2, "max_seq_length": 16}

    half = {"min_coverage": 0.5, "validation_fraction": 0.5}
    fitted = BertClassifier(tiny_model, **half, **quick).fit(texts, labels)

    predicted = fitted.predict(texts)
    given = fitted.predict_proba(texts).max(1) >= fitted.task_.min_score
    assert 0 < given.sum() < 64
    assert [each is not None for each in predicted] == given.tolist()
    assert fitted.score(texts, labels) == np.mean(predicted == np.array(labels))
    fitted.save(tmp_path / "run")
    assert BertClassifier.load(tmp_path / "run").predict(texts).tolist() == predicted.tolist()
    with pytest.raises(UsageError, match="min_score is for models that give one label"):
        BertClassifier(tiny_model, min_score=0.6, **quick).fit(["a", "b"], [[0, 1], [1, 0]])
