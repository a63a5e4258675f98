"""Pickles, and RUN directories written and read by the estimators."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone

from tidybert.errors import DataError, UsageError
from tidybert.estimators import BertClassifier, BertRegressor
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.predictor import Predictor
from tidybert.tasks.classification import Classification
from tidybert.training.training_arguments import TrainingArguments

Data = Callable[..., tuple[list[str], list[str]]]
Quick = dict[str, Any]

WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "pickle": lambda each, _path: pickle.loads(pickle.dumps(each)),
    "deepcopy": lambda each, _path: copy.deepcopy(each),
    "joblib": lambda each, path: joblib.load(joblib.dump(each, path / "model.joblib")[0]),
    "compressed": lambda each, path: joblib.load(
        joblib.dump(each, path / "model.joblib.gz", compress=3)[0]
    ),
    "mapped": lambda each, path: joblib.load(
        joblib.dump(each, path / "model.joblib")[0], mmap_mode="r"
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("error")
def test_a_pickle_predicts_the_same(
    way: str, classifier: BertClassifier, regressor: BertRegressor, toy: Data, tmp_path: Path
) -> None:
    X, y = toy(24, seed=3)
    before = torch.random.get_rng_state()
    there, number = WAYS[way]([classifier, regressor], tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(there.decision_function(X), classifier.decision_function(X))
    np.testing.assert_array_equal(there.predict(X), classifier.predict(X))
    np.testing.assert_array_equal(number.predict(X), regressor.predict(X))
    assert there.get_params() == classifier.get_params()
    assert there.result_ == classifier.result_
    assert there.score(X, y) == classifier.score(X, y)
    assert not there.model_.training


def test_a_pickle_holds_nothing_of_torch(classifier: BertClassifier) -> None:
    content = pickle.dumps(classifier)
    assert b"torch" not in content
    # The tokenizer's cache of seen words stays behind, too.
    weights = sum(each.nbytes for each in classifier.model_.state_dict().values())
    assert len(content) < weights + 20_000


def test_before_fit() -> None:
    estimator = BertClassifier("nowhere", class_weight={"a": 2.0})
    assert pickle.loads(pickle.dumps(estimator)).get_params() == estimator.get_params()


@pytest.mark.parametrize("labels", [["no", "yes"], [9, 10], [False, True], [1.0, 3.0]], ids=str)
def test_save_and_load(quick: Quick, toy: Data, tmp_path: Path, labels: list[Any]) -> None:
    X, names = toy(24)
    y = [labels[name == "colour"] for name in names]
    weights = dict(zip(labels, [1.0, 2.0], strict=True))
    fitted = BertClassifier(**quick, class_weight=weights, validation_fraction=0.25).fit(X, y)
    fitted.save(tmp_path / "new" / "run")
    loaded = BertClassifier.load(tmp_path / "new" / "run", device="cpu")
    assert loaded.classes_.tolist() == labels
    assert [type(each) for each in loaded.classes_.tolist()] == [type(each) for each in labels]
    np.testing.assert_array_equal(loaded.decision_function(X), fitted.decision_function(X))
    assert loaded.get_params() == {
        **fitted.get_params(),
        "model": str(quick["model"]),
        "device": "cpu",
    }
    assert loaded.result_.metrics == fitted.result_.metrics
    assert loaded.n_features_in_ == 1
    again = clone(loaded).fit(X, y)
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    loaded.save(tmp_path / "twice")
    np.testing.assert_array_equal(
        BertClassifier.load(tmp_path / "twice").predict(X), fitted.predict(X)
    )


def test_the_directory_is_a_run(classifier: BertClassifier, toy: Data, tmp_path: Path) -> None:
    X, _ = toy(8, seed=4)
    classifier.save(tmp_path)
    answers = Predictor(tmp_path).predict(X)
    assert [answer["label"] for answer in answers] == classifier.predict(X).tolist()
    np.testing.assert_allclose(
        [list(answer["scores"].values()) for answer in answers], classifier.predict_proba(X)
    )
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments["task"] == "classify"
    assert arguments["learning_rate"] == 1e-2
    assert "device" not in arguments


def test_transformers_opens_it(classifier: BertClassifier, toy: Data, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    X, _ = toy(8, seed=4)
    classifier.save(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        logits = model(**tokenizer(X, padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(
        classifier.decision_function(X), logits[:, 1] - logits[:, 0], atol=1e-5
    )
    assert model.config.id2label == {0: "animal", 1: "colour"}


def test_a_run_of_the_shell(quick: Quick, toy: Data, tmp_path: Path) -> None:
    X, names = toy(24)
    # The shell puts 9 before 10, sorted strings are the other way round.
    labels = [{"animal": "9", "colour": "10"}[name] for name in names]
    examples = [
        TextExample(text, None, label, row)
        for row, (text, label) in enumerate(zip(X, labels, strict=True), start=1)
    ]
    run = tmp_path / "run"
    arguments = TrainingArguments(learning_rate=1e-2, train_batch_size=8)
    task = Classification(["9", "10"])
    run_finetuning(
        FinetuningJob(task, quick["model"], examples, None, arguments, max_seq_length=32, out=run)
    )
    loaded = BertClassifier.load(run)
    assert loaded.classes_.tolist() == ["10", "9"]
    assert loaded.learning_rate == 1e-2
    assert loaded.max_seq_length == 32
    answers = Predictor(run).predict(X)
    assert loaded.predict(X).tolist() == [answer["label"] for answer in answers]
    np.testing.assert_allclose(
        loaded.predict_proba(X),
        [[answer["scores"][name] for name in ("10", "9")] for answer in answers],
    )
    loaded.save(tmp_path / "saved")
    np.testing.assert_array_equal(
        BertClassifier.load(tmp_path / "saved").decision_function(X), loaded.decision_function(X)
    )


def test_a_directory_without_arguments(classifier: BertClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path)
    (tmp_path / "arguments.json").unlink()
    loaded = BertClassifier.load(tmp_path)
    assert loaded.model == str(tmp_path)
    assert loaded.classes_.tolist() == ["animal", "colour"]
    assert loaded.predict(["red"]) == classifier.predict(["red"])


def test_what_cannot_be_loaded(
    classifier: BertClassifier, regressor: BertRegressor, tmp_path: Path
) -> None:
    regressor.save(tmp_path / "regressor")
    with pytest.raises(UsageError, match=r"trained to regress.*load it with BertRegressor\.load"):
        BertClassifier.load(tmp_path / "regressor")
    classifier.save(tmp_path / "classifier")
    with pytest.raises(UsageError, match=r"trained to classify.*BertClassifier\.load"):
        BertRegressor.load(tmp_path / "classifier")


def test_a_directory_with_contents_is_replaced_on_request_alone(
    classifier: BertClassifier, regressor: BertRegressor, tmp_path: Path
) -> None:
    classifier.save(tmp_path / "run")
    with pytest.raises(UsageError, match=r"run is not empty: .* or give force=True to replace"):
        regressor.save(tmp_path / "run")
    regressor.save(tmp_path / "run", force=True)
    assert BertRegressor.load(tmp_path / "run").task_.name == "regress"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(UsageError, match="holds no RUN; force replaces only a RUN"):
        classifier.save(tmp_path / "other", force=True)


def test_numpy_s_scalars_are_saved(quick: Quick, toy: Data, tmp_path: Path) -> None:
    X, names = toy(16)
    y = np.array([3 if name == "colour" else 7 for name in names])
    weights = {np.int64(3): np.float32(0.5), np.int64(7): np.float64(2.0)}
    fitted = BertClassifier(**quick, max_steps=1, class_weight=weights).fit(X, y)
    fitted.save(tmp_path / "run")
    loaded = BertClassifier.load(tmp_path / "run")
    assert loaded.class_weight == {3: 0.5, 7: 2.0}
    assert [answer["label"] for answer in Predictor(tmp_path / "run").predict(X)] == [
        *fitted.predict(X)
    ]


def test_labels_that_json_does_not_know(quick: Quick, toy: Data, tmp_path: Path) -> None:
    X, names = toy(16)
    y = np.array(["2026-01-01" if name == "animal" else "2026-02-01" for name in names])
    fitted = BertClassifier(**quick).set_params(max_steps=1).fit(X, y.astype("datetime64[D]"))
    with pytest.raises(DataError, match=r"of type date, which cannot be saved"):
        fitted.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_of_the_shell_knows_whether_it_takes_pairs(tiny_run: Path) -> None:
    loaded = BertClassifier.load(tiny_run)

    assert loaded.n_features_in_ == 1
    with pytest.raises(DataError, match="fitted on single texts"):
        loaded.predict([("red", "hen")])
