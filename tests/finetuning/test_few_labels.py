"""Few labels: folds inside the labelled texts choose among three ways."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidybert
from tidybert.cli import main as shell
from tidybert.errors import DataError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning import contrastive, few_labels
from tidybert.finetuning.few_labels import choose_way, recommend_few, ways
from tidybert.tasks.classification import Classification
from tidybert.training.training_arguments import TrainingArguments

Examples = Callable[..., list[TextExample]]
SHORT = {"learning_rate": 0.01, "max_seq_length": 16}


def test_each_way_answers_every_example_once(
    toy_examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [*toy_examples(24), *toy_examples(2)]
    seen: list[tuple[set[str], str | None, float]] = []
    notes: list[str] = []

    def train(some: Sequence[Any], arguments: TrainingArguments) -> Any:
        seen.append(({one.text for one in some}, arguments.head_start, arguments.num_train_epochs))
        return arguments

    def right(trained: Any, held_out: Sequence[TextExample]) -> list[bool]:
        if trained.num_train_epochs:
            return [True] * len(held_out)
        is_probe = trained.head_start == "probe"
        return [is_probe and one.label == "animal" for one in held_out]

    monkeypatch.setattr(few_labels, "_right", right)
    task = Classification(("animal", "colour"))
    found = choose_way(task, examples, TrainingArguments(), train, notes.append)

    animals = sum(one.label == "animal" for one in examples) / len(examples)
    assert found.accuracies == {"contrastive": 0, "fine-tuning": 1, "probe": animals}
    assert found.name == "fine-tuning"
    assert found.arguments.pooling == "mean"
    assert (found.arguments.head_start, found.arguments.num_train_epochs) == ("probe", 20)
    assert [each[1:] for each in seen[::4]] == [("contrastive", 0), ("probe", 20), ("probe", 0)]
    texts = {one.text for one in examples}
    held_out = [texts - each[0] for each in seen[:4]]
    # Equal texts are in one fold, and each text is in exactly one.
    assert sorted(text for fold in held_out for text in fold) == sorted(texts)
    assert notes[-1] == "few labels: fine-tuning is taken, and now trains on all 26 examples"


def test_another_way_is_taken_only_where_it_is_clearly_better() -> None:
    first = [True] * 10 + [False] * 10

    def best(gained: int, lost: int) -> str:
        other = [n >= lost for n in range(10)] + [n < gained for n in range(10)]
        return few_labels._best({"first": np.array(first), "other": np.array(other)})

    # The difference must be more than the square root of the number that differ.
    assert [best(*each) for each in [(0, 0), (1, 0), (2, 0), (5, 2), (6, 2), (0, 5)]] == [
        "first", "first", "other", "other", "other", "first",
    ]  # fmt: skip
    assert best(4, 2) == "first"


def test_epochs_of_fine_tuning_are_those_of_a_hundred_steps() -> None:
    epochs = [
        ways(count, TrainingArguments())["fine-tuning"].num_train_epochs
        for count in (16, 320, 2000)
    ]

    assert epochs == [20, 10, 5]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (140, "at most 64 examples a class, and '(animal|colour)' has 70"),
        (1, "has 1 example: label one more"),
    ],
)
def test_what_does_not_fit_is_refused(count: int, message: str, toy_examples: Examples) -> None:
    task, examples = Classification(("animal", "colour")), toy_examples(count)

    with pytest.raises(DataError, match=message):
        choose_way(task, examples, TrainingArguments(), lambda *_: None, print)  # type: ignore[arg-type,return-value]


def test_the_shell_and_python_write_the_same_run(
    tiny_model: Path,
    toy_examples: Examples,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contrastive, "_FEWEST_GROUPS", 4)
    rows = [{"text": one.text, "label": one.label} for one in toy_examples(4)]
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    flags = ["--learning-rate", "0.01", "--max-seq-length", "16"]
    command = ["finetune", "classify", str(tiny_model), "--train", str(file), *flags]

    assert shell.run([*command, "--few", "--out", str(tmp_path / "run"), "--json"]) == 0
    shown = capsys.readouterr()
    trained = tidybert.finetune(str(file), model=tiny_model, few=True, **SHORT)  # type: ignore[arg-type]

    found = json.loads(shown.out)["few"]
    assert list(found["accuracies"]) == ["contrastive", "fine-tuning", "probe"]
    assert found["chosen"] in found["accuracies"]
    texts = [one.text for one in toy_examples(8, seed=5)]
    predictor = tidybert.Predictor(tmp_path / "run")
    assert predictor.predict(texts) == trained.predictor.predict(texts)
    arguments = json.loads((tmp_path / "run" / "arguments.json").read_text())
    assert (arguments["few"], arguments["dev_fraction"], arguments["pooling"]) == (False, 0, "mean")
    assert arguments["new_head"]


def test_a_training_on_few_labels_recommends_it(
    tiny_model: Path, toy_examples: Examples, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "train.csv"
    rows = ["text,label", *(f"{one.text},{one.label}" for one in toy_examples(20))]
    file.write_text("\n".join(rows))
    command = ["finetune", "classify", str(tiny_model), "--train", str(file), "--max-steps", "1"]

    assert shell.run([*command, "--max-seq-length", "16", "--out", str(tmp_path / "run")]) == 0

    assert "few labels: 9 examples a class on average; --few compares" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "recommends"), [(31, True), (32, False)])
def test_it_is_recommended_below_sixteen_a_class(count: int, recommends: bool) -> None:
    said: list[str] = []

    recommend_few(Classification(["animal", "colour"]), count, said.append)

    assert bool(said) == recommends


def test_a_pooling_that_is_given_stays(toy_examples: Examples) -> None:
    given = TrainingArguments(pooling="cls")
    poolings = []

    def train(_examples: Sequence[Any], arguments: TrainingArguments) -> Any:
        poolings.append(arguments.pooling)
        raise KeyboardInterrupt

    task = Classification(["animal", "colour"])
    with pytest.raises(KeyboardInterrupt):
        choose_way(task, toy_examples(8), given, train, print)

    assert poolings == ["cls"]
