"""A new head begins as a probe of the encoder, or at random where that is no help."""

import json
import signal
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import tidybert
from tidybert.errors import UsageError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning import head_start
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.loading import OpenedModel, load
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import ClassAnswers
from tidybert.tasks.questions.question_answering import QuestionAnswering
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tasks.registry import task_flags
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


def test_where_no_step_follows_even_a_probe_that_is_no_help_answers(toy: Toy) -> None:
    """With a text of each class nothing can be held out that the others tell."""
    texts = [TextExample("the cat", None, "animal", 1), TextExample("a red", None, "colour", 2)]

    trained, note = told_by(toy, train=texts, num_train_epochs=0.0, head_start="probe")

    assert note.startswith("the new head is a probe of the encoder, but no better than chance: ")
    found = [each["label"] for each in trained.predict(["the cat", "a red"])]
    assert found == ["animal", "colour"]


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


def test_the_start_is_kept_where_no_step_is_better(
    toy: Toy, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = chain([0.9, 0.8, 0.7, 0.9, 0.6], repeat(0.95))
    monkeypatch.setattr(ClassAnswers, "metrics", lambda *_: {"accuracy": next(scores)})

    trained, _ = told_by(toy, head_start="probe", run=tmp_path / "run")

    assert trained.result.best_step == 0
    begun, state = load(tiny_model)[0].state_dict(), trained.model.state_dict()
    for name, value in begun.items():
        if "pooler" not in name:
            assert state[f"bert.{name}"].equal(value), name
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [one["step"] for one in log if "eval_accuracy" in one] == [0, 4, 8, 12, 16]
    record = json.loads((tmp_path / "run" / "arguments.json").read_text())["record"]
    assert record["stages"].keys() == {"probe", "steps"}
    assert record["seconds"] == pytest.approx(sum(record["stages"].values()), abs=0.01)


def test_a_start_that_is_less_sure_is_not_kept(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of step 0 and of step 4 the log-loss is also that of the calibrated answers.
    scores = chain([(0.9, 2.0), (0.9, 0.5), (0.8, 0.3), (0.8, 0.4)], repeat((0.7, 0.1)))
    monkeypatch.setattr(
        ClassAnswers,
        "metrics",
        lambda *_: dict(zip(("accuracy", "log_loss"), next(scores), strict=True)),
    )

    trained, _ = told_by(toy, head_start="probe")

    assert trained.result.best_step == 4


WORDS = ["red", "blue", "cat", "dog"]


@pytest.mark.parametrize(
    ("task", "rows", "metric"),
    [
        ("classify", [(f"{a} {b}", "animal" if a in "cat dog" else "colour")
                      for a in WORDS for b in WORDS], "accuracy"),
        ("regress", [(f"{a} {b}", float(len(a) + len(b))) for a in WORDS for b in WORDS],
         "pearson"),
        ("tag", [{"words": [a, b], "tags": ["B-x" if each in "cat dog" else "O" for each in (a, b)]}
                 for a in WORDS for b in WORDS], "f1"),
        ("choose", [{"context": a, "choices": [b, f"{b} {a}"], "label": 1}
                    for a in WORDS for b in WORDS], "accuracy"),
        ("answer", [{"id": f"{a} {b}", "question": "what", "context": f"a {a} the {b} is",
                     "answers": {"text": [b], "answer_start": [len(f"a {a} the ")]}}
                    for a in WORDS for b in WORDS], "f1"),
    ],
)  # fmt: skip
def test_where_nothing_is_held_out_a_probe_is_cross_validated_by_the_tasks_own_metric(
    task: str, rows: list[Any], metric: str, tiny_model: Path, tmp_path: Path
) -> None:
    stages: list[tuple[str, int, int]] = []
    reporter = Reporter(stage=lambda *told: stages.append(told))
    options = {"max_query_length": 8} if task == "answer" else {}
    job = FinetuningJob(
        task, tiny_model, rows, arguments=TrainingArguments(max_steps=1, train_batch_size=4),
        max_seq_length=24, out=tmp_path / "run", task_options=task_flags()(**options),
    )  # fmt: skip

    found = run_finetuning(job, reporter).result.cross_validated

    assert found is not None
    assert (found["of"], found["num_examples"]) == ("a probe", 16)
    assert 2 <= found["folds"] <= 5
    low, high = found["intervals"][metric].values()
    assert low <= found["metrics"][metric] <= high
    record = json.loads((tmp_path / "run" / "arguments.json").read_text())["record"]
    assert record["cross_validated"] == found
    assert "## Cross-validated" in (tmp_path / "run" / "README.md").read_text()
    # What takes time before the first step says how far it is.
    names = dict.fromkeys(name for name, _, _ in stages)
    assert list(names) == ["probe: the encoder's states", "probe: a linear layer"]
    assert all(0 <= done <= total for _, done, total in stages)
    assert stages[-1][1:] == (10, 10)


def test_cross_validated_figures_are_those_of_layers_fitted_to_the_other_folds(
    toy: Toy, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contrast changes nothing: the probe that is measured was fitted before it."""
    rows = [(f"{a} {b}", "animal" if a in "cat dog" else "colour") for a in WORDS for b in WORDS]
    monkeypatch.setattr(head_start, "folds_of", lambda same, *_: np.arange(len(same)) % 2)
    monkeypatch.setattr(head_start, "_FEWEST_GROUPS", 2)
    found = []
    for start in ("probe", "contrastive"):
        arguments = TrainingArguments(
            num_train_epochs=0, head_start=cast(Any, start), learning_rate=0.01, pooling="mean"
        )
        job = FinetuningJob(
            "classify", tiny_model, rows, arguments=arguments, max_seq_length=16,
            task_options=task_flags()(),
        )  # fmt: skip
        found.append(run_finetuning(job).result)
    vectors = tidybert.Embedder(tiny_model, pooling="mean").embed([text for text, _ in rows])
    labels = np.array([label for _, label in rows])
    right = 0
    for fold in (0, 1):
        own = np.arange(16) % 2 == fold
        scaled = StandardScaler().fit_transform(vectors)
        theirs = LogisticRegression(C=1.0, max_iter=500).fit(scaled[~own], labels[~own])
        right += int((theirs.predict(scaled[own]) == labels[own]).sum())

    first, second = (one.cross_validated for one in found)
    assert first is not None
    assert first["metrics"] == second["metrics"]
    assert first["metrics"]["accuracy"] == pytest.approx(right / 16, abs=2 / 16)
    assert list(found[1].stages) == ["probe", "contrast"]


def test_without_two_folds_there_are_no_figures_and_that_is_said(
    tiny_model: Path,
) -> None:
    rows = [(f"the cat {at}", ("animal", "colour")[at % 2]) for at in range(8)]
    notes: list[str] = []
    arguments = TrainingArguments(num_train_epochs=0, head_start="probe")
    job = FinetuningJob(
        "classify", tiny_model, rows, arguments=arguments, max_seq_length=16,
        task_options=task_flags()(),
    )  # fmt: skip

    found = run_finetuning(job, Reporter(note=notes.append)).result.cross_validated

    assert found is None
    told = "not cross-validated: the examples are nearly the same, so there are no two folds"
    assert told in notes


def test_a_held_out_part_or_examples_of_a_program_are_no_reason_to_cross_validate(toy: Toy) -> None:
    assert toy(max_steps=1, head_start="probe").result.cross_validated is None
    assert toy(max_steps=1, head_start="probe", dev=None).result.cross_validated is None


def test_lines_on_the_model_come_after_those_on_the_data(toy: Toy) -> None:
    notes: list[str] = []
    toy(max_steps=1, reporter=Reporter(note=notes.append))

    data = max(at for at, line in enumerate(notes) if line.startswith("tokens, "))
    assert min(at for at, line in enumerate(notes) if "loaded" in line) > data
