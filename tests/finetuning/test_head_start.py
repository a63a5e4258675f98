"""A new head begins as a probe of the encoder, or at random where that is no help."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tidybert.errors import UsageError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.loading import OpenedModel
from tidybert.system.reporter import Reporter
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.training_arguments import TrainingArguments

Toy = Callable[..., FinetunedModel]


def told_by(toy: Toy, **given: Any) -> tuple[FinetunedModel, str]:
    notes: list[str] = []
    trained = toy(reporter=Reporter(note=notes.append), **given)
    return trained, next((note for note in notes if "new head" in note), "")


def test_without_a_step_that_matters_the_probe_alone_answers(toy: Toy, tmp_path: Path) -> None:
    given = {"max_steps": 1, "learning_rate": 1e-9, "head_start": "probe"}

    trained, note = told_by(toy, run=tmp_path / "run", **given)

    assert trained.result.metrics["accuracy"] >= 0.6
    assert note.startswith("the new head begins as a probe of the encoder: mean loss ")
    import transformers

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    ids = torch.tensor([[2, 9, 10, 5, 3], [2, 6, 11, 4, 3]])
    with torch.no_grad():
        found, expected = trained.model.eval()(ids), theirs.eval()(ids).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_training_begins_with_half_the_probe_and_no_training_keeps_it_whole(toy: Toy) -> None:
    whole = toy(num_train_epochs=0.0, head_start="probe").model.state_dict()
    begun = toy(max_steps=1, learning_rate=1e-9, head_start="probe").model.state_dict()

    for name in ("classifier.weight", "classifier.bias"):
        torch.testing.assert_close(begun[name], 0.5 * whole[name], atol=1e-6, rtol=1e-4)


def test_the_same_seed_and_frozen_layers_give_the_same_probe(toy: Toy) -> None:
    given = {"max_steps": 1, "learning_rate": 1e-9, "head_start": "probe"}

    first, second, frozen = (
        toy(**given, **more).model.state_dict()["classifier.weight"]
        for more in ({}, {"seed": 7}, {"freeze_layers": 1})
    )

    # The probe follows from the data alone, and the one step changes next to nothing.
    torch.testing.assert_close(first, second, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(first, frozen, atol=1e-3, rtol=1e-2)


def test_where_labels_follow_from_nothing_the_head_is_drawn(
    toy: Toy, toy_examples: Callable[..., list[TextExample]]
) -> None:
    same = [
        TextExample("the cat", None, ("animal", "colour")[row % 2], row) for row in range(1, 41)
    ]
    given = {"train": same, "max_steps": 1, "learning_rate": 1e-9}

    trained, note = told_by(toy, head_start="probe", **given)
    drawn = toy(head_start="random", **given)

    assert note.startswith("the new head begins at random: a probe of the encoder does not help")
    for name, value in drawn.model.state_dict().items():
        torch.testing.assert_close(trained.model.state_dict()[name], value)


def test_a_resumed_run_does_not_fit_it_again(toy: Toy, tmp_path: Path) -> None:
    given = {"head_start": "probe", "learning_rate": 1e-3, "run": tmp_path / "run"}

    def stop(done: Any) -> None:
        if done.step == 3:
            signal.raise_signal(signal.SIGINT)

    whole = toy(**{**given, "run": tmp_path / "whole"})
    with pytest.raises(TrainingInterrupted):
        toy(**given, reporter=Reporter(step=stop))
    resumed, note = told_by(toy, **given, resume=True)

    assert note == ""
    for name, value in whole.model.state_dict().items():
        assert resumed.model.state_dict()[name].equal(value)


def test_runs_that_differ_in_seed_and_rate_share_one_probe(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidybert.finetuning import head_start

    fits = []
    fit = head_start.fit_probe
    monkeypatch.setattr(head_start, "fit_probe", lambda *each: fits.append(1) or fit(*each))

    toy(max_steps=1, head_start="probe", seeds=2, run=tmp_path / "run")

    assert len(fits) == 1


def test_a_large_file_gives_the_probe_a_sample(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidybert.finetuning.head_start.MOST_ROWS", 25)

    _, note = told_by(toy, max_steps=1, head_start="probe")

    assert "fitted to 25 examples of 60" in note


def test_a_head_that_is_not_one_layer_can_only_be_drawn(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QuestionAnswering, "head", None)

    with pytest.raises(UsageError, match="head_start='probe': the head of answer can only begin"):
        run_finetuning(
            FinetuningJob(
                QuestionAnswering(), tiny_model, [], None, TrainingArguments(head_start="probe")
            )
        )


def test_the_probe_alone_finds_answers(toy: Toy) -> None:
    contexts = [
        f"the {colour} {animal} is {rest}"
        for colour in ("red", "blue", "green")
        for animal in ("cat", "dog", "cow", "hen")
        for rest in ("near", "old", "under")
    ]
    questions = [
        QuestionExample(str(row), "we saw", text, ((animal, text.index(animal)),), False, row)
        for row, text in enumerate(contexts, start=1)
        for animal in [text.split()[2]]
    ]

    trained, note = told_by(
        toy,
        task=QuestionAnswering(max_query_length=8),
        train=questions[::2],
        dev=questions[1::2],
        max_steps=1,
        learning_rate=1e-9,
        head_start="probe",
    )

    assert note.startswith("the new head begins as a probe of the encoder")
    assert trained.result.metrics["exact_match"] >= 0.9


def test_the_rate_follows_the_width_and_the_run_says_so(toy: Toy) -> None:
    notes: list[str] = []

    toy(max_steps=1, learning_rate=None, reporter=Reporter(note=notes.append, spell=str))

    assert TrainingArguments().for_width(768, of_tokens=True).learning_rate == 5e-5
    assert TrainingArguments().for_width(384, of_tokens=True).learning_rate == 3e-4
    assert TrainingArguments(learning_rate=2e-5).for_width(16).learning_rate == 2e-5
    assert any(note.startswith("learning rate 0.0001 for an encoder of width 16") for note in notes)


def test_a_head_on_the_mean_is_a_model_that_transformers_refuses(toy: Toy, tmp_path: Path) -> None:
    trained = toy(pooling="mean", head_start="probe", run=tmp_path / "run")

    model = OpenedModel(tmp_path / "run").finished.model

    ids = torch.tensor([[2, 9, 10, 5, 3], [2, 6, 11, 4, 3]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids), trained.model(ids))
    import transformers

    with pytest.raises(ValueError, match="bert-mean"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")


@pytest.mark.parametrize(("pooling", "is_new"), [(None, False), ("cls", True)])
def test_a_model_with_a_head_on_the_mean_goes_on(
    pooling: str | None, is_new: bool, toy: Toy, tmp_path: Path
) -> None:
    toy(pooling="mean", max_steps=1, run=tmp_path / "run")

    further, note = told_by(
        toy, model=tmp_path / "run", pooling=pooling, head_start="probe", max_steps=1
    )

    assert (note != "") == is_new
    assert further.config.model_type == ("bert" if is_new else "bert-mean")


def test_a_head_on_every_token_has_no_pooling(tiny_model: Path) -> None:
    with pytest.raises(UsageError, match="pooling='mean': the head of answer reads every token"):
        run_finetuning(
            FinetuningJob(
                QuestionAnswering(), tiny_model, [], None, TrainingArguments(pooling="mean")
            )
        )
