"""The rule for so many labels: the way it takes, what it leaves alone, one model everywhere."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sentence_directories import write_sentence_transformers

import tidybert
from tidybert import BertClassifier, load
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.cli import main as shell
from tidybert.files.text_examples import TextExample
from tidybert.finetuning import head_start as contrastive
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import with_best_strategy
from tidybert.finetuning.training_examples import TrainingExamples
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tags.tagging import Tagging
from tidybert.tasks.task import AnyTask
from tidybert.tasks.task_options import ClassOptions
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.training.training_arguments import TrainingArguments

Examples = Callable[..., list[TextExample]]
Way = tuple[str | None, float | None, str | None]
OPEN: Way = (None, None, None)


@pytest.fixture(scope="module")
def sentence_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MODEL whose vectors are means of tokens' states."""
    folder = tmp_path_factory.mktemp("sentences") / "model"
    encoder, tokenizer = load(tiny_model)
    write_sentence_transformers(folder, encoder, tokenizer, SentenceForm())
    return folder


@pytest.fixture
def way(sentence_model: Path) -> Callable[..., Way]:
    """The head's start, the epochs and the pooling that a job of so many texts gets."""

    def chosen(count: int, classes: int = 2, *, pair: str | None = None, **given: Any) -> Way:
        names = [f"class {number}" for number in range(classes)]
        texts = [TextExample(f"t{n}", pair, names[n % classes], n) for n in range(count)]
        arguments = TrainingArguments(**given.pop("arguments", {}))
        task = given.pop("task", Classification(names))
        model = given.pop("model", sentence_model)
        job = FinetuningJob(task, model, texts, None, arguments, **given)
        found, why = with_best_strategy(job, TrainingExamples(task, texts, None))
        assert (why is None) == (found is job)
        return found.arguments.head_start, found.arguments.num_train_epochs, found.arguments.pooling

    return chosen


@pytest.mark.parametrize(
    ("count", "classes", "expected"),
    [
        (16, 2, ("contrastive", 0, "mean")),
        (100, 2, ("contrastive", 0, "mean")),
        # 100 steps of 32 texts.
        (101, 2, (None, 31.7, "mean")),
        (300, 2, (None, 10.7, "mean")),
        (999, 20, ("contrastive", 0, "mean")),
        (168, 21, (None, 19.1, "mean")),
        (999, 2, (None, 3.3, "mean")),
        (1000, 2, OPEN),
    ],
)
def test_the_way_follows_from_texts_and_classes(
    count: int, classes: int, expected: Way, way: Callable[..., Way]
) -> None:
    assert way(count, classes) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pooling": "cls"}, ("contrastive", 0, "cls")),
        ({"learning_rate": 0.1}, ("contrastive", 0, "mean")),
        ({"head_start": "probe"}, ("probe", 80, "mean")),
        ({"num_train_epochs": 2.0}, (None, 2, "mean")),
        ({"max_steps": 5}, (None, None, "mean")),
        ({"eval_steps": 5}, (None, 80, "mean")),
    ],
)
def test_what_is_asked_for_stays(
    arguments: dict[str, Any], expected: Way, way: Callable[..., Way]
) -> None:
    assert way(40, arguments=arguments) == expected


def test_a_trained_cls_is_read_by_a_fine_tuning(
    way: Callable[..., Way], sentence_model: Path, tmp_path: Path
) -> None:
    trained = shutil.copytree(sentence_model, tmp_path / "trained")
    description = json.loads((trained / "config.json").read_text())
    description["architectures"] = ["BertForPreTraining"]
    (trained / "config.json").write_text(json.dumps(description))

    assert way(100, model=trained) == ("contrastive", 0, "mean")
    assert way(300, model=trained) == (None, 10.7, "cls")
    assert way(300, model=trained, arguments={"pooling": "mean"}) == (None, 10.7, "mean")


def test_weighed_texts_are_fine_tuned(way: Callable[..., Way]) -> None:
    assert way(40, example_weights=[1.0] * 40) == ("contrastive", 0, "mean")
    assert way(40, example_weights=[1.0] * 39 + [2.0]) == (None, 80, "mean")
    balanced = ClassOptions(class_weight="balanced")
    assert way(40, task_options=balanced) == (None, 80, "mean")


