"""BertClassifier: fitting, predicting, weights, the part held out, and scikit-learn's tools."""

import csv
import pickle
import re
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tidybert.errors import (
    DataError,
    DataWarning,
    ModelNotFoundError,
    TruncationWarning,
    UsageError,
)
from tidybert.estimators import BertClassifier, BertRegressor
from tidybert.training.interruption import TrainingInterrupted

Data = Callable[..., tuple[list[str], list[str]]]
Quick = dict[str, Any]


def same_bits(a: BertClassifier, b: BertClassifier) -> bool:
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_learns_and_predicts(classifier: BertClassifier, toy: Data) -> None:
    X, y = toy(40, seed=1)
    assert classifier.score(X, y) >= 0.9
    assert classifier.classes_.tolist() == ["animal", "colour"]
    assert classifier.n_features_in_ == 1
    assert classifier.result_.num_steps == 90
    predictions = classifier.predict(X)
    assert predictions.shape == (40,)
    assert predictions.dtype == classifier.classes_.dtype
    probabilities = classifier.predict_proba(X)
    assert probabilities.shape == (40, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(classifier.classes_[probabilities.argmax(1)], predictions)
    np.testing.assert_allclose(classifier.predict_log_proba(X), np.log(probabilities), rtol=1e-6)
    decision = classifier.decision_function(X)
    assert decision.shape == (40,)
    np.testing.assert_allclose(1 / (1 + np.exp(-decision)), probabilities[:, 1], rtol=1e-6)


def test_three_classes(thorough: Quick) -> None:
    X = ["red and red", "the old cat", "saw under"] * 16
    y = [2, 0, 1] * 16
    fitted = BertClassifier(**thorough).fit(X, y)
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.predict(X[:3]).tolist() == [2, 0, 1]
    assert fitted.decision_function(X[:3]).shape == (3, 3)
    np.testing.assert_array_equal(
        fitted.decision_function(X).argmax(1), fitted.predict_proba(X).argmax(1)
    )


@pytest.mark.parametrize(
    "labels",
    [
        ["no", "yes"],
        [3, 7],
        [False, True],
        [0.0, 1.0],
        np.array([3, 7], dtype=np.int8),
        np.array(["no", "yes"], dtype=object),
        np.array(["2026-01-01", "2026-02-01"], dtype="datetime64[D]"),
    ],
    ids=["str", "int", "bool", "float", "int8", "object", "date"],
)
def test_labels_keep_their_type(quick: Quick, toy: Data, labels: Any) -> None:
    X, y = toy(16)
    given = np.asarray(labels)[[name == "colour" for name in map(str, y)] * np.array(1)]
    if isinstance(labels, list):
        given = given.tolist()
    fitted = BertClassifier(**quick).set_params(max_steps=1).fit(X, given)
    assert fitted.classes_.tolist() == list(np.asarray(labels).tolist())
    assert fitted.predict(X).dtype == np.asarray(labels).dtype
    assert set(fitted.predict(X).tolist()) <= set(np.asarray(labels).tolist())


def test_pairs(thorough: Quick) -> None:
    pairs = [("red", "cat"), ("cat", "red"), ("blue", "dog"), ("dog", "blue")] * 12
    y = ["first", "second"] * 24
    fitted = BertClassifier(**thorough).fit(pairs, y)
    assert fitted.n_features_in_ == 2
    assert fitted.score(pairs, y) == 1.0
    array = np.array(pairs, dtype=object)
    np.testing.assert_array_equal(fitted.decision_function(array), fitted.decision_function(pairs))
    assert same_bits(clone(fitted).fit(array, y), fitted)
    with pytest.raises(DataError, match=r"X holds single texts, but .* was fitted on pairs"):
        fitted.predict(["red"])


def test_a_series_does_as_a_list(quick: Quick, toy: Data) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = toy(32)
    index = np.arange(32)[::-1]
    other = BertClassifier(**quick).fit(
        pandas.Series(X, index=index), pandas.Series(y, index=index, dtype="category")
    )
    assert same_bits(other, BertClassifier(**quick).fit(X, y))
    assert other.classes_.tolist() == ["animal", "colour"]


def test_a_prediction_does_not_depend_on_the_batch(classifier: BertClassifier, toy: Data) -> None:
    X, _ = toy(20, seed=2)
    together = classifier.decision_function(X)
    alone = np.concatenate([classifier.decision_function([text]) for text in X])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(classifier.decision_function(X[::-1])[::-1], together, atol=1e-5)
    np.testing.assert_array_equal(classifier.decision_function(X), together)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"learning_rate": -1.0}, UsageError, "^learning_rate is -1.0; expected a number above 0"),
        ({"num_train_epochs": -1}, UsageError, "^num_train_epochs is -1"),
        ({"max_seq_length": 2}, UsageError, "^max_seq_length=2 leaves no room for text"),
        ({"max_seq_length": 512}, UsageError, "^max_seq_length is 512, but the model has"),
        ({"freeze_layers": 3}, UsageError, "^freeze_layers is 3, but the model has 2 layers"),
        ({"device": "gpu"}, UsageError, "device='gpu': expected auto, cpu, cuda"),
        ({"model": "nowhere"}, ModelNotFoundError, "no directory and no model is named 'nowhere'"),
        ({"model": "tiny"}, UsageError, "name one with vocab MODEL"),
        ({"validation_fraction": 1.5}, UsageError, "^validation_fraction is 1.5: expected 0"),
        (
            {"early_stopping_patience": 2, "validation_fraction": 0.0},
            UsageError,
            "set validation_fraction",
        ),
        ({"class_weight": "blanced"}, ValueError, "blanced"),
        ({"class_weight": {"colur": 2.0}}, ValueError, "are not in class_weight"),
        ({"class_weight": {"colour": 0.0}}, DataError, "class_weight of 'colour' is 0.0"),
    ],
)
def test_parameters_that_cannot_be(
    quick: Quick, toy: Data, parameters: dict[str, Any], error: type[Exception], message: str
) -> None:
    estimator = BertClassifier(**{**quick, **parameters})
    with pytest.raises(error, match=message):
        estimator.fit(*toy(16))
    assert not hasattr(estimator, "model_")


