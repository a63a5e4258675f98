"""From examples to a RUN: it learns, it is saved whole, and it goes on after any kind of stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.checkpoints.storage import read_tensors
from tidybert.data.choices import ChoiceExample
from tidybert.data.examples import TextExample
from tidybert.data.questions import QuestionExample
from tidybert.data.tagged import TaggedExample
from tidybert.errors import DataError, TrainingError, UsageError
from tidybert.finetuning import (
    Callbacks,
    FinetunedModel,
    collapsed_to,
    finetune,
    is_finished,
    save,
)
from tidybert.inference import Predictor
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.multiple_choice import MultipleChoice
from tidybert.tasks.question_answering import QuestionAnswering
from tidybert.tasks.regression import Regression
from tidybert.tasks.tagging import Tagging
from tidybert.tokenization import BertTokenizer
from tidybert.training.arguments import TrainingArguments
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.trainer import StepReport

Examples = Callable[..., list[TextExample]]
Arguments = Callable[..., TrainingArguments]
NAMES = ("animal", "colour")


@pytest.fixture
def toy(tiny_model: Path, toy_examples: Examples, toy_arguments: Arguments) -> Callable[..., Any]:
    """Fine-tunes the tiny model for 16 steps, 4 an epoch; keywords change any of it."""

    def run_toy(**given: Any) -> FinetunedModel:
        names = TrainingArguments.__dataclass_fields__
        arguments = {name: given.pop(name) for name in list(given) if name in names}
        task = given.pop("task", None) or Classification(NAMES)
        model = given.pop("model", tiny_model)
        train = given.pop("train", None) or toy_examples(60)
        dev = given.pop("dev", toy_examples(20, seed=1))
        return finetune(
            task, model, train, dev, toy_arguments(**arguments), **{"max_seq_length": 16, **given}
        )

    return run_toy


def weights_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def at_step(step: int, action: Callable[[], None]) -> Callbacks:
    def report(done: StepReport) -> None:
        if done.step == step:
            action()

    return Callbacks(step=report)


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
        "checkpoints/step-48/model.safetensors",
        "checkpoints/step-48/optimizer.safetensors",
        "checkpoints/step-48/training_state.json",
    }
    assert not any("partial" in name or "best" in name for name in files)

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


HEAD = ("classifier.weight", "classifier.bias")


def head_of(model: FinetunedModel) -> dict[str, torch.Tensor]:
    return {name: model.model.get_parameter(name).detach() for name in HEAD}


@pytest.mark.parametrize("origin", ["tidybert", "transformers"])
def test_fine_tuned_again_for_the_same_labels_the_head_is_trained_further(
    origin: str, tiny_run: Path, toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    # Without tidybert.json, config.json alone says what the head is for.
    left_out = () if origin == "tidybert" else ("tidybert.json",)
    shutil.copytree(tiny_run, model, ignore=shutil.ignore_patterns(*left_out))
    notes: list[str] = []
    still = {"max_steps": 1, "learning_rate": 1e-30}
    finished = toy(model=model, callbacks=Callbacks(note=notes.append), **still)

    assert any("its head is trained further" in line for line in notes)
    assert any("new: none" in line for line in notes)
    assert finished.result.num_steps == 1
    stored = read_tensors(tiny_run)
    for name, value in head_of(finished).items():
        assert torch.equal(value, stored[name])

    notes.clear()
    again = toy(model=model, new_head=True, callbacks=Callbacks(note=notes.append), **still)
    assert any("new: classifier.weight, classifier.bias" in line for line in notes)
    assert not torch.equal(head_of(again)[HEAD[0]], stored[HEAD[0]])


def test_the_labels_of_a_head_that_is_trained_further_are_told_by_name(
    tiny_run: Path, toy: Callable[..., FinetunedModel]
) -> None:
    finished = toy(
        model=tiny_run,
        task=Classification(("colour", "animal")),
        max_steps=1,
        learning_rate=1e-30,
    )

    assert finished.task.label_names == ("colour", "animal")
    assert finished.result.metrics["accuracy"] > 0.95
    stored = read_tensors(tiny_run)
    for name, value in head_of(finished).items():
        assert torch.equal(value, stored[name].flip(0))


def test_fine_tuned_again_for_other_labels_or_another_task_the_head_is_new(
    tiny_run: Path, toy_examples: Examples, toy: Callable[..., FinetunedModel]
) -> None:
    notes: list[str] = []
    train = [replace(one, label=f"{one.label}s") for one in toy_examples(60)]
    given: dict[str, Any] = {"dev": None, "max_steps": 1, "callbacks": Callbacks(note=notes.append)}
    toy(model=tiny_run, task=Classification(("animals", "colours")), train=train, **given)
    assert any("its head has other labels (animal, colour)" in line for line in notes)
    assert any("new: classifier.weight, classifier.bias" in line for line in notes)

    notes.clear()
    scored = [replace(one, label=str(index)) for index, one in enumerate(train)]
    toy(model=tiny_run, task=Regression(), train=scored, **given)
    assert any("new: classifier.weight, classifier.bias" in line for line in notes)
    assert not any("its head" in line for line in notes)


def test_a_head_that_config_json_does_not_name_is_drawn_anew(
    tiny_run: Path, toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_run, model, ignore=shutil.ignore_patterns("tidybert.json"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "id2label": {"1": "animal"}}))
    notes: list[str] = []
    toy(model=model, max_steps=1, callbacks=Callbacks(note=notes.append))
    assert any("new: classifier.weight, classifier.bias" in line for line in notes)


def test_a_head_of_scores_that_is_trained_further_keeps_its_bias(
    tiny_score_run: Path, toy_examples: Examples, toy: Callable[..., FinetunedModel]
) -> None:
    train = [replace(one, label=str(99 + index % 3)) for index, one in enumerate(toy_examples(60))]
    given: dict[str, Any] = {"task": Regression(), "train": train, "dev": None}
    given |= {"max_steps": 1, "learning_rate": 1e-30}
    kept = toy(model=tiny_score_run, **given)
    assert torch.equal(head_of(kept)[HEAD[1]], read_tensors(tiny_score_run)[HEAD[1]])

    drawn = toy(model=tiny_score_run, new_head=True, **given)
    assert float(head_of(drawn)[HEAD[1]]) == 100


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
    scores = iter([0.1, 0.9, 0.3, 0.2, 0.95])
    monkeypatch.setattr(Classification, "metrics", lambda *_: {"accuracy": next(scores)})

    finished = toy(run=tmp_path / "run", save_total_limit=9)

    assert (finished.result.best_step, finished.result.metrics) == (8, {"accuracy": 0.95})
    saved = finished.model.state_dict()
    for step, is_best in ((8, True), (16, False)):
        weights = read_tensors(tmp_path / "run" / "checkpoints" / f"step-{step}")
        assert all(torch.equal(weights[name], saved[name]) for name in saved) == is_best


SENTENCES = (
    TextExample("the red", None, "colour", 1, ("warm", "dark")),
    TextExample("a cat", None, "animal", 2, ()),
)
TAGGED = (
    TaggedExample(("the", "red"), ("O", "B-colour"), 1),
    TaggedExample(("a", "cat", "is"), ("O", "O", "O"), 2),
)
SCORED = (TextExample("the red", None, "1", 1), TextExample("a cat", None, "0", 2))
QUESTIONS = (
    QuestionExample("1", "the red", "a red cat", (("cat", 6),), False, 1),
    QuestionExample("2", "the red", "the old dog", (), True, 2),
)
CHOICES = (
    ChoiceExample("the red", "", ("yes", "no"), 0, 1),
    ChoiceExample("a cat", "", ("no", "yes"), 0, 2),
)


@pytest.mark.parametrize(
    ("task", "examples", "rows", "expected"),
    [
        (Classification(NAMES), SENTENCES, [[[0, 1]], [[0, 1]]], "colour"),
        (Classification(NAMES), SENTENCES, [[[0, 1]], [[1, 0]]], None),
        # Nothing else was there to be found.
        (Classification(NAMES), SENTENCES[:1], [[[0, 1]]], None),
        (MultiLabelClassification(("dark", "warm")), SENTENCES, [[[-1, -1]]] * 2, "(none)"),
        (MultiLabelClassification(("dark", "warm")), SENTENCES, [[[1, -1]]] * 2, "dark"),
        (MultiLabelClassification(("dark", "warm")), SENTENCES, [[[1, -1]], [[-1, -1]]], None),
        (Regression(), SCORED, [[[2.5]], [[2.5]]], "2.5"),
        (Regression(), SCORED, [[[2.5]], [[2.6]]], None),
        (
            Tagging(("O", "B-colour")),
            TAGGED,
            [[[1, 0]] * 4, [[1, 0]] * 5],
            "no entity",
        ),
        (Tagging(("O", "B-colour")), TAGGED, [[[0, 1]] * 4, [[1, 0]] * 5], None),
        (
            QuestionAnswering(no_answers=True, max_query_length=4),
            QUESTIONS,
            [[[9, 9]] + [[0, 0]] * 7] * 2,
            "no answer",
        ),
        (
            QuestionAnswering(no_answers=True, max_query_length=4),
            QUESTIONS,
            [[[9, 9]] + [[0, 0]] * 7, [[0, 0]] * 7 + [[9, 9]]],
            None,
        ),
        (MultipleChoice(), CHOICES, [[[1], [0]], [[0], [1]]], "yes"),
        (MultipleChoice(), CHOICES, [[[1], [0]], [[1], [0]]], None),
    ],
)
def test_one_answer_to_everything_is_a_collapse(
    task: Any, examples: Any, rows: Any, expected: str | None, tiny_model: Path
) -> None:
    features = task.features(examples, BertTokenizer.from_pretrained(tiny_model), 16)
    task.add_labels(features, examples)
    outputs = [np.array(each, dtype=np.float32) for each in rows]

    assert collapsed_to(task, outputs, features, examples) == expected


def test_one_other_answer_among_many_is_no_collapse(tiny_model: Path) -> None:
    task, examples = Classification(NAMES), SENTENCES * 100
    features = task.features(examples, BertTokenizer.from_pretrained(tiny_model), 16)
    task.add_labels(features, examples)
    outputs = [np.array([[0, 1]], dtype=np.float32)] * 200

    assert collapsed_to(task, outputs, features, examples) == "colour"
    outputs[-1] = np.array([[1, 0]], dtype=np.float32)
    assert collapsed_to(task, outputs, features, examples) is None


def test_a_model_that_collapsed_says_so(
    toy: Callable[..., FinetunedModel], toy_examples: Examples
) -> None:
    train = [replace(one, label="animal") for one in toy_examples(59)] + toy_examples(60)[:1]

    assert toy(train=train, max_steps=4).collapsed == "animal"
    assert toy(dev=None, max_steps=1).collapsed is None


@pytest.mark.parametrize("vocab", ["directory", None])
def test_a_size_begins_from_random_weights_and_needs_a_vocabulary(
    vocab: str | None, toy: Callable[..., FinetunedModel], tiny_model: Path
) -> None:
    if vocab is None:
        with pytest.raises(UsageError, match="--vocab"):
            toy(model="tiny", max_steps=1)
        return
    notes: list[str] = []
    finished = toy(
        model="tiny", vocab=tiny_model, max_steps=1, callbacks=Callbacks(note=notes.append)
    )
    assert (finished.config.hidden_size, finished.config.vocab_size) == (128, 24)
    assert any("random weights" in line for line in notes)


def test_weights_have_a_vocabulary_of_their_own(
    toy: Callable[..., FinetunedModel], tiny_model: Path
) -> None:
    with pytest.raises(UsageError, match="--vocab goes with a size"):
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
    with pytest.raises(ValueError, match="1 weights were given for 60 examples"):
        trained([1.0])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"max_seq_length": 33}, UsageError, "--max-seq-length is 33, .* 32 tokens"),
        ({"dev": None, "early_stopping_patience": 2}, UsageError, "--early-stopping-patience"),
        ({"freeze_layers": 3}, UsageError, "--freeze-layers is 3"),
        ({"device": "gpu"}, UsageError, "--device gpu"),
        ({"dev": [TextExample("red", None, "fish", 1)]}, DataError, "fish"),
        ({"train": [TextExample("red", None, "colour", 1)] * 3}, DataError, "two classes"),
        ({"train": [TextExample("red", None, "fish", 4)] * 3}, DataError, "fish"),
        ({"task": Regression()}, DataError, "no finite number"),
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
    with pytest.raises(UsageError, match="is not empty; give a new directory"):
        toy(run=tmp_path)
    with pytest.raises(UsageError, match="is not empty; give a new directory"):
        toy(run=tiny_run)
    (tmp_path / "begun" / "checkpoints" / "step-3").mkdir(parents=True)
    with pytest.raises(UsageError, match="is not empty; --resume goes on with it"):
        toy(run=tmp_path / "begun")
    with pytest.raises(UsageError, match="is finished"):
        toy(run=tiny_run, resume=True)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_after_a_signal_the_run_goes_on_to_the_same_bits(
    number: signal.Signals, status: int, toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    toy(run=tmp_path / "whole")
    interrupt = at_step(6, lambda: signal.raise_signal(number))
    with pytest.raises(TrainingInterrupted) as stopped:
        toy(run=tmp_path / "cut", callbacks=interrupt)
    assert stopped.value.exit_status == status
    assert not is_finished(tmp_path / "cut")

    notes: list[str] = []
    resumed = toy(run=tmp_path / "cut", resume=True, callbacks=Callbacks(note=notes.append))

    assert resumed.result.resumed_from == 6
    assert "resuming after step 6 of 16" in notes
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")


def without_last(examples: list[TextExample]) -> list[TextExample]:
    return examples[:-1]


@pytest.mark.parametrize(
    "change",
    ["learning_rate", "train", "label", "order", "dev", "moved", "weights", "classes", "model"],
)
def test_with_other_arguments_data_or_weights_it_does_not_go_on(
    change: str,
    toy: Callable[..., FinetunedModel],
    toy_examples: Examples,
    tiny_run: Path,
    tmp_path: Path,
) -> None:
    def stop() -> None:
        signal.raise_signal(signal.SIGINT)

    run = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        toy(run=run, callbacks=at_step(2, stop))
    before = (run / "arguments.json").read_bytes()
    train, dev = toy_examples(60), toy_examples(20, seed=1)
    relabelled = [replace(train[0], label=NAMES[train[0].label == "animal"]), *train[1:]]
    given: dict[str, Any] = {
        "learning_rate": {"learning_rate": 1e-3},
        "train": {"train": without_last(train)},
        "label": {"train": relabelled},
        "order": {"train": train[::-1]},
        "dev": {"dev": without_last(dev)},
        "moved": {"train": without_last(train), "dev": [train[-1], *dev]},
        "weights": {"example_weights": [2.0] + [1.0] * 59},
        "classes": {"task": Classification(NAMES, {"animal": 1.0, "colour": 2.0})},
        "model": {"model": tiny_run},
    }[change]

    with pytest.raises(TrainingError, match="other arguments, data or weights"):
        toy(run=run, resume=True, **given)

    assert (run / "arguments.json").read_bytes() == before
    assert toy(run=run, resume=True).result.resumed_from == 2


def test_a_run_without_a_checkpoint_yet_is_resumed_from_its_beginning(
    toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        toy(run=tmp_path / "run", callbacks=at_step(2, kill))

    assert toy(run=tmp_path / "run", resume=True).result.resumed_from == 0


def test_a_kill_between_the_models_files_costs_nothing(
    toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    toy(run=run, dev=None)
    expected = weights_of(run)
    # tidybert.json is in place, the weights are not.
    (run / "model.safetensors").unlink()
    assert not is_finished(run)

    resumed = toy(run=run, dev=None, resume=True)

    assert resumed.result.num_examples == 0
    assert weights_of(run) == expected
    assert is_finished(run)


# Fine-tunes as ``toy`` does, in a process of its own; it dies while writing step-N if told so.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from tidybert.data.examples import TextExample
from tidybert.finetuning import Callbacks, finetune
from tidybert.tasks.classification import Classification
from tidybert.training import state
from tidybert.training.arguments import TrainingArguments

given = json.loads(sys.argv[1])
write = state.write_tensors

def write_half(path, tensors):
    written = write(path, tensors)
    if given["die_writing"] and given["die_writing"] in str(path) and "optimizer" in path.name:
        written.write_bytes(written.read_bytes()[:1000])
        os.kill(os.getpid(), signal.SIGKILL)
    return written

state.write_tensors = write_half
finetune(
    Classification(["animal", "colour"]),
    given["model"],
    [TextExample(*each) for each in given["train"]],
    [TextExample(*each) for each in given["dev"]],
    TrainingArguments(**given["arguments"]),
    max_seq_length=16,
    run=Path(given["run"]),
    # Slow enough for a kill from outside to come in the middle.
    callbacks=Callbacks(step=lambda done: time.sleep(given["pause"])),
)
"""


