"""From a tiny RUN to the evaluation that its report is made of."""

from pathlib import Path

import numpy as np
import pytest

from tidybert.inference.predictor import Predictor
from tidybert.reporting.contents import report_contents
from tidybert.reporting.examining import evaluation_of


def judged(run: Path, examples):
    answers = Predictor(run).examine(examples)
    return evaluation_of(
        answers,
        {**answers.metrics(), **answers.counts()},
        run=str(run),
        file="dev.csv",
        date="today",
        max_seq_length=16,
    )


def test_classes_have_probabilities_and_a_history(tiny_run: Path, toy_examples) -> None:
    found = judged(tiny_run, toy_examples(64, seed=1))

    assert found.task == "classify"
    assert found.probabilities.sum(1) == pytest.approx(np.ones(64))
    assert [one.confidence for one in found.judgements] == pytest.approx(
        found.probabilities.max(1).tolist()
    )
    labels = found.probabilities[np.arange(64), found.labels()]
    assert [one.expected_probability for one in found.judgements] == pytest.approx(labels.tolist())
    assert found.temperature is not None
    assert found.truncation == "were cut to --max-seq-length"
    assert found.training is not None
    for name, interval in found.intervals.by_name.items():
        assert interval.low <= found.metrics[name] <= interval.high, name
    contents = report_contents(found)
    assert contents["confusion"]["label_names"] == ["animal", "colour"]
    assert contents["suspected_label_errors"] is not None


def test_scores_have_intervals_and_no_classes(tiny_score_run: Path, toy_examples) -> None:
    found = judged(tiny_score_run, toy_examples(64, seed=1, scores=True))

    assert found.probabilities is None
    assert found.label_names is None
    assert found.temperature is None
    assert set(found.intervals.by_name) == {"pearson", "spearman", "mse"}
    assert report_contents(found)["scores"]["points"]
