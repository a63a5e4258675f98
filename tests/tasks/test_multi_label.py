"""multi-label: loss, thresholds, metrics and answers, beside PyTorch and transformers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.fixed_outputs import FixedLogits, dicts_of, make_features, rows_of
from torch import nn

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.cli import main as shell
from tidybert.configuration import BertConfig
from tidybert.data.batching import collate
from tidybert.data.checks import TrainingData
from tidybert.data.features import Features
from tidybert.errors import ConfigError, DataError, UsageError, in_python
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.predictor import Predictor
from tidybert.metrics.calibration import fit_temperature
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.registry import task_class, task_for
from tidybert.tasks.task_options import ClassOptions
from tidybert.tokenization import BertTokenizer

NAMES = ("animal", "colour")
WORDS = {"animal": ("cat", "dog", "cow", "hen"), "colour": ("red", "green", "blue", "white")}
FILLER = ("the", "old", "and", "new", "a", "was", "is", "we", "saw")


def toy_texts(count: int, seed: int) -> list[TextExample]:
    """Texts that name an animal, a colour, both or neither."""
    random = np.random.default_rng(seed)
    examples = []
    for row in range(1, count + 1):
        labels = tuple(
            name for name, truth in zip(NAMES, random.random(2) < 0.5, strict=True) if truth
        )
        words = [*random.choice(FILLER, 4), *(random.choice(WORDS[name]) for name in labels)]
        random.shuffle(words)
        examples.append(TextExample(" ".join(words), None, None, row, labels))
    return examples


def examples_of(*labels: tuple[str, ...] | None) -> list[TextExample]:
    return [TextExample(f"text {row}", None, None, row, each) for row, each in enumerate(labels, 2)]


def labelled(task: MultiLabelClassification, examples: list[TextExample]) -> list[Features]:
    features = make_features(len(examples))
    task.add_labels(features, examples)
    return features


def test_labels_become_the_ids_of_the_names() -> None:
    task = MultiLabelClassification(["b", "a", "c"])

    features = labelled(task, examples_of(("c", "b"), (), ("a",)))

    assert [one.label for one in features] == [(0, 2), (), (1,)]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("d", "a", "c"), r"^2 labels .*:\n  'd', on line 3\n  'c', on line 3\nIt knows 2: a, b\n"),
        (None, "line 3: .* no list"),
    ],
)
def test_what_is_no_set_of_known_labels_is_told(
    labels: tuple[str, ...] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        labelled(MultiLabelClassification(["a", "b"]), examples_of(("a",), labels))


def test_the_loss_is_the_weighted_mean_over_labels(device: str) -> None:
    task = MultiLabelClassification(["a", "b", "c"])
    features = labelled(task, examples_of(("a", "c"), (), ("b",)))
    logits = torch.randn(3, 3).to(device)
    truth = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]]).to(device)

    loss = task.loss(FixedLogits(logits), collate(features).to(device)) / 3

    torch.testing.assert_close(loss, nn.BCEWithLogitsLoss()(logits, truth))
    features[1].weight = 2.5
    found = task.loss(FixedLogits(logits), collate(features).to(device))
    losses = nn.BCEWithLogitsLoss(reduction="none")(logits, truth).mean(1)
    torch.testing.assert_close(found, losses @ torch.tensor([1, 2.5, 1], device=device))


def test_logits_and_loss_are_those_of_transformers(
    tiny_config: Callable[..., BertConfig],
    tiny_model: Path,
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    task = MultiLabelClassification(["a", "b", "c"])
    theirs = reference(
        tiny_config(),
        "BertForSequenceClassification",
        num_labels=3,
        problem_type="multi_label_classification",
    )
    ours = copy_weights(theirs, task.build_model(tiny_config()))
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    example = TextExample("the red hen", None, None, 1, ("a", "c"))
    features = task.features([example], tokenizer, 16)
    task.add_labels(features, [example])

    with torch.no_grad():
        expected = theirs(
            torch.from_numpy(features[0].input_ids[None].astype(np.int64)),
            labels=torch.tensor([[1.0, 0, 1]]),
        )
        batch = collate(features)
        torch.testing.assert_close(task.outputs(ours, batch), expected.logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(task.loss(ours, batch), expected.loss, atol=1e-5, rtol=0)


def test_an_answer_has_every_label_that_reaches_its_threshold() -> None:
    task = MultiLabelClassification(["a", "b"], {"a": 0.8})
    outputs = rows_of([[math.log(3), 0.0], [math.log(9), -1e4], [-5.0, -5.0]])

    examples = examples_of((), (), ())
    answers = task.answers(outputs, labelled(task, examples), examples)
    first, second, third = dicts_of(answers)

    assert first == {"labels": ["b"], "scores": pytest.approx({"a": 0.75, "b": 0.5})}
    assert second == {"labels": ["a"], "scores": pytest.approx({"a": 0.9, "b": 0.0})}
    assert third["labels"] == []


def test_a_temperature_makes_answers_less_sure_and_changes_none() -> None:
    sure = MultiLabelClassification(["a", "b"])
    task = MultiLabelClassification(["a", "b"], temperature=2.0)
    outputs = rows_of([[2 * math.log(3), -2.0], [-1e4, 0.0]])
    examples = examples_of((), ())
    features = labelled(task, examples)

    first, second = dicts_of(task.answers(outputs, features, examples))

    assert first["scores"] == pytest.approx({"a": 0.75, "b": 1 / (1 + math.e)})
    assert second["scores"] == {"a": 0.0, "b": 0.5}
    assert [first["labels"], second["labels"]] == [
        answer["labels"] for answer in dicts_of(sure.answers(outputs, features, examples))
    ]


def test_metrics_judgements_and_selections_agree() -> None:
    task = MultiLabelClassification(["a", "b"], {"b": 0.9})
    examples = examples_of(("a",), ("a", "b"), ())
    features = labelled(task, examples)
    outputs = rows_of([[2.0, -2.0], [1.0, 1.0], [-1.0, -3.0]])

    metrics = task.answers(outputs, features, examples).metrics()

    assert metrics["subset_accuracy"] == pytest.approx(2 / 3)
    assert metrics["micro_f1"] == pytest.approx(2 * 2 / (2 + 3))
    assert metrics["macro_average_precision"] == 1.0
    assert metrics["per_label"]["b"]["threshold"] == 0.9
    assert metrics["per_label"]["a"]["threshold"] is None
    assert set(task.meanings) == {key for key in metrics if key != "per_label"}
    assert task.metric in metrics
    score = task.answers(outputs, features, examples).metrics
    assert score(np.arange(3)) == {key: metrics[key] for key in task.meanings}
    assert score(np.array([1, 1]))["subset_accuracy"] == 0.0

    judged = [*task.answers(outputs, features, examples).judgements()]
    assert [(one.expected, one.predicted, one.correct) for one in judged] == [
        ("a", "a", 1.0),
        ("a, b", "a", 0.0),
        ("(none)", "(none)", 1.0),
    ]
    sigmoid = 1 / (1 + math.exp(-1))
    assert judged[1].confidence == pytest.approx(sigmoid * (1 - sigmoid))
    assert judged[1].expected_probability == pytest.approx(sigmoid * sigmoid)
    assert judged[2].row == 4


def test_thresholds_are_tuned_stored_and_used() -> None:
    task = MultiLabelClassification(["a", "b"])
    examples = examples_of(*[("a",)] * 12, *[()] * 12, *[("b",)] * 3)
    features = labelled(task, examples)
    outputs = rows_of([*[[-1.0, -9.0]] * 12, *[[-3.0, -9.0]] * 12, *[[-3.0, 1.0]] * 3])

    tuned = task.calibrated(task.answers(outputs, features, examples))

    decisions = np.array([[0.0, logit] for row in outputs for logit in row[0]])
    truth = [name in (one.labels or ()) for one in examples for name in ("a", "b")]
    assert tuned.temperature == fit_temperature(decisions, np.array(truth, dtype=np.int64))
    assert tuned.temperature != 1
    low, high = (1 / (1 + math.exp(each / tuned.temperature)) for each in (3, 1))
    assert tuned.thresholds == {"a": pytest.approx((low + high) / 2)}
    assert task.answers(outputs, features, examples).metrics()["macro_f1"] == pytest.approx(0.5)
    metrics = tuned.answers(outputs, features, examples).metrics()
    assert metrics["macro_f1"] == 1.0
    assert metrics["per_label"]["b"]["threshold"] is None


def test_thresholds_of_other_labels_are_refused() -> None:
    settings = {"thresholds": {"c": 0.5}}
    with pytest.raises(ConfigError, match=r"thresholds is .*; its keys must be names of labels"):
        task_for(ModelMetadata("multi-label", ("a", "b"), settings=settings))


def test_an_option_chooses_it_and_others_are_refused() -> None:
    assert task_class("classify", ClassOptions(multi_label=True)) is MultiLabelClassification
    with pytest.raises(UsageError, match="class_weight has no meaning for multi-label"):
        task_class("classify", ClassOptions(multi_label=True, class_weight="balanced"))
    with pytest.raises(UsageError, match="multi_label has no meaning for regress"):
        task_class("regress", ClassOptions(multi_label=True))
    with pytest.raises(UsageError, match="TASK is 'multi-label'"):
        task_class("multi-label")


@given(st.lists(st.sets(st.sampled_from("abc")).map(tuple), min_size=12, max_size=40))
def test_every_label_of_two_texts_is_on_both_sides(sets: list[tuple[str, ...]]) -> None:
    examples = examples_of(*sets)

    train, dev = MultiLabelClassification.hold_out(examples, 0.25, seed=1)

    assert sorted([*train, *dev], key=lambda one: one.row) == examples
    counts = {name: sum(name in each for each in sets) for name in "abc"}
    rarest = [min(each, key=lambda name: counts[name]) for each in sets if each]
    for name in "abc":
        if rarest.count(name) > 1:
            assert any(name in (one.labels or ()) for one in train)
            assert any(name in (one.labels or ()) for one in dev)


def test_the_data_are_checked() -> None:
    task = MultiLabelClassification(["a", "b", "c"])
    train = [*examples_of(("a",), ("a", "b"), (), ("a", "c")), *examples_of(("a",), ("b", "a"))]
    dev = examples_of(("a",), ("c",))

    report = task.check(TrainingData(train, dev, labelled(task, train), labelled(task, dev), 128))

    assert report.label_counts == {"a": 5, "b": 2, "c": 1}
    assert "labels: 1.33 a text on average; without any: 1 text" in report.facts
    told = in_python("\n".join(report.warnings))
    assert "2 training examples repeating an earlier one, text and label (lines 2, 3)" in told
    assert "labels that no dev example has: 'b' 2 in training" in told
    assert "labels with a single training example: 'c'" in told
    assert "contradictory" not in told
    assert not report.errors

    torn = [*train, *examples_of(("b",))]
    told = "\n".join(task.check(TrainingData(torn, dev, [], [], 128)).warnings)
    assert "1 text with contradictory labels" in told
    report = task.check(TrainingData(train, examples_of(("d",)), [], [], 128))
    assert "labels of dev examples that no training example has: 'd' 1" in report.errors[0]
    report = task.check(TrainingData(examples_of((), ()), None, [], [], 128))
    assert "no training example has a label" in report.errors[0]


@pytest.fixture(scope="module")
def tuned(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, toy_arguments: Callable[..., Any]
) -> tuple[Path, FinetunedModel]:
    run = tmp_path_factory.mktemp("labels") / "run"
    finished = run_finetuning(
        FinetuningJob(
            MultiLabelClassification(NAMES),
            tiny_model,
            toy_texts(192, 0),
            toy_texts(64, 1),
            toy_arguments(num_train_epochs=10, seed=1),
            max_seq_length=16,
            out=run,
        )
    )
    return run, finished


def test_a_tiny_model_learns_sets_of_labels(tuned: tuple[Path, FinetunedModel]) -> None:
    run, finished = tuned
    assert finished.result.metrics["subset_accuracy"] > 0.9
    stored = json.loads((run / "tidybert.json").read_text())
    assert set(stored["settings"]["thresholds"]) == set(NAMES)

    predictor = Predictor(run)
    answers = predictor.predict(["the red cat", "we saw the old", "the hen"])

    assert [answer["labels"] for answer in answers] == [["animal", "colour"], [], ["animal"]]
    found = predictor.evaluate(toy_texts(64, 1))
    assert found["micro_f1"] == pytest.approx(finished.result.metrics["micro_f1"])


def test_transformers_opens_the_run_to_the_same_probabilities(
    tuned: tuple[Path, FinetunedModel],
) -> None:
    """But for the temperature, which it does not know."""
    import transformers

    run, finished = tuned
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    with torch.no_grad():
        logits = theirs(**tokenizer("the red cat", return_tensors="pt")).logits[0]

    (answer,) = Predictor(run).predict(["the red cat"])

    temperature = finished.task.settings()["temperature"]
    expected = (logits / temperature).sigmoid()
    assert theirs.config.problem_type == "multi_label_classification"
    assert theirs.config.id2label == {0: "animal", 1: "colour"}
    assert list(answer["scores"].values()) == pytest.approx(expected.tolist(), abs=1e-5)


def test_through_the_shell(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = tmp_path / "train.csv", tmp_path / "run"
    rows = [
        f"{one.text},{int('animal' in one.labels)},{int('colour' in one.labels)}"
        for one in toy_texts(60, 0)
    ]
    path.write_text("\n".join(["text,animal,colour", *rows]) + "\n")
    columns = ["--label", "animal,colour"]
    flags = ["--train", str(path), "--out", str(run), "--max-seq-length", "16", "--max-steps", "2"]

    words = ["finetune", "classify", str(tiny_model), "--multi-label", *flags, *columns]
    assert shell.run([*words, "--dev-fraction", "0.1"]) == 0
    captured = capsys.readouterr()
    assert "macro_average_precision" in captured.out
    assert "threshold" in captured.out
    assert "- not tuned, so 0.5 decides: animal, colour (tuning takes 10 dev" in captured.out
    assert "labels: " in captured.err

    assert shell.run(["evaluate", str(run), str(path), *columns, "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["num_examples"] == 60
    assert set(metrics["per_label"]) == {"animal", "colour"}
    assert shell.run(["predict", str(run), str(path)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 60
    assert set(answers[0]) == {"labels", "scores", "num_tokens", "truncated"}


def test_a_label_that_would_only_be_measured_is_learned_instead() -> None:
    # Each text counts for one label; both texts of "b" count for others, and both may be held out.
    sets = [("a",), ("a", "b"), ("c",), ("c", "b"), ("a",), ("c",)]
    for seed in range(20):
        train, dev = MultiLabelClassification.hold_out(examples_of(*sets), 0.5, seed=seed)

        assert dev
        learned = {label for one in train for label in one.labels or ()}
        assert {label for one in dev for label in one.labels or ()} <= learned
