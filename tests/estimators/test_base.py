"""What all estimators that train share: seeds, warm starts, heads, interruption, what they show."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from tidybert.errors import CollapseWarning, UsageError
from tidybert.estimators import BertClassifier, BertRegressor

Data = Callable[..., tuple[list[str], list[str]]]
Quick = dict[str, Any]


def same_bits(a: Any, b: Any) -> bool:
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_random_state_is_the_seed(quick: Quick, toy: Data, tmp_path: Path) -> None:
    X, y = toy(16)
    by_seed = BertClassifier(**quick, seed=7).fit(X, y)
    by_state = BertClassifier(**quick, random_state=np.int64(7)).fit(X, y)
    assert same_bits(by_seed, by_state)
    by_state.save(tmp_path / "run")
    assert BertClassifier.load(tmp_path / "run").seed == 7
    with pytest.raises(UsageError, match=r"random_state is RandomState.*expected a whole number"):
        BertClassifier(**quick, random_state=np.random.RandomState(0)).fit(X, y)


def test_a_warm_start_trains_further(quick: Quick, toy: Data) -> None:
    X, y = toy(32)
    cold = BertClassifier(**quick).fit(X, y)
    warm = clone(cold).set_params(warm_start=True).fit(X, y)
    assert same_bits(cold, warm)
    first = warm.history_[0]["loss"]
    before = clone(warm).fit(X, y)
    warm.fit(X, y)
    assert warm.history_[0]["loss"] < first
    assert not same_bits(warm, before)
    # Other labels keep the encoder and get a new head.
    encoder = warm.model_.bert.state_dict()
    warm.set_params(learning_rate=1e-9, max_steps=1).fit(X, [label.upper() for label in y])
    assert warm.classes_.tolist() == ["ANIMAL", "COLOUR"]
    for name, tensor in warm.model_.bert.state_dict().items():
        if not name.startswith("pooler"):
            torch.testing.assert_close(tensor, encoder[name])


def test_a_new_head(quick: Quick, toy: Data, tmp_path: Path) -> None:
    X, y = toy(16)
    BertClassifier(**quick).fit(X, y).save(tmp_path / "run")
    still = {**quick, "model": tmp_path / "run", "learning_rate": 1e-12, "max_steps": 1}
    kept, new = (BertClassifier(**still, new_head=each).fit(X, y) for each in (False, True))
    assert kept.history_[0]["loss"] < new.history_[0]["loss"]


def test_dropout(quick: Quick, toy: Data) -> None:
    X, y = toy(16)
    fitted = BertClassifier(**quick, dropout=0.5).fit(X, y)
    config = fitted.model_.config
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.5
    assert not same_bits(fitted, BertClassifier(**quick).fit(X, y))
    with pytest.raises(UsageError, match=r"^dropout is 1.0; expected a fraction from 0 to below 1"):
        BertClassifier(**quick, dropout=1.0).fit(X, y)


def test_columns_of_a_frame_keep_their_order(quick: Quick, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"first": ["red", "blue"] * 8, "second": ["cat", "dog"] * 8})
    y = [0.5, 1.0] * 8
    fitted = BertRegressor(**quick, max_steps=1).fit(X, y)
    assert fitted.feature_names_in_.tolist() == ["first", "second"]
    fitted.save(tmp_path / "run")
    for each in (fitted, BertRegressor.load(tmp_path / "run")):
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            each.predict(X[["second", "first"]])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        fitted.predict(X.to_numpy())
    assert not hasattr(fitted.fit(X.to_numpy(), y), "feature_names_in_")


def test_ctrl_c_keeps_the_best_weights_so_far(
    quick: Quick, toy: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = toy(32)

    fitted = BertClassifier(**{**quick, "num_train_epochs": 50}, validation_fraction=0.25)

    def press(line: str, _rows: str) -> None:
        if line.startswith("step 4: "):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("tidybert.finetuning.api.tell", press)
    message = r"stopped after step 4 of 100; this BertClassifier has the weights .*the best so far"
    with pytest.raises(KeyboardInterrupt, match=message):
        fitted.set_params(verbose=1).fit(X, y)
    assert fitted.result_.num_steps == 4
    assert fitted.classes_.tolist() == ["animal", "colour"]
    assert fitted.score(X, y) > 0


def test_a_collapse_is_a_warning_at_the_user_s_line(quick: Quick, toy: Data) -> None:
    X, y = toy(24)
    weights = {"animal": 1e-9, "colour": 1.0}
    estimator = BertClassifier(**quick, class_weight=weights, validation_fraction=0.25)
    with pytest.warns(CollapseWarning, match="every dev example the answer 'colour'") as warned:
        estimator.fit(X, y)
    assert [one.filename for one in warned if one.category is CollapseWarning] == [__file__]


def test_a_notebook_shows_what_was_learned(classifier: BertClassifier) -> None:
    shown = classifier._repr_mimebundle_()["text/html"]
    assert "animal, colour" in shown
    assert "in 90 steps" in shown
    assert "none: nothing was held out" in shown
    assert repr(classifier).startswith("BertClassifier(")


def test_a_report_for_a_notebook(
    classifier: BertClassifier, regressor: BertRegressor, toy: Data, tmp_path: Path
) -> None:
    X, y = toy(24, seed=5)
    report = classifier.report(X, y, resamples=20)
    assert report.metrics["accuracy"]["value"] == classifier.score(X, y)
    assert "ShownReport(" in repr(report)
    shown = report._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert shown.count("<") == 2  # the page is escaped
    assert report.save(tmp_path / "report").is_file()
    scores = [float(each == "colour") for each in y]
    assert regressor.report(X, scores, resamples=20).contents["task"] == "regress"