def test_a_size_with_random_weights(quick: Quick, toy: Data) -> None:
    random = {**quick, "model": "tiny", "vocab": quick["model"], "max_steps": 1}
    assert BertClassifier(**random).fit(*toy(8)).model_.config.hidden_size == 128


def test_truncation_is_told(classifier: BertClassifier, quick: Quick, toy: Data) -> None:
    X, y = toy(16)
    X[3] = "red " * 40
    short = BertClassifier(**quick).set_params(max_steps=1)
    message = r"longer than max_seq_length=32 .* 1 of 16 train .*max_seq_length=42 would keep"
    with pytest.warns(TruncationWarning, match=message) as warned:
        short.fit(X, y)
    assert warned[0].filename == __file__
    with pytest.warns(TruncationWarning, match="1 of 2 examples are longer than max_seq_length"):
        classifier.predict([X[3], "cat"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.predict([X[3], "cat"])
    assert "learning_rate" in classifier._repr_html_()


def test_class_weights_are_sample_weights(quick: Quick, toy: Data) -> None:
    X, y = toy(24)
    X, y = X[:18] + X[19::2], y[:18] + y[19::2]
    counts = Counter(y)
    balanced = {label: len(y) / (2 * count) for label, count in counts.items()}
    assert balanced["animal"] != balanced["colour"]
    by_name = BertClassifier(**quick, class_weight="balanced").fit(X, y)
    by_dict = BertClassifier(**quick, class_weight=balanced).fit(X, y)
    by_example = BertClassifier(**quick).fit(X, y, sample_weight=[balanced[label] for label in y])
    assert same_bits(by_name, by_dict)
    assert same_bits(by_name, by_example)
    assert not same_bits(by_name, BertClassifier(**quick).fit(X, y))


def test_classes_without_a_weight_are_none(quick: Quick, toy: Data) -> None:
    X, y = toy(24)
    only_animals = [float(label == "animal") for label in y]
    with pytest.raises(DataError, match="y has one class only, 'animal'"):
        BertClassifier(**quick).fit(X, y, sample_weight=only_animals)


def test_sample_weights_decide_between_contradictions(thorough: Quick) -> None:
    X, y = ["red"] * 32, ["a", "b"] * 16
    for favoured in ("a", "b"):
        weights = [10.0 if label == favoured else 0.1 for label in y]
        fitted = BertClassifier(**thorough).fit(X, y, sample_weight=weights)
        assert fitted.predict(["red"]) == favoured


def test_the_part_held_out_chooses_the_weights(quick: Quick, toy: Data) -> None:
    X, y = toy(48)
    stopped = BertClassifier(
        **{**quick, "num_train_epochs": 50},
        validation_fraction=0.25,
        eval_steps=2,
        early_stopping_patience=2,
    ).fit(X, y)
    result = stopped.result_
    assert result.stopped_early
    assert result.num_steps == result.best_step + 4
    assert {"accuracy", "macro_f1", "matthews"} <= set(result.metrics)
    with_nothing = BertClassifier(**quick).fit(X, y)
    assert with_nothing.result_.metrics == {}
    assert with_nothing.result_.best_step == with_nothing.result_.num_steps


def test_nothing_to_hold_out(quick: Quick) -> None:
    with pytest.raises(DataError, match=r"^validation_fraction is 0.5, but 2 examples are too few"):
        BertClassifier(**quick, validation_fraction=0.5).fit(["red", "cat"], ["a", "b"])


def test_frozen_parts_stay_as_they_are(quick: Quick, toy: Data) -> None:
    fitted = BertClassifier(**quick, freeze_layers=1).fit(*toy(24))
    other = BertClassifier(**quick, freeze_layers=1, seed=1).fit(*toy(24, seed=1))
    ours, theirs = fitted.model_.state_dict(), other.model_.state_dict()
    frozen = [name for name in ours if torch.equal(ours[name], theirs[name])]
    assert [name for name in ours if "embeddings" in name or "layers.0." in name] == frozen


def test_verbose_tells_on_stderr(
    quick: Quick, toy: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = toy(40)
    X[7] = " "
    silent = BertClassifier(**quick, validation_fraction=0.2)
    with pytest.warns(DataWarning, match=r"an empty text \(position 7\)") as warned:
        silent.fit(X, y)
    assert warned[0].filename == __file__
    assert capsys.readouterr() == ("", "")
    with pytest.warns(DataWarning, match=r"an empty text \(position 7\)"):
        clone(silent).set_params(verbose=1).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"tensors (0.0 M parameters) from {quick['model']}" in err
    assert "warning" not in err
    assert "step 4 of 4: loss 0." in err
    assert re.search(r"step 2: accuracy \d\.\d{4}, macro_f1 \d\.\d{4}, matthews", err)


def without_signs(texts: list[str]) -> list[str]:
    return [text.replace("#", " ") for text in texts]


def test_a_pipeline_with_texts_before(quick: Quick, toy: Data) -> None:
    X, y = toy(32)
    signed = [text.replace(" ", "#") for text in X]
    pipeline = make_pipeline(FunctionTransformer(without_signs), BertClassifier(**quick))
    weights = np.linspace(1, 2, 32)
    pipeline.fit(signed, y, bertclassifier__sample_weight=weights)
    bare = BertClassifier(**quick).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(pipeline.predict_proba(signed), bare.predict_proba(X))
    assert pipeline.score(signed, y) == bare.score(X, y)


def test_a_grid_of_numpy_numbers(quick: Quick, toy: Data) -> None:
    X, y = toy(32)
    grid = {"learning_rate": np.array([1e-3, 1e-2]), "train_batch_size": np.array([8])}
    search = GridSearchCV(BertClassifier(**quick), grid, cv=2, n_jobs=1).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["learning_rate"] in grid["learning_rate"]
    assert search.best_estimator_.result_.num_steps == 8


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_ends_more_than_one_fit(
    quick: Quick,
    toy: Data,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    error: type[BaseException],
) -> None:
    def interrupted(*_arguments: Any, **_options: Any) -> None:
        raise TrainingInterrupted("stopped after step 1 of 8", number)

    monkeypatch.setattr("tidybert.estimators.base.run_finetuning", interrupted)
    with pytest.raises(error) as caught:
        cross_val_score(BertClassifier(**quick), *toy(16), cv=2)
    assert str(caught.value) in ("stopped after step 1 of 8", "143")


@pytest.mark.parametrize("long", ["truncate", "head-tail", "windows"])
def test_long_texts(long: str, quick: Quick, toy: Data, tmp_path: Path) -> None:
    X, y = toy(16)
    X = [f"{text} {'the old and new ' * 4}" for text in X]
    scores = [float(name == "colour") for name in y]
    given = {**quick, "max_seq_length": 12, "max_steps": 1, "long": long}
    for estimator, target in ((BertClassifier(**given), y), (BertRegressor(**given), scores)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = estimator.fit(X, target)
            fitted.predict(X)
        told = [str(each.message) for each in caught]
        lost = {"truncate": "their end", "head-tail": "their middle"}.get(long)
        if lost is None:
            assert not told
        else:
            checked, predicted = told
            assert "longer than max_seq_length=12 lose a part: 16 of 16 train" in checked
            assert f"longer than max_seq_length=12 tokens and lose {lost}" in predicted
        assert clone(fitted).get_params()["long"] == long
        fitted.save(tmp_path / type(fitted).__name__)
        loaded = type(fitted).load(tmp_path / type(fitted).__name__)
        assert (loaded.long, loaded.doc_stride) == (long, None)
        again = pickle.loads(pickle.dumps(fitted))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = fitted._outputs(X)
            for other in (loaded, again):
                np.testing.assert_array_equal(other._outputs(X), expected)


def test_windows_answer_as_the_mean_of_their_texts(quick: Quick, toy: Data) -> None:
    X, y = toy(16)
    given = {**quick, "max_seq_length": 12, "max_steps": 1}
    fitted = BertClassifier(**given, long="windows", doc_stride=10).fit(X, y)
    words = [f"{color} {animal}" for color in ("red", "green") for animal in ("cat", "hen")]
    text = " ".join(words * 5)
    parts = [" ".join(text.split()[start : start + 10]) for start in range(0, 40, 10)]
    np.testing.assert_allclose(
        fitted._outputs([text]), fitted._outputs(parts).mean(0, keepdims=True), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"long": "middle"}, "^long is middle; expected truncate, head-tail or windows"),
        ({"doc_stride": 5}, "^doc_stride=5 has no meaning without long='windows'"),
        ({"long": "windows", "doc_stride": 0}, "^doc_stride is 0; expected a number above 0"),
    ],
)
def test_what_long_texts_cannot_be(params: Quick, message: str, quick: Quick, toy: Data) -> None:
    for estimator in (BertClassifier, BertRegressor):
        with pytest.raises(UsageError, match=message):
            estimator(**quick, **params).fit(["red", "cat"], [0, 1])


def test_ends_of_pairs_cannot_be_kept(quick: Quick) -> None:
    with pytest.raises(UsageError, match="long='head-tail' is for single texts"):
        BertClassifier(**quick, long="head-tail").fit([("red", "cat"), ("cat", "red")], [0, 1])


@pytest.mark.usefixtures("minilm_directory")
def test_a_hundred_tickets_are_enough_to_beat_words_counted() -> None:
    texts, labels = tickets("train")
    new, expected = tickets("dev")
    counted = make_pipeline(TfidfVectorizer(), LogisticRegression())
    counted.fit(texts[:100], labels[:100])

    classifier = BertClassifier("minilm", num_train_epochs=0.5, max_seq_length=48)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the few texts that are cut
        classifier.fit(texts[:100], labels[:100])
        accuracy = classifier.score(new, expected)

    # With a head drawn at random the classifier would give one class to every text.
    assert accuracy > counted.score(new, expected)


def tickets(part: str) -> tuple[list[str], list[str]]:
    """The bundled tickets' texts and labels."""
    path = resources.files("tidybert") / "resources" / "tickets" / f"{part}.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    return [row["text"] for row in rows], [row["label"] for row in rows]
