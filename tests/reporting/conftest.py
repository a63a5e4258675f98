"""Evaluations that were never run: made of judgements, so that reports need no model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tidybert.metrics import classification_metrics, regression_metrics
from tidybert.metrics.bootstrap import bootstrap
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.training_history import TrainingHistory
from tidybert.tasks.answers import Judgement

Make = Callable[..., Evaluation]

HISTORY = TrainingHistory(
    steps=[{"step": n, "loss": 1 / n, "learning_rate": n * 1e-5} for n in range(1, 31)],
    evaluations=[{"step": 10, "accuracy": 0.5}, {"step": 30, "accuracy": 0.75}],
)


def evaluation(
    task: str,
    metric: str,
    metrics: Mapping[str, Any],
    judgements: Sequence[Judgement],
    overrides: Mapping[str, Any],
    **given: Any,
) -> Evaluation:
    counts = {"num_examples": len(judgements), "num_truncated": 0}
    given = {
        "model": f"runs/{task}",
        "data": "data/dev.tsv",
        "date": "2026-01-02 03:04",
        "metrics": {**counts, "num_windowed": 0, "num_windows": 0, **metrics},
        "max_seq_length": 64,
        "truncation": "were cut to max_seq_length",
        **given,
    }
    return Evaluation(task=task, metric=metric, judgements=judgements, **{**given, **overrides})


@pytest.fixture(scope="session")
def classified() -> Make:
    """Makes evaluations of classes: ``count`` examples of ``classes``, more right than wrong."""

    def make(count: int = 120, classes: int = 3, **overrides: Any) -> Evaluation:
        random = np.random.default_rng(0)
        names = [f"class {number}" for number in range(classes)]
        labels = random.integers(0, classes, count)
        logits = random.normal(size=(count, classes))
        logits[np.arange(count), labels] += 1.5
        p = np.exp(logits)
        p /= p.sum(1, keepdims=True)
        predicted = p.argmax(1)
        judgements = [
            Judgement(
                text=f"text {at} " + "word " * (at % 7),
                expected=names[labels[at]],
                predicted=names[predicted[at]],
                correct=float(labels[at] == predicted[at]),
                confidence=float(p[at].max()),
                expected_probability=float(p[at, labels[at]]),
                num_tokens=at % 7 + 4,
                row=at + 2,
            )
            for at in range(count)
        ]

        def scorer(chosen: Any) -> dict[str, float]:
            return {"accuracy": float((labels == predicted)[chosen].mean())}

        metrics = classification_metrics(labels, predicted, names, p)
        return evaluation(
            *("classify", "accuracy", metrics, judgements, overrides),
            meanings={"accuracy": "fraction that is right", "f1": "F1 of {positive}"},
            label_names=names,
            probabilities=p,
            temperature=1.5,
            intervals=bootstrap(scorer, count, num_resamples=200),
            training=HISTORY,
        )

    return make


@pytest.fixture(scope="session")
def scored() -> Make:
    """Makes evaluations of scores."""

    def make(count: int = 60, **overrides: Any) -> Evaluation:
        random = np.random.default_rng(0)
        expected = random.uniform(0, 5, count).round(2)
        predicted = (expected + random.normal(scale=0.5, size=count)).round(4)
        judgements = [
            Judgement(f"first {at}\nsecond", repr(a), repr(b), None, None, None, at % 9 + 5, at)
            for at, (a, b) in enumerate(zip(expected.tolist(), predicted.tolist(), strict=True))
        ]
        metrics = regression_metrics(expected, predicted)
        return evaluation("regress", "pearson", metrics, judgements, overrides)

    return make


@pytest.fixture(scope="session")
def answered() -> Make:
    """Makes evaluations of answers that are no classes, and may be right in part."""

    def make(count: int = 50, **overrides: Any) -> Evaluation:
        shares = [(0.0, 0.5, 1.0, 1.0)[at % 4] for at in range(count)]
        judgements = [
            Judgement(
                text=f"question {at}?\n" + "context " * 60,
                expected="an answer",
                predicted="an answer" if share == 1 else "",
                correct=share,
                confidence=0.3 + share * 0.6,
                expected_probability=None,
                num_tokens=at + 20,
                row=1,
                id=f"q{at}",
            )
            for at, share in enumerate(shares)
        ]
        f1 = float(np.mean(shares))
        metrics = {"f1": f1, "num_truncated": 1, "num_windowed": 3, "num_windows": 7}
        return evaluation(
            *("answer", "f1", metrics, judgements, overrides),
            max_seq_length=384,
            truncation="had their question cut to --max-query-length",
        )

    return make


def all_right(given: Evaluation) -> Evaluation:
    """The same of a model that is always right."""
    right = [replace(one, predicted=one.expected, correct=1.0) for one in given.judgements]
    return replace(given, judgements=right)
