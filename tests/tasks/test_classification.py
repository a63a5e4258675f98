"""classify: labels, weights, loss, metrics and answers."""

import math

import numpy as np
import pytest
import torch
from tests.tasks.fixed_outputs import FixedLogits, dicts_of, examples_of, make_features, rows_of
from torch.nn import functional

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch, collate
from tidybert.errors import DataError, UsageError
from tidybert.tasks.answers import softmax
from tidybert.tasks.classification import Classification, balanced_class_weights
from tidybert.tasks.registry import task_for


def labelled(task: Classification, *labels: str) -> Batch:
    features = make_features(len(labels))
    task.add_labels(features, examples_of(*labels))
    return collate(features)


def test_labels_become_ids_in_the_order_of_the_names() -> None:
    batch = labelled(Classification(["b", "a", "c"]), "a", "c", "b")

    assert [one.label for one in batch.features] == [1, 2, 0]
    assert [one.weight for one in batch.features] == [1.0, 1.0, 1.0]


def test_labels_that_are_unknown_are_listed_with_their_lines() -> None:
    task = Classification(["a", "b"])

    with pytest.raises(DataError, match=r"^2 labels .*\n  'd', 2 .* line 3\n  'A', on line 4\nIt"):
        task.add_labels(make_features(4), examples_of("a", "d", "A", "d"))
    with pytest.raises(DataError, match="line 3: the example has no label"):
        task.add_labels(make_features(2), examples_of("a", None))


def test_the_loss_is_torchs_weighted_cross_entropy_but_for_the_division(device: str) -> None:
    class_weights = {"a": 0.5, "b": 2.0, "c": 1.0}
    task = Classification(list(class_weights), class_weights)
    batch = labelled(task, "c", "b", "b", "a").to(device)
    model = FixedLogits(torch.randn(4, 3).to(device))

    total = sum(one.weight for one in batch.features)
    loss = task.loss(model, batch) / total

    labels = torch.tensor([2, 1, 1, 0], device=device)
    weights = torch.tensor(list(class_weights.values()), device=device)
    torch.testing.assert_close(loss, functional.cross_entropy(model.logits, labels, weight=weights))
    unweighted = Classification(list(class_weights))
    torch.testing.assert_close(
        unweighted.loss(model, labelled(unweighted, "c", "b", "b", "a").to(device)) / 4,
        functional.cross_entropy(model.logits, labels),
    )


@pytest.mark.parametrize("weights", [{"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}])
def test_class_weights_of_other_names_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"class_weight and the labels differ in [bc]:"):
        Classification(["a", "b"], weights)


def test_balanced_weights_are_scikit_learns() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    labels = ["x"] * 7 + ["y"] * 2 + ["z"]
    expected = compute_class_weight("balanced", classes=np.array(["x", "y", "z"]), y=labels)

    weights = balanced_class_weights(labels)

    assert weights == pytest.approx(dict(zip("xyz", expected, strict=True)))
    assert sum(weights[label] for label in labels) == pytest.approx(len(labels))


def test_an_answer_has_the_label_and_every_probability() -> None:
    logits = rows_of([[0.0, math.log(3)], [math.log(4), 0.0]])

    task = Classification(["no", "yes"])
    first, second = dicts_of(task.answers(logits, make_features(2), examples_of(None, None)))

    assert first["label"] == "yes"
    assert first["score"] == pytest.approx(0.75)
    assert first["scores"] == pytest.approx({"no": 0.25, "yes": 0.75})
    assert (second["label"], second["score"]) == ("no", pytest.approx(0.8))
    assert list(first["scores"]) == ["no", "yes"]


def test_large_logits_do_not_overflow() -> None:
    probabilities = softmax(np.array([[3e4, -3e4], [-3e4, -3e4]], dtype=np.float32))

    assert probabilities.tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_metrics_are_of_the_most_likely_class() -> None:
    task = Classification(["a", "b"])
    batch = labelled(task, "a", "b", "b", "b")
    outputs = rows_of([[2, 1], [0, 1], [1, 0], [-1, 1]])

    metrics = task.answers(outputs, batch.features, examples_of("a", "b", "b", "b")).metrics()

    assert metrics["accuracy"] == 0.75
    assert metrics[task.metric] == 0.75
    assert metrics["f1"] == pytest.approx(0.8)
    losses = [math.log(1 + math.exp(-1)), math.log(1 + math.exp(-1)), math.log(1 + math.e)]
    assert metrics["log_loss"] == pytest.approx(np.mean([*losses, math.log(1 + math.exp(-2))]))


def test_the_windows_of_an_example_are_averaged() -> None:
    task = Classification(["a", "b"])
    features = make_features(3)
    features[1].example, features[2].example = 0, 1
    examples = examples_of("b", "a")
    task.add_labels(features, examples)
    assert [one.label for one in features] == [1, 1, 0]
    outputs = rows_of([[3, 0], [0, 5], [1, 0]])

    first, second = dicts_of(task.answers(outputs, features, examples))

    assert first["score"] == pytest.approx(1 / (1 + math.exp(-1)))
    assert (first["label"], second["label"]) == ("b", "a")
    assert task.answers(outputs, features, examples).metrics()["accuracy"] == 1.0


def test_the_temperature_that_a_model_is_stored_with_divides_its_logits() -> None:
    metadata = ModelMetadata("classify", ("no", "yes"), settings={"temperature": 2.0})

    task = task_for(metadata)
    (answer,) = dicts_of(task.answers(rows_of([[0.0, 4.0]]), make_features(1), examples_of(None)))

    assert answer["score"] == pytest.approx(1 / (1 + math.exp(-2)))


def test_calibration_finds_the_temperature_and_keeps_the_answers() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (4000, 3))
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = [str(random.choice(3, p=each)) for each in chances]
    task = Classification(["0", "1", "2"])
    features, examples = make_features(len(labels)), examples_of(*labels)
    task.add_labels(features, examples)
    # A model three times too sure of itself.
    outputs = rows_of((3 * logits).tolist())

    fitted = task.calibrated(task.answers(outputs, features, examples))

    assert fitted.temperature == pytest.approx(3, rel=0.1)
    assert fitted.settings() == {"temperature": fitted.temperature}
    before, after = (each.answers(outputs, features, examples).metrics() for each in (task, fitted))
    assert before["confusion_matrix"] == after["confusion_matrix"]
    assert after["log_loss"] < before["log_loss"]


def test_judgements_and_scorer_say_what_the_metrics_say() -> None:
    task = Classification(["a", "b"])
    features, examples = make_features(3), examples_of("a", "b", "b")
    task.add_labels(features, examples)
    outputs = rows_of([[2, 1], [0, 1], [1, 0]])

    judged = [*task.answers(outputs, features, examples).judgements()]
    score = task.answers(outputs, features, examples).metrics

    assert [one.correct for one in judged] == [1.0, 1.0, 0.0]
    assert [(one.expected, one.predicted) for one in judged][2] == ("b", "a")
    assert judged[2].expected_probability == pytest.approx(1 - (judged[2].confidence or 0))
    metrics = task.answers(outputs, features, examples).metrics()
    whole = score(np.arange(3))
    assert whole == {name: metrics[name] for name in whole}
    assert score(np.array([2, 2, 0]))["accuracy"] == pytest.approx(1 / 3)
