"""From examples to a RUN: it learns, is saved whole, and what cannot be trained is refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.checkpoints.weights import to_huggingface
from tidybert.errors import DataError, DivergedError, TidyBertError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning import train as train_module
from tidybert.finetuning.finetuned_model import FinetunedModel, save
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.predictor import Predictor
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import ClassAnswers, Classification
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tokenization import BertTokenizer
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.runs.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

Examples = Callable[..., list[TextExample]]
NAMES = ("animal", "colour")


def weights_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_a_tiny_model_learns_classes_and_scores(tiny_run: Path, tiny_score_run: Path) -> None:
    metrics = json.loads((tiny_run / "tidybert.json").read_text())["metrics"]
    assert metrics["accuracy"] > 0.95

    metrics = json.loads((tiny_score_run / "tidybert.json").read_text())["metrics"]
    assert metrics["pearson"] > 0.5


def test_a_finished_run_is_a_model_with_its_history(tiny_run: Path, tiny_model: Path) -> None:
    assert is_finished(tiny_run)
    files = {str(path.relative_to(tiny_run)) for path in tiny_run.rglob("*") if path.is_file()}
    assert files >= {
        "config.json",
        "model.safetensors",
        "vocab.txt",
        "tokenizer_config.json",
        "tidybert.json",
        "arguments.json",
        "metrics.jsonl",
        "training_texts.npy",
    }
    assert not any("partial" in name or "checkpoints" in name for name in files)

    arguments = json.loads((tiny_run / "arguments.json").read_text())
    assert arguments["task"] == "classify"
    assert arguments["model"] == str(tiny_model)
    assert (arguments["learning_rate"], arguments["max_seq_length"]) == (1e-2, 16)
    metadata = json.loads((tiny_run / "tidybert.json").read_text())
    assert (metadata["label_names"], metadata["max_seq_length"]) == (["animal", "colour"], 16)
    assert json.loads((tiny_run / "config.json").read_text())["id2label"] == {
        "0": "animal",
        "1": "colour",
    }


@pytest.mark.parametrize("task", [Classification(NAMES), Regression()])
def test_a_last_step_that_is_too_large_is_told_and_not_kept(
    toy: Callable[..., FinetunedModel],
    toy_examples: Examples,
    task: Classification | Regression,
    tmp_path: Path,
) -> None:
    """No loss comes after it, so that the dev part is the first to show it."""
    run = tmp_path / "run"
    scores = isinstance(task, Regression)

    with pytest.raises(DivergedError, match="after step 2 of 2 the model's outputs on the dev"):
        toy(
            task=task,
            train=toy_examples(60, scores=scores),
            dev=toy_examples(20, seed=1, scores=scores),
            run=run,
            max_steps=2,
            warmup_proportion=0.5,
            learning_rate=1e30,
        )

    assert not is_finished(run)
    assert not list(run.rglob("*.safetensors"))


def test_in_memory_and_on_disk_are_the_same_bits(
    toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    in_memory, on_disk = toy(), toy(run=tmp_path / "run")
    save(in_memory, tmp_path / "saved")

    assert weights_of(tmp_path / "saved") == weights_of(tmp_path / "run")
    assert in_memory.result.metrics == on_disk.result.metrics
    assert not in_memory.model.training
    assert Predictor(tmp_path / "saved").predict(["red"]) == Predictor(tmp_path / "run").predict(
        ["red"]
    )


def test_the_model_saved_is_the_best_not_the_last(
    toy: Callable[..., FinetunedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four evaluations, and one of the calibrated answers of what was kept.
    scores = chain([0.1, 0.9, 0.3, 0.2], repeat(0.95))
    monkeypatch.setattr(ClassAnswers, "metrics", lambda *_: {"accuracy": next(scores)})

    finished = toy(run=tmp_path / "run", save_total_limit=9, keep_checkpoints=True)

    assert (finished.result.best_step, finished.result.metrics) == (8, {"accuracy": 0.95})
    # A checkpoint is a MODEL.
    saved = to_huggingface(finished.model.state_dict(), finished.model.config)
    for step, is_best in ((8, True), (16, False)):
        weights = read_tensors(tmp_path / "run" / "checkpoints" / f"step-{step}")
        assert all(torch.equal(weights[name], saved[name]) for name in saved) == is_best


@pytest.mark.parametrize("best", [1, 3])
def test_dev_is_answered_once_an_evaluation_and_those_of_the_best_are_kept(
    best: int,
    toy: Callable[..., FinetunedModel],
    toy_examples: Examples,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []
    run = train_module.run_features

    def counted(*given: Any, **named: Any) -> Any:
        measured.append(len(given[2]))
        return run(*given, **named)

    monkeypatch.setattr(train_module, "run_features", counted)
    monkeypatch.setattr(FineTuning, "is_better", lambda *_: len(measured) <= best)

    finished = toy(head_start="random", run=tmp_path / "run")

    assert measured == [20] * 4
    assert finished.result.best_step == 4 * best
    found = Predictor(tmp_path / "run", device="cpu").evaluate(toy_examples(20, seed=1))
    assert {name: found[name] for name in finished.result.metrics} == finished.result.metrics


@pytest.mark.parametrize("vocab", ["directory", None])
def test_a_size_begins_from_random_weights_and_needs_a_vocabulary(
    vocab: str | None, toy: Callable[..., FinetunedModel], tiny_model: Path
) -> None:
    if vocab is None:
        with pytest.raises(UsageError, match="vocab"):
            toy(model="tiny", max_steps=1)
        return
    notes: list[str] = []
    finished = toy(
        model="tiny", vocab=tiny_model, max_steps=1, reporter=Reporter(note=notes.append)
    )
    assert (finished.config.hidden_size, finished.config.vocab_size) == (128, 24)
    assert any("random weights" in line for line in notes)


def test_weights_have_a_vocabulary_of_their_own(
    toy: Callable[..., FinetunedModel], tiny_model: Path
) -> None:
    with pytest.raises(UsageError, match="vocab goes with a size"):
        toy(vocab=tiny_model)


def test_example_weights_change_the_course_and_ones_do_not(
    toy: Callable[..., FinetunedModel],
) -> None:
    def trained(weights: Any) -> torch.Tensor:
        finished = toy(max_steps=3, dev=None, example_weights=weights)
        return torch.cat([each.flatten() for each in finished.model.parameters()])

    plain = trained(None)
    assert torch.equal(trained(np.ones(60)), plain)
    assert not torch.equal(trained(np.linspace(0.1, 2, 60)), plain)
    with pytest.raises(ValueError, match="1 weights for 60 examples"):
        trained([1.0])


@pytest.mark.parametrize(
    ("task", "default"), [(QuestionAnswering(), 384), (Classification(["animal", "colour"]), 128)]
)
def test_a_length_that_is_not_given_is_the_tasks_own(
    task: Any, default: int, tiny_model: Path
) -> None:
    with pytest.raises(UsageError, match=f"max_seq_length is {default}, .* 32 tokens"):
        run_finetuning(FinetuningJob(task, tiny_model, [], None, TrainingArguments()))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"max_seq_length": 33}, UsageError, "max_seq_length is 33, .* 32 tokens"),
        ({"freeze_layers": 3}, UsageError, "freeze_layers is 3"),
        ({"device": "gpu"}, UsageError, "device='gpu'"),
        ({"dev": [TextExample("red", None, "fish", 1)]}, DataError, "fish"),
        ({"train": [TextExample("red", None, "colour", 1)] * 3}, DataError, "two classes"),
        ({"train": [TextExample("red", None, "fish", 4)] * 3}, DataError, "fish"),
        ({"task": Regression()}, DataError, "not a finite number"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    given: dict[str, Any],
    error: type[Exception],
    message: str,
    toy: Callable[..., FinetunedModel],
    tmp_path: Path,
) -> None:
    with pytest.raises(error, match=message):
        toy(run=tmp_path / "run", **given)

    assert not (tmp_path / "run").exists()


def test_a_directory_in_use_is_left_alone(
    toy: Callable[..., FinetunedModel], tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        toy(run=tmp_path / "file")
    with pytest.raises(UsageError, match="is not empty, and holds no RUN; give a new directory"):
        toy(run=tmp_path)
    with pytest.raises(UsageError, match="holds no RUN; force replaces only a RUN"):
        toy(run=tmp_path, force=True)
    with pytest.raises(UsageError, match="holds a RUN; force replaces it, or give a new dir"):
        toy(run=tiny_run)
    (tmp_path / "begun" / "checkpoints" / "step-3").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds a RUN; resume continues it, force replaces"):
        toy(run=tmp_path / "begun")
    with pytest.raises(UsageError, match="give one"):
        toy(run=tmp_path / "begun", resume=True, force=True)
    with pytest.raises(UsageError, match="is finished"):
        toy(run=tiny_run, resume=True)


def test_the_run_moves_with_its_directory(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "elsewhere")

    assert Predictor(tmp_path / "elsewhere").predict(["red"]) == Predictor(tiny_run).predict(
        ["red"]
    )


@pytest.mark.weights
def test_the_embedded_weights_fine_tuned_are_opened_by_transformers(
    minilm_directory: Path, toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    import transformers

    finished = toy(
        model="minilm",
        run=tmp_path / "run",
        max_steps=2,
        learning_rate=1e-4,
        pooling="cls",
        precision="float32",
    )
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")
    texts = ["Where is the naïve cat?", "a", "the blue house " * 4]

    inputs = tokenizer(texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        logits = theirs.eval()(**inputs).logits
    assert isinstance(finished.task, Classification)
    expected = (logits / finished.task.temperature).softmax(-1)

    answers = Predictor(tmp_path / "run").predict(texts)
    scores = torch.tensor([list(answer["scores"].values()) for answer in answers])
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    assert finished.result.num_steps == 2


def test_without_dropout_the_losses_are_those_of_transformers_step_by_step(
    tiny_model: Path,
    toy_examples: Examples,
    tmp_path: Path,
    tiny_config: Callable[..., Any],
) -> None:
    import transformers

    from tidybert.data.batching import epoch_order

    directory = tmp_path / "model"
    shutil.copytree(tiny_model, directory)
    config = tiny_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (directory / "config.json").write_text(json.dumps({"model_type": "bert", **config.to_dict()}))
    train = toy_examples(60)
    arguments = TrainingArguments(
        learning_rate=1e-3, train_batch_size=8, num_train_epochs=2, head_start="random"
    )
    losses: list[float] = []
    run_finetuning(
        FinetuningJob(
            Classification(NAMES),
            directory,
            train,
            None,
            arguments,
            max_seq_length=16,
            out=tmp_path / "run",
        ),
        Reporter(step=lambda done: losses.append(done.loss)),
    )
    # The same head: a run of no steps to speak of has the seed's first weights.
    run_finetuning(
        FinetuningJob(
            Classification(NAMES),
            directory,
            train,
            None,
            replace(arguments, learning_rate=1e-30, max_steps=1),
            max_seq_length=16,
            out=tmp_path / "first",
        )
    )
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "first")
    theirs.train()
    decayed, rest = [], []
    for name, parameter in theirs.named_parameters():
        (rest if "bias" in name or "LayerNorm" in name else decayed).append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-3,
        eps=1e-6,
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 1, len(losses))
    tokenizer = BertTokenizer.from_pretrained(directory)
    expected = []
    for epoch in range(2):
        order = epoch_order(len(train), arguments.seed, epoch)
        for start in range(0, len(train), 8):
            batch = [train[index] for index in order[start : start + 8]]
            encoded = tokenizer.encode_batch([one.text for one in batch])
            longest = max(map(len, encoded))
            ids = torch.zeros(len(batch), longest, dtype=torch.int64)
            mask = torch.zeros_like(ids)
            for row, each in enumerate(encoded):
                ids[row, : len(each)] = torch.from_numpy(each.astype(np.int64))
                mask[row, : len(each)] = 1
            labels = torch.tensor([NAMES.index(one.label or "") for one in batch])
            loss = theirs(ids, mask, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            expected.append(loss.item())

    assert len(losses) == 16
    assert losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"freeze_layers": 9}, "freeze_layers is 9, but the model has 2 layers"),
        ({"device": "cuda:99"}, "PyTorch finds no"),
        ({}, "the checkpoints and the model need .* where 1 bytes are free"),
    ],
)
def test_what_cannot_work_is_said_before_the_data_are_tokenised(
    toy: Callable[..., Any],
    given: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidybert.storage.own_files.free_bytes", lambda _: 1)
    monkeypatch.setattr(Classification, "features", None)

    with pytest.raises(TidyBertError, match=message):
        toy(run=tmp_path / "deep" / "run", **given)
    assert not list(tmp_path.iterdir())
