"""From a tiny RUN to the evaluation that its report is made of."""

import json
from pathlib import Path

import numpy as np
import pytest

from tidybert.inference.predictor import Predictor
from tidybert.reporting.contents import report_contents
from tidybert.reporting.evaluation import ModelOrigin, evaluation_of, read_model_origin
from tidybert.tasks.questions import question_answering
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_features import question_features
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tokenization import BertTokenizer


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
    assert found.truncation == "were cut to max_seq_length"
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


def test_a_report_scores_the_spans_of_a_question_once(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, tmp_path: Path
) -> None:
    task = QuestionAnswering(no_answers=True, max_query_length=4)
    examples = [
        QuestionExample("a", "the red", "a red cat is an old dog", (("cat", 6),), False, 1),
        QuestionExample("b", "the red", "the old dog", (), True, 2),
    ]
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    features = question_features(
        examples, tokenizer, max_seq_length=10, max_query_length=4, doc_stride=2
    )
    assert len(features) > len(examples)
    task.add_labels(features, examples)
    random = np.random.default_rng(0)
    outputs = [random.normal(size=(len(one.input_ids), 2)).astype(np.float32) for one in features]
    calls = []
    score = question_answering.span_scores

    def counted(*given):
        calls.append(given)
        return score(*given)

    monkeypatch.setattr(question_answering, "span_scores", counted)
    answers = task.answers(outputs, features, examples)

    found = evaluation_of(
        answers,
        {**answers.metrics(), **answers.counts()},
        run=str(tmp_path),
        file="dev.json",
        date="today",
        max_seq_length=10,
    )
    answers.predictions()

    assert len(calls) == len(examples)
    assert len(found.judgements) == 2
    assert "f1" in found.intervals.by_name


def test_a_run_says_where_its_model_comes_from_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    assert read_model_origin(tmp_path) == ModelOrigin()
    arguments, described = tmp_path / "arguments.json", tmp_path / "tidybert.json"
    arguments.write_text(json.dumps({"model": "minilm", "train": "a.csv", "seed": 7}))
    described.write_text('{"format_version": 1, "task": "classify", "sha256": "ab", "files": {}}')
    assert read_model_origin(tmp_path) == ModelOrigin("minilm", "a.csv", 7, "ab")
    arguments.write_text('{"model": ["a"], "seed": true}')
    described.write_text("{")
    assert read_model_origin(tmp_path) == ModelOrigin()