@pytest.fixture
def start_process(
    tiny_model: Path, toy_examples: Examples, toy_arguments: Arguments
) -> Callable[..., "subprocess.Popen[bytes]"]:
    def as_list(examples: list[TextExample]) -> list[Any]:
        return [[one.text, one.text_pair, one.label, one.row] for one in examples]

    def start(run: Path, die_writing: str, pause: float, **arguments: Any) -> Any:
        given = {
            "model": str(tiny_model),
            "train": as_list(toy_examples(60)),
            "dev": as_list(toy_examples(20, seed=1)),
            "arguments": toy_arguments(**arguments).to_dict(),
            "run": str(run),
            "die_writing": die_writing,
            "pause": pause,
        }
        return subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(given)])

    return start


def test_a_run_killed_in_mid_epoch_goes_on_to_the_same_bits(
    start_process: Callable[..., Any], toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    toy(run=tmp_path / "whole", save_steps=3)
    run = tmp_path / "killed"

    process = start_process(run, "", 0.2, save_steps=3)
    while process.poll() is None and not (run / "checkpoints" / "step-6").exists():
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    resumed = toy(run=run, save_steps=3, resume=True)

    assert 6 <= resumed.result.resumed_from < 16
    assert weights_of(run) == weights_of(tmp_path / "whole")
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    for ours, theirs in zip(steps, map(json.loads, expected), strict=True):
        assert {**ours, "tokens_per_second": 0} == {**theirs, "tokens_per_second": 0}


def test_a_run_killed_while_it_writes_goes_on_from_the_checkpoint_before(
    start_process: Callable[..., Any], toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    toy(run=tmp_path / "whole", save_steps=3)
    run = tmp_path / "killed"

    assert start_process(run, "step-9", 0, save_steps=3).wait() == -signal.SIGKILL
    assert {path.name for path in (run / "checkpoints").iterdir()} == {
        "step-6", ".step-9.partial", "best",
    }  # fmt: skip

    assert toy(run=run, save_steps=3, resume=True).result.resumed_from == 6
    assert weights_of(run) == weights_of(tmp_path / "whole")
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-16"}


def test_damage_in_the_last_checkpoint_is_said(
    toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    toy(run=run, save_steps=3, save_total_limit=2, dev=None)
    expected = weights_of(run)
    (run / "tidybert.json").unlink()
    weights = run / "checkpoints" / "step-16" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    notes: list[str] = []

    toy(
        run=run,
        save_steps=3,
        save_total_limit=2,
        dev=None,
        resume=True,
        callbacks=Callbacks(note=notes.append),
    )

    assert any("step-16 cannot be read and is passed over" in line for line in notes)
    assert "resuming after step 15 of 16" in notes
    assert weights_of(run) == expected


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

    finished = toy(model="minilm", run=tmp_path / "run", max_steps=2, learning_rate=1e-4)
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
    from tidybert.tokenization import BertTokenizer

    directory = tmp_path / "model"
    shutil.copytree(tiny_model, directory)
    config = tiny_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (directory / "config.json").write_text(json.dumps({"model_type": "bert", **config.to_dict()}))
    train = toy_examples(60)
    arguments = TrainingArguments(learning_rate=1e-3, train_batch_size=8, num_train_epochs=2)
    losses: list[float] = []
    finetune(
        Classification(NAMES),
        directory,
        train,
        None,
        arguments,
        max_seq_length=16,
        run=tmp_path / "run",
        callbacks=Callbacks(step=lambda done: losses.append(done.loss)),
    )
    # The same head: a run of no steps to speak of has the seed's first weights.
    finetune(
        Classification(NAMES),
        directory,
        train,
        None,
        replace(arguments, learning_rate=1e-30, max_steps=1),
        max_seq_length=16,
        run=tmp_path / "first",
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
