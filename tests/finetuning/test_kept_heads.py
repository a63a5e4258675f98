"""A model that was fine-tuned before: its head is trained further where the labels are the same."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import Classification
from tidybert.tasks.regression import Regression

Examples = Callable[..., list[TextExample]]

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
    finished = toy(model=model, reporter=Reporter(note=notes.append), **still)

    assert any("its head is trained further" in line for line in notes)
    assert any("new: none" in line for line in notes)
    assert finished.result.num_steps == 1
    stored = read_tensors(tiny_run)
    for name, value in head_of(finished).items():
        assert torch.equal(value, stored[name])

    notes.clear()
    again = toy(model=model, new_head=True, reporter=Reporter(note=notes.append), **still)
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
    given: dict[str, Any] = {"dev": None, "max_steps": 1, "reporter": Reporter(note=notes.append)}
    toy(model=tiny_run, task=Classification(("animals", "colours")), train=train, **given)
    assert any("its head has other labels (animal, colour)" in line for line in notes)
    assert any("new: classifier.weight, classifier.bias" in line for line in notes)

    notes.clear()
    scored = [replace(one, label=str(index)) for index, one in enumerate(train)]
    toy(model=tiny_run, task=Regression(), train=scored, **given)
    assert any("new: classifier.weight, classifier.bias" in line for line in notes)
    assert not any("its head" in line for line in notes)


def test_a_head_that_learned_numbers_as_they_were_written_is_trained_further(
    tiny_run: Path, toy_examples: Examples, toy: Callable[..., FinetunedModel]
) -> None:
    notes: list[str] = []
    given: dict[str, Any] = {"dev": None, "max_steps": 1, "learning_rate": 1e-30}

    def trained(model: Any, *names: str) -> FinetunedModel:
        labels = dict(zip(("animal", "colour"), names, strict=True))
        train = [replace(one, label=labels[one.label or ""]) for one in toy_examples(60)]
        note = Reporter(note=notes.append)
        return toy(model=model, task=Classification(names), train=train, reporter=note, **given)

    earlier = trained(tiny_run, "0.0", "1.0")
    notes.clear()
    later = trained(earlier, "0", "1")

    assert any("its head is trained further" in line for line in notes)
    for name, value in head_of(later).items():
        assert torch.allclose(value, head_of(earlier)[name], atol=1e-20)


def test_a_head_that_config_json_does_not_name_is_drawn_anew(
    tiny_run: Path, toy: Callable[..., FinetunedModel], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_run, model, ignore=shutil.ignore_patterns("tidybert.json"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "id2label": {"1": "animal"}}))
    notes: list[str] = []
    toy(model=model, max_steps=1, reporter=Reporter(note=notes.append))
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
