"""Several seeds and the search: what is tried, what is kept, and how a stopped one goes on."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidybert.configuration import BertConfig
from tidybert.errors import DivergedError, TrainingError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuned_model import Trials
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import (
    run_trials,
    search_variants,
    shared_settings,
    variants_of,
)
from tidybert.finetuning.training_examples import TrainingExamples
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import Classification
from tidybert.training.training_arguments import TrainingArguments


class FakeTraining:
    """Stands for fine-tuning: the accuracy follows from the arguments, a second an epoch.

    Of the seeds in ``diverging`` the loss is not finite.
    """

    def __init__(self, diverging: Sequence[int] = ()) -> None:
        self.seen: list[tuple[TrainingArguments, bool]] = []
        self.diverging = diverging

    def __call__(self, job: FinetuningJob) -> Any:
        arguments, run = job.arguments, job.out
        assert run is not None
        self.seen.append((arguments, job.resume))
        run.mkdir(parents=True, exist_ok=True)
        if arguments.seed in self.diverging:
            (run / "checkpoints" / "step-1").mkdir(parents=True)
            raise DivergedError(f"seed {arguments.seed}: the loss is nan")
        accuracy = (
            1 - 1e3 * abs((arguments.learning_rate or 5e-5) - 1e-4) - 0.01 * arguments.seed % 7
        )
        for name in ("model.safetensors", "tidybert.json"):
            (run / name).write_text(str(accuracy))
        result = SimpleNamespace(metrics={"accuracy": accuracy}, seconds=arguments.epochs)
        return SimpleNamespace(result=result, collapsed=None)


def a_job(run: Path, **given: Any) -> FinetuningJob:
    arguments = given.pop("arguments", TrainingArguments(seed=5))
    return FinetuningJob("classify", "base", "a.csv", None, arguments, out=run, **given)


def try_all(train: Any, run: Path, **given: Any) -> Trials:
    """Runs the trials of a job: a search, or the seeds from 5 on."""
    last = {
        "shared": {},
        "metric": "accuracy",
        "reporter": Reporter(note=given.pop("note", lambda _line: None), spell=str),
        **{name: given.pop(name) for name in ("shared",) if name in given},
    }
    variants = given.pop("variants", None)
    job = a_job(run, **given)
    return run_trials(job, variants or variants_of(job), train, **last)


def tried(training: FakeTraining) -> list[tuple[float, int, float]]:
    return [
        (each.learning_rate, each.train_batch_size, each.num_train_epochs)
        for each, _ in training.seen
    ]


def test_the_grid_is_the_papers_and_that_of_the_miniatures() -> None:
    base = search_variants(BertConfig.from_name("base"))
    mini = search_variants(BertConfig.from_name("mini"))

    grid = [tuple(varied.values()) for _, varied in base]
    assert sorted(grid) == sorted(
        (rate, size, epochs)
        for rate in (5e-5, 3e-5, 2e-5)
        for size in (16, 32)
        for epochs in (2.0, 3.0, 4.0)
    )
    assert grid[0] == (5e-5, 32, 3.0)
    assert {varied["learning_rate"] for _, varied in mini} == {3e-4, 1e-4, 5e-5, 3e-5}
    assert len({name for name, _ in mini}) == len(mini) == 24


def test_the_best_trial_becomes_the_run(tmp_path: Path) -> None:
    training, variants = FakeTraining(), search_variants(BertConfig.from_name("mini"))
    notes: list[str] = []

    arguments = TrainingArguments(seed=1)
    trials = try_all(
        training, tmp_path, search=True, variants=variants, arguments=arguments, note=notes.append
    )

    assert trials.best.name == "rate-0.0001-batch-32-epochs-3"
    assert (tmp_path / "tidybert.json").read_text() == str(trials.best.metrics["accuracy"])
    assert len(training.seen) == len(trials.trials) == 24
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("model.safetensors"))
    assert left == ["model.safetensors"]
    written = json.loads((tmp_path / "trials.json").read_text())["trials"]
    assert [each["name"] for each in written] == [each.name for each in trials.trials]
    assert "rate-0.0003-batch-32-epochs-3: accuracy 0.79" in notes[1]


def test_a_time_limit_leaves_out_what_would_not_end_in_time(tmp_path: Path) -> None:
    training = FakeTraining()

    variants = search_variants(BertConfig.from_name("base"))
    trials = try_all(training, tmp_path, search=True, variants=variants, time_limit=8.5 / 60)

    # Two of three epochs, a second each; then one of two still fits.
    assert [epochs for _, _, epochs in tried(training)] == [3.0, 3.0, 2.0]
    assert trials.num_untried == 15


def test_a_stopped_search_goes_on_with_the_next_trial(tmp_path: Path) -> None:
    first = FakeTraining()

    def stops(job: FinetuningJob) -> Any:
        if job.arguments.seed == 6:
            assert job.out is not None
            job.out.mkdir(parents=True)
            raise KeyboardInterrupt
        return first(job)

    with pytest.raises(KeyboardInterrupt):
        try_all(stops, tmp_path, seeds=3)
    second = FakeTraining()
    trials = try_all(second, tmp_path, seeds=3)

    assert [(each.seed, resumed) for each, resumed in second.seen] == [(6, True), (7, False)]
    assert [each.name for each in trials.trials] == ["seed-5", "seed-6", "seed-7"]
    mean, deviation = trials.spread("accuracy")
    values = [each.metrics["accuracy"] for each in trials.trials]
    assert mean == pytest.approx(sum(values) / 3)
    assert deviation == pytest.approx((sum((each - mean) ** 2 for each in values) / 2) ** 0.5)


def test_a_trial_that_diverges_is_written_down_and_the_next_one_begins(tmp_path: Path) -> None:
    notes: list[str] = []

    trials = try_all(FakeTraining(diverging=(5, 7)), tmp_path, seeds=4, note=notes.append)

    assert [each.error for each in trials.trials] == [
        "seed 5: the loss is nan", None, "seed 7: the loss is nan", None,
    ]  # fmt: skip
    assert "seed-5: it failed: seed 5: the loss is nan" in notes
    assert (trials.num_failed, trials.best.name) == (2, "seed-6")
    values = [trials.trials[at].metrics["accuracy"] for at in (1, 3)]
    assert trials.spread("accuracy")[0] == pytest.approx(sum(values) / 2)
    written = json.loads((tmp_path / "trials.json").read_text())["trials"]
    assert written[0]["error"] == "seed 5: the loss is nan"
    assert written[0]["metrics"] == {}
    # What a failed trial would go on from is of no use.
    assert not list(tmp_path.glob("trials/*/checkpoints"))


def test_a_trial_that_failed_is_not_run_again(tmp_path: Path) -> None:
    def stops(job: FinetuningJob) -> Any:
        if job.arguments.seed == 6:
            raise KeyboardInterrupt
        return FakeTraining(diverging=(5,))(job)

    with pytest.raises(KeyboardInterrupt):
        try_all(stops, tmp_path, seeds=3)
    training = FakeTraining()
    trials = try_all(training, tmp_path, seeds=3)

    assert [each.seed for each, _ in training.seen] == [6, 7]
    assert [each.error for each in trials.trials] == ["seed 5: the loss is nan", None, None]


def test_where_all_trials_fail_there_is_no_model(tmp_path: Path) -> None:
    training = FakeTraining(diverging=(5, 6))

    for _ in range(2):
        with pytest.raises(TrainingError, match=r"all 2 trials failed .* seed 5: the loss is nan"):
            try_all(training, tmp_path, seeds=2)

    assert len(training.seen) == 2
    assert len(json.loads((tmp_path / "trials.json").read_text())["trials"]) == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"learning_rate": 1e-4}, "learning_rate: 5e-05 before, 0.0001 now"),
        ({"max_steps": 7}, "max_steps: not given before, 7 now"),
        ({"task": "regress"}, "TASK: classify before, regress now"),
        (
            {"model": "cd" * 32, "train": "ef" * 32},
            r"MODEL: not the same as before\n  train: not the same as before",
        ),
    ],
)
def test_other_settings_than_those_of_the_trials_are_refused(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    first, second = FakeTraining(), FakeTraining()
    shared = {
        "task": "classify", "model": "ab" * 32, "train": "cd" * 32, "learning_rate": 5e-5,
        "max_steps": None,
    }  # fmt: skip
    try_all(first, tmp_path, shared=shared)
    written = (tmp_path / "trials.json").read_text()

    with pytest.raises(UsageError, match=rf"resume: the trials in .* other .*\n  {message}"):
        try_all(second, tmp_path, seeds=2, shared={**shared, **changed})

    assert second.seen == []
    assert (tmp_path / "trials.json").read_text() == written


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"name": "seed-5"}]', "a JSON object was expected, not list"),
        ('{"shared": {}, "trials": {}}', "trials is {}; a list is needed; give a new out"),
        (
            '{"shared": {}, "trials": [{"name": "seed-5"}]}',
            "trials, item 1: missing key 'varied'; give",
        ),
        ('{"shared": {}, "trials": [NaN]}', "NaN is not a finite number"),
    ],
)
def test_a_file_of_other_trials_is_refused(tmp_path: Path, content: str, said: str) -> None:
    training = FakeTraining()
    (tmp_path / "trials.json").write_text(content)

    with pytest.raises(TrainingError, match=said):
        try_all(training, tmp_path)

    assert training.seen == []


def test_what_trials_share_is_known_by_its_content(tiny_model: Path, tmp_path: Path) -> None:
    train = [TextExample("a red one", None, "colour", 1), TextExample("a dog", None, "animal", 2)]
    moved, other = tmp_path / "moved", tmp_path / "other"
    for directory in (moved, other):
        shutil.copytree(tiny_model, directory)
    (other / "config.json").write_text((tiny_model / "config.json").read_text() + " ")

    def shared(**given: Any) -> dict[str, Any]:
        held_out = given.pop("held_out", None)
        examples = TrainingExamples(Classification(("animal", "colour")), train, held_out)
        examples = replace(examples, train=given.pop("train", train))
        chosen = {"model": tiny_model, "train": "a.csv", "out": tmp_path, **given}
        return shared_settings(FinetuningJob("classify", **chosen), examples)

    known = shared()

    assert known == shared(model=moved) == shared(arguments=TrainingArguments(tokens_per_batch=9))
    assert (known["seed"], known["vocab"], known["dev"]) == (42, None, None)
    relabelled = [train[0], replace(train[1], label="colour")]
    for now, names in (
        (shared(model=other), ["model"]),
        (shared(train=relabelled), ["train"]),
        (shared(dev="b.csv", held_out=train), ["dev_fraction", "dev"]),
        (shared(vocab=moved), ["vocab"]),
    ):
        assert [each for each in known if known[each] != now[each]] == names
    assert shared(model="mini", vocab=tiny_model)["model"] == "mini"


def test_an_error_that_is_not_the_trials_own_ends_them_all(tmp_path: Path) -> None:
    def full(_job: FinetuningJob) -> Any:
        raise TrainingError("the disk is full")

    with pytest.raises(TrainingError, match="the disk is full"):
        try_all(full, tmp_path, seeds=2)

    assert not (tmp_path / "trials.json").exists()


def test_a_failed_trial_tells_nothing_of_the_speed(tmp_path: Path) -> None:
    training = FakeTraining(diverging=(5,))
    variants = [(f"seed-{seed}", {"seed": seed}) for seed in range(5, 9)]

    trials = try_all(training, tmp_path, search=True, variants=variants, time_limit=7.5 / 60)

    # Two of three epochs, a second each, beside the one that failed at once.
    assert [each.seed for each, _ in training.seen] == [5, 6, 7]
    assert (trials.num_failed, trials.num_untried) == (1, 1)
