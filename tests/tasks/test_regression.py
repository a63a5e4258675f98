"""regress: scores, loss, metrics and answers."""

from collections.abc import Collection, Sequence

import numpy as np
import pytest
import torch
from tests.tasks.fixed_outputs import FixedLogits, dicts_of, examples_of, make_features, rows_of
from torch.nn import functional

from tidybert.data.batching import collate
from tidybert.data.splits import folds_of
from tidybert.errors import DataError
from tidybert.tasks.regression import Regression


def test_the_loss_is_the_weighted_sum_of_squared_errors(device: str) -> None:
    features = make_features(3)
    Regression().add_labels(features, examples_of("1.5", "-2", "4e-1"))
    assert [one.label for one in features] == [1.5, -2.0, 0.4]
    values = torch.tensor([1.0, 0.0, 1.0], device=device)
    labels = torch.tensor([1.5, -2.0, 0.4], device=device)

    loss = Regression().loss(FixedLogits(values[:, None]), collate(features).to(device))
    torch.testing.assert_close(loss / 3, functional.mse_loss(values, labels))

    features[1].weight = 3.0
    loss = Regression().loss(FixedLogits(values[:, None]), collate(features).to(device))
    assert loss.item() == pytest.approx(0.25 + 3 * 4 + 0.36)


@pytest.mark.parametrize("label", [None, "good", "nan", "inf", "1_000", ""])
def test_what_is_no_finite_number_is_refused_with_its_line(label: str | None) -> None:
    with pytest.raises(DataError, match=f"line 3: {label!r} is not a score"):
        Regression().add_labels(make_features(2), examples_of("1", label))


def test_in_folds_what_knows_nothing_has_no_correlation() -> None:
    scores = np.random.default_rng(0).normal(size=50)
    names = [" ".join(["abcdefghij"[int(digit)] * 3 for digit in f"{at:02}"]) for at in range(50)]

    def correlation(strata: Sequence[Collection[str]]) -> float:
        folds = folds_of(names, strata, 5)
        others = [scores[folds != fold].mean() for fold in folds]
        return float(np.corrcoef(others, scores)[0, 1])

    assert correlation([()] * 50) < -0.2
    assert correlation(Regression.strata(examples_of(*map(str, scores)), 5)) > -0.1


def test_an_answer_is_the_value() -> None:
    outputs, examples = rows_of([[0.5], [-3.0]]), examples_of(None, None)

    answers = dicts_of(Regression().answers(outputs, make_features(2), examples))

    assert answers == [{"value": 0.5}, {"value": -3.0}]


def test_metrics_are_correlations() -> None:
    features, examples = make_features(4), examples_of("1", "2", "3", "4")
    Regression().add_labels(features, examples)
    outputs = rows_of([[2], [4], [6], [8]])

    metrics = Regression().answers(outputs, features, examples).metrics()

    assert metrics["pearson"] == pytest.approx(1.0)
    assert metrics["spearman"] == pytest.approx(1.0)
    assert metrics["mse"] == pytest.approx(7.5)
    assert Regression.metric in metrics
    assert Regression().answers(outputs, features, examples).metrics(np.arange(4)) == metrics
    assert Regression().answers(outputs, features, examples).metrics(np.array([0, 0]))["mse"] == 1.0
    judged = [*Regression().answers(outputs, features, examples).judgements()]
    assert (judged[0].expected, judged[0].predicted, judged[0].correct) == ("1.0", "2.0", None)


def test_judgements_spell_scores_in_full() -> None:
    features, examples = make_features(2), examples_of("1234567.8", "0.1")
    Regression().add_labels(features, examples)

    judged = [
        *Regression().answers(rows_of([[1234569.125], [0.1]]), features, examples).judgements()
    ]

    assert [float(one.expected) for one in judged] == [1234567.8, 0.1]
    assert [float(one.predicted) for one in judged] == [1234569.125, float(np.float32(0.1))]
