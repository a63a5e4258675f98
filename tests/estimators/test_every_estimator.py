"""What each estimator that trains does alike: parameters, seeds, weights, pickles, runs, folds."""

import inspect
import pickle
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict, cross_val_score

import tidybert
from tidybert.errors import DataError, UsageError
from tidybert.estimators import (
    BertClassifier,
    BertMultipleChoice,
    BertQuestionAnswerer,
    BertRegressor,
    BertTagger,
)
from tidybert.inference.predictor import Predictor
from tidybert.options import declared, named
from tidybert.tasks.task_options import ClassOptions, QuestionOptions, TextOptions
from tidybert.training.training_arguments import TrainingArguments

Quick = dict[str, Any]
ANIMALS, COLOURS = ("cat", "dog", "hen", "cow"), ("red", "blue", "green", "white")


class Kind(NamedTuple):
    """An estimator, its X and y from (colour, animal, number), and its predictions from answers."""

    estimator: type[Any]
    X: Callable[[str, str, int], Any]
    y: Callable[[str, str, int], Any]
    answered: Callable[[Any], Any]
    given: Quick
    metric: str


def sentence(colour: str, animal: str, number: int) -> str:
    return f"the {colour if number % 2 else animal} was {number % 7} old"


KINDS: dict[str, Kind] = {
    "classify": Kind(
        BertClassifier,
        sentence,
        lambda _c, _a, n: "xy"[n % 2],
        lambda one: one["label"],
        {},
        "accuracy",
    ),
    "multi-label": Kind(
        BertClassifier,
        sentence,
        lambda _c, _a, n: [n % 2, n % 3 == 0],
        lambda one: [label in one["labels"] for label in (0, 1)],
        {},
        "micro_f1",
    ),
    "regress": Kind(
        BertRegressor,
        sentence,
        lambda _c, _a, n: float(n % 2) + n / 100,
        lambda one: one["value"],
        {},
        "pearson",
    ),
    "tag": Kind(
        BertTagger,
        lambda c, a, n: ["the", c, a][: 2 + n % 2],
        lambda _c, _a, n: ["O", "B-colour", "B-animal"][: 2 + n % 2],
        lambda one: one["tags"],
        {},
        "f1",
    ),
    "choose": Kind(
        BertMultipleChoice,
        lambda c, a, n: (f"we saw a {n}", [c, a] if n % 2 else [a, c]),
        lambda _c, _a, n: (n + 1) % 2,
        lambda one: one["choice"],
        {},
        "accuracy",
    ),
    "answer": Kind(
        BertQuestionAnswerer,
        lambda c, a, n: ("the colour", f"we saw {n} a {c} {a}"),
        lambda c, _a, _n: c,
        lambda one: one["answer"],
        {"max_query_length": 8},
        "f1",
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, quick: Quick) -> Kind:
    found = KINDS[request.param]
    return found._replace(given={**quick, "max_steps": 3, **found.given})


def data(kind: Kind, count: int = 24) -> tuple[list[Any], list[Any]]:
    given = [(COLOURS[n // 2 % 4], ANIMALS[n // 3 % 4], n) for n in range(count)]
    return [kind.X(*each) for each in given], [kind.y(*each) for each in given]


def same_bits(a: Any, b: Any) -> bool:
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def plain(predicted: Any) -> list[Any]:
    return predicted.tolist() if isinstance(predicted, np.ndarray) else list(predicted)


def test_parameters_are_the_training_arguments(kind: Kind) -> None:
    parameters = inspect.signature(kind.estimator).parameters
    expected = {
        each.name: (each.default, each.type)
        for each in fields(TrainingArguments)
        if declared(each).estimator
    }
    found = {name: parameters[name].default for name in expected}
    assert found == {name: default for name, (default, _) in expected.items()}
    assert all(parameters[name].annotation == of_type for name, (_, of_type) in expected.items())
    assert [each.kind for each in parameters.values()][1:] == [inspect.Parameter.KEYWORD_ONLY] * (
        len(parameters) - 1
    )
    ours, classifier = (set(each()._get_param_names()) for each in (kind.estimator, BertClassifier))
    of_texts = {*named(TextOptions, estimator=True)}
    of_classes = {*named(ClassOptions, estimator=True), "min_score"}
    own = {BertClassifier: set(), BertRegressor: of_classes - of_texts}
    of_questions = {*named(QuestionOptions, estimator=True), "doc_stride"} - classifier
    assert classifier - ours == own.get(kind.estimator, of_classes - {"doc_stride"})
    assert ours - classifier == (of_questions if kind.estimator is BertQuestionAnswerer else set())


def test_the_seed_decides_the_bits_and_nothing_else_is_drawn(kind: Kind) -> None:
    X, y = data(kind)
    torch.manual_seed(3)
    before, of_numpy = torch.random.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002

    first = kind.estimator(**kind.given).fit(X, y)
    first.predict(X)

    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], of_numpy)  # noqa: NPY002
    again = clone(first)
    assert again.fit(X, y) is again
    assert same_bits(again, first)
    assert not same_bits(kind.estimator(**kind.given, seed=7).fit(X, y), first)


def test_a_weight_is_a_share_in_the_loss_and_zero_leaves_an_example_out(kind: Kind) -> None:
    X, y = data(kind)
    weights = np.ones(24)
    weights[[3, 8, 23]] = 0
    kept = np.flatnonzero(weights)

    weighted = kind.estimator(**kind.given).fit(X, y, sample_weight=weights)

    left_out = kind.estimator(**kind.given).fit([X[at] for at in kept], [y[at] for at in kept])
    assert same_bits(weighted, left_out)
    heavier = kind.estimator(**kind.given).fit(X, y, sample_weight=np.linspace(1, 5, 24))
    assert not same_bits(heavier, kind.estimator(**kind.given).fit(X, y))


@pytest.mark.filterwarnings("ignore::tidybert.errors.CollapseWarning")
def test_a_part_is_held_out_and_measured_on(kind: Kind) -> None:
    X, y = data(kind, 40)
    fitted = kind.estimator(**kind.given, validation_fraction=0.25).fit(X, y)

    assert kind.metric in fitted.result_.metrics
    assert 8 <= len(fitted.validation_indices_) <= 12
    # Steps of 16, 14 and 16 of the 30 that are left.
    assert fitted.result_.num_examples == 46


def test_a_pickle_and_a_run_predict_the_same(kind: Kind, tmp_path: Path) -> None:
    X, y = data(kind)
    fitted = kind.estimator(**kind.given).fit(X, y)
    predicted = plain(fitted.predict(X))

    fitted.save(tmp_path / "run")
    there = pickle.loads(pickle.dumps(fitted))
    loaded = kind.estimator.load(tmp_path / "run", device="cpu")

    for each in (there, loaded):
        assert plain(each.predict(X)) == predicted
        assert each.score(X, y) == fitted.score(X, y)
    assert there.get_params() == fitted.get_params()
    kept = {**fitted.get_params(), "model": str(kind.given["model"]), "device": "cpu"}
    assert loaded.get_params() == kept
    columns = zip(*X, strict=True) if isinstance(X[0], tuple) else [X]
    answers = Predictor(tmp_path / "run", device="cpu").predict(*columns)
    assert [kind.answered(one) for one in answers] == predicted


def test_folds(kind: Kind) -> None:
    X, y = data(kind)
    estimator = kind.estimator(**kind.given)
    y = np.array(y) if isinstance(y[0], list) and isinstance(y[0][0], int) else y
    assert np.isfinite(cross_val_score(estimator, X, y, cv=2, error_score="raise")).all()
    assert len(cross_val_predict(estimator, X, y, cv=2)) == 24


def test_what_is_missing_is_said(kind: Kind) -> None:
    X, _ = data(kind)
    with pytest.raises(NotFittedError):
        kind.estimator().predict(X)
    with pytest.raises(NotFittedError):
        kind.estimator().save("nowhere")
    with pytest.raises(DataError, match="requires y to be passed, but the target y is None"):
        kind.estimator(**kind.given).fit(X, None)


def test_each_learns_the_answers_of_a_saved_one(kind: Kind, tmp_path: Path) -> None:
    X, y = data(kind)
    kind.estimator(**kind.given).fit(X, y).save(tmp_path / "teacher")

    student = kind.estimator(**kind.given, teacher=tmp_path / "teacher", num_layers=1)
    student.fit(X[:12], y[:12], X_unlabelled=X[12:])

    assert len(student.model_.bert.layers) == 1
    assert len(student.predict(X)) == len(X)
    # Without the other texts the same steps end elsewhere.
    alone = clone(student).fit(X[:12], y[:12])
    assert not np.array_equal(
        *(each.model_.bert.embeddings.layer_norm.weight.detach() for each in (student, alone))
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [("epochs", "num_train_epochs"), ("lr", "learning_rate")],
)
def test_a_name_of_other_libraries_is_answered_with_ours(given: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"{given} is not a parameter; it is '{meant}' here"):
        tidybert.BertClassifier(**{given: 1})
    with pytest.raises(UsageError, match="poling is not a parameter; did you mean 'pooling'"):
        tidybert.BertVectorizer(poling="mean")
    with pytest.raises(UsageError, match="poling is not a parameter; did you mean 'pooling'"):
        tidybert.Embedder("tidybert-small", poling="mean")