def test_few_examples_have_small_batches(sentence_model: Path, tiny_model: Path) -> None:
    def batch(
        count: int,
        model: Path = sentence_model,
        task: AnyTask = Classification(["no", "yes"]),
        **given: Any,
    ) -> int | None:
        pairs = [TextExample(f"t{n}", "another", "no", n) for n in range(count)]
        job = FinetuningJob(task, model, pairs, None, TrainingArguments(**given))
        found, why = with_best_strategy(job, TrainingExamples(task, pairs, None))
        assert (why is None) == (found is job)
        assert (found.arguments.head_start, found.arguments.pooling) == (None, None)
        return found.arguments.train_batch_size

    assert batch(16) == batch(3000) == 8
    assert batch(3001) is None
    assert batch(16, train_batch_size=32) == 32
    assert batch(16, tiny_model) is None
    others = (Regression(), Tagging(["O", "B-PER"]), MultipleChoice(), QuestionAnswering())
    assert [batch(1000, task=each) for each in others] == [8] * 4
    without_rule = (MultiLabelClassification(["no", "yes"]), SentenceVectors())
    assert [batch(16, task=each) for each in without_rule] == [None] * 2


def test_other_jobs_stay_as_they_are(
    way: Callable[..., Way],
    tiny_model: Path,
    tiny_run: Path,
    sentence_model: Path,
    tmp_path: Path,
) -> None:
    assert way(16, model=tiny_model) == OPEN
    assert way(16, model="mini", vocab=tiny_model) == OPEN
    assert way(16, teacher=tiny_run) == OPEN
    # The encoder of a directory whose vectors tidybert does not compute can still be trained.
    other = shutil.copytree(sentence_model, tmp_path / "other")
    modules = json.loads((other / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_LSTM", "type": "models.LSTM"})
    (other / "modules.json").write_text(json.dumps(modules))
    assert way(16, model=other) == OPEN
    assert way(16, search=True, out=Path("run")) == OPEN


def test_shell_python_and_estimator_give_the_same_model(
    sentence_model: Path,
    toy_examples: Examples,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contrastive, "_FEWEST_GROUPS", 4)
    texts = [one.text for one in toy_examples(8, seed=5)]

    def answers(examples: Sequence[TextExample], folder: str) -> list[list[float]]:
        file, run = tmp_path / f"{folder}.jsonl", tmp_path / folder
        rows = [{"text": one.text, "label": one.label} for one in examples]
        file.write_text("\n".join(map(json.dumps, rows)))
        flags = ["--learning-rate", "0.01", "--max-seq-length", "16", "--out", str(run)]
        command = ["finetune", "classify", str(sentence_model), "--train", str(file), *flags]
        assert shell.run(command) == 0
        short: Any = {"learning_rate": 0.01, "max_seq_length": 16}
        trained = tidybert.finetune(str(file), model=sentence_model, **short)
        fitted = BertClassifier(sentence_model, **short)
        fitted.fit([one.text for one in examples], [one.label for one in examples])
        found = [
            [list(one["scores"].values()) for one in predictor.predict(texts)]
            for predictor in (tidybert.Predictor(run), trained.predictor)
        ]
        assert found[0] == found[1]
        np.testing.assert_allclose(fitted.predict_proba(texts), found[0], atol=1e-6)
        return found[0]

    answers(toy_examples(20), "few")
    said = capsys.readouterr().err
    assert "all 20 examples train; --dev-fraction 0.1 holds" in said
    assert "20 labelled texts of 2 classes: contrastive training, then a probe; the head" in said
    assert "transformers" not in (tmp_path / "few" / "README.md").read_text()
    arguments = json.loads((tmp_path / "few" / "arguments.json").read_text())
    assert (arguments["num_train_epochs"], arguments["pooling"]) == (0, "mean")
    assert arguments["head_start"] == "contrastive"

    answers(toy_examples(1000), "many")
    assert "100 of 1,000 examples are held out" in capsys.readouterr().err
