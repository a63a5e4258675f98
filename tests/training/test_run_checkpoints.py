"""Checkpoints: a run cut short goes on to the same bits, whatever the cut left behind."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tidybert.errors import TrainingError, in_python
from tidybert.options import MODEL, NOTHING, STEPS, Changes
from tidybert.storage.json_objects import json_checksum
from tidybert.system.reporter import Reporter
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.loop import TrainingLoop
from tidybert.training.reports import StepReport
from tidybert.training.runs import run_checkpoints as module
from tidybert.training.runs.run_checkpoints import RunIdentity, step_directories

Make = Callable[..., TrainingLoop]
Same = Callable[[nn.Module, nn.Module], bool]


class Cut(Exception):
    """Stands for a kill: nothing of the run's own catches it."""


def cut_after(step: int) -> Callable[[StepReport], None]:
    def report(done: StepReport) -> None:
        if done.step == step:
            raise Cut

    return report


def signal_after(step: int) -> Callable[[StepReport], None]:
    def report(done: StepReport) -> None:
        if done.step == step:
            signal.raise_signal(signal.SIGTERM)

    return report


def evaluated(make_trainer: Make, scores: dict[int, float], **given: Any) -> TrainingLoop:
    """A trainer whose model scores as ``scores`` says of its step, 0 where that says nothing."""
    made: list[TrainingLoop] = []

    def evaluate(_model: nn.Module) -> dict[str, float]:
        return {"score": scores.get(made[0].state.step, 0.0)}

    made.append(make_trainer(evaluate=evaluate, metric="score", **given))
    return made[0]


def logged(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the rates, which no two runs share."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("tokens_per_second", None)
    return lines


def passed_over(trainer: TrainingLoop) -> list[str]:
    """Resume; return the notes on checkpoints that cannot be read."""
    notes: list[str] = []
    trainer.record.reporter = Reporter(note=notes.append, spell=str)
    trainer.resume()
    assert "resum" in notes[-1]
    return notes[:-1]


def names(run: Path) -> list[str]:
    return [path.name for path in step_directories(run)]


@pytest.mark.parametrize(
    ("given", "cut", "resumed_from", "best"),
    [
        ({"save_steps": 3}, 5, 3, 2),
        ({"save_steps": 3}, 5, 3, 4),
        ({"save_steps": 5}, 10, 5, 10),
        ({}, 9, 7, 14),
        ({}, 3, 0, 2),
        ({"save_steps": 2, "freeze_layers": 1, "tokens_per_batch": 20}, 12, 10, 12),
    ],
)
def test_a_run_cut_short_ends_with_the_same_bits(
    given: dict[str, Any],
    cut: int,
    resumed_from: int,
    best: int,
    make_trainer: Make,
    same_weights: Same,
    tmp_path: Path,
) -> None:
    runs = tmp_path / "whole", tmp_path / "cut"
    for run in runs:
        run.mkdir()
    given = {**given, "scores": {best: 1.0}, "eval_steps": 2, "logging_steps": 1}
    whole = evaluated(make_trainer, run=runs[0], **given)
    expected = whole.train()

    with pytest.raises(Cut):
        evaluated(make_trainer, run=runs[1], report=cut_after(cut), **given).train()
    resumed = evaluated(make_trainer, run=runs[1], **given)
    assert passed_over(resumed) == []
    result = resumed.train()

    assert same_weights(resumed.objective.model, whole.objective.model)
    assert (result.resumed_from, result.best_step) == (resumed_from, best)
    assert (expected.best_step, expected.metrics) == (best, result.metrics)
    assert logged(runs[1]) == logged(runs[0])


def test_patience_survives_the_cut(make_trainer: Make, tmp_path: Path) -> None:
    given: dict[str, Any] = {"eval_steps": 1, "save_steps": 1, "early_stopping_patience": 3}
    scores = {1: 0.5, 2: 0.9}
    with pytest.raises(Cut):
        evaluated(make_trainer, scores, run=tmp_path, report=cut_after(4), **given).train()

    resumed = evaluated(make_trainer, scores, run=tmp_path, **given)
    resumed.resume()
    result = resumed.train()

    assert (result.resumed_from, result.num_steps, result.best_step) == (3, 5, 2)


def test_a_finished_loop_resumes_to_its_best(
    make_trainer: Make, same_weights: Same, tmp_path: Path
) -> None:
    first = evaluated(make_trainer, {3: 1.0}, run=tmp_path, eval_steps=1)
    first.train()

    again = evaluated(make_trainer, {3: 1.0}, run=tmp_path, eval_steps=1)
    again.resume()
    result = again.train()

    assert (result.num_examples, result.best_step) == (0, 3)
    assert same_weights(again.objective.model, first.objective.model)


def truncate(step: Path) -> None:
    weights = (step / "model.safetensors").read_bytes()
    (step / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def flip_a_bit(step: Path) -> None:
    content = bytearray((step / "optimizer.safetensors").read_bytes())
    content[-3] ^= 1
    (step / "optimizer.safetensors").write_bytes(content)


def empty_state(step: Path) -> None:
    (step / "training_state.json").write_text("")


def strange_state(step: Path) -> None:
    (step / "training_state.json").write_text('["no", "state"]')


def lose_moments(step: Path) -> None:
    (step / "optimizer.safetensors").unlink()


def lose_everything(step: Path) -> None:
    for path in step.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "damage", [truncate, flip_a_bit, empty_state, strange_state, lose_moments, lose_everything]
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    damage: Callable[[Path], None], make_trainer: Make, same_weights: Same, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"save_steps": 2, "save_total_limit": 2}
    whole = make_trainer(**given)
    whole.train()
    with pytest.raises(Cut):
        make_trainer(run=tmp_path, report=cut_after(7), **given).train()
    assert names(tmp_path) == ["step-4", "step-6"]
    damage(tmp_path / "checkpoints" / "step-6")

    resumed = make_trainer(run=tmp_path, **given)
    (note,) = passed_over(resumed)
    assert "step-6 cannot be read and is passed over" in note
    assert resumed.train().resumed_from == 4

    assert same_weights(resumed.objective.model, whole.objective.model)
    assert names(tmp_path) == ["step-12", "step-14"]


def test_a_damaged_checkpoint_does_not_push_out_a_good_one(
    make_trainer: Make, same_weights: Same, tmp_path: Path
) -> None:
    with pytest.raises(Cut):
        make_trainer(run=tmp_path, report=cut_after(7), save_steps=2, save_total_limit=2).train()
    truncate(tmp_path / "checkpoints" / "step-6")
    stop = signal_after(5)
    resumed = make_trainer(run=tmp_path, save_steps=2, save_total_limit=1, report=stop)
    resumed.resume()

    with pytest.raises(TrainingInterrupted):
        resumed.train()

    assert names(tmp_path) == ["step-5"]


def test_where_no_checkpoint_can_be_read_the_run_begins_anew(
    make_trainer: Make, same_weights: Same, tmp_path: Path
) -> None:
    whole = make_trainer()
    whole.train()
    with pytest.raises(Cut):
        make_trainer(run=tmp_path, report=cut_after(9)).train()
    truncate(tmp_path / "checkpoints" / "step-7")

    resumed = make_trainer(run=tmp_path)
    assert len(passed_over(resumed)) == 1
    assert resumed.train().resumed_from == 0

    assert same_weights(resumed.objective.model, whole.objective.model)


def test_a_full_disk_does_not_cost_the_last_checkpoint(
    make_trainer: Make,
    same_weights: Same,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = OSError(28, "No space left on device")
    write = module.write_tensors

    def failing(path: Path, tensors: Any) -> Path:
        if "step-6" in str(path) and path.name == module.OPTIMIZER_FILE:
            raise error
        return write(path, tensors)

    monkeypatch.setattr(module, "write_tensors", failing)
    with pytest.raises(TrainingError, match=r"step-6 cannot be written: No space .*step-4"):
        make_trainer(run=tmp_path, save_steps=2).train()
    monkeypatch.undo()

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-4"]
    whole, resumed = make_trainer(save_steps=2), make_trainer(run=tmp_path, save_steps=2)
    whole.train()
    resumed.resume()
    resumed.train()
    assert same_weights(resumed.objective.model, whole.objective.model)


@pytest.mark.parametrize("kind", [MODEL, STEPS])
def test_another_course_is_refused(make_trainer: Make, tmp_path: Path, kind: Changes) -> None:
    kinds = {"seed": kind}
    make_trainer(run=tmp_path, identity=RunIdentity({"seed": 1}, {}, kinds)).train()

    with pytest.raises(TrainingError, match=r"step-14 was .*\n  seed: 1 before, 2 now"):
        make_trainer(run=tmp_path, identity=RunIdentity({"seed": 2}, {}, kinds)).resume()


def test_what_changes_on_the_way_is_told_and_kept(make_trainer: Make, tmp_path: Path) -> None:
    make_trainer(run=tmp_path, identity=RunIdentity({"precision": "auto"}, {})).train()
    told, kinds = [], []
    for precision in ("float32", "bfloat16", "bfloat16"):
        course = RunIdentity({"precision": precision}, {}, {"precision": STEPS})
        found, lines, changed = module.read_checkpoint(
            tmp_path, course, {"seconds": 0.0}, allowed=True
        )
        assert found is not None
        module.write_checkpoint(tmp_path, found, 1)
        told += map(in_python, lines)
        kinds.append(changed)

    assert told == [
        "precision: auto before, float32 now",
        "precision: float32 before, bfloat16 now",
    ]
    assert kinds == [STEPS, STEPS, NOTHING]
    assert found.state.changes == [
        {"step": 14, "precision": ["auto", "float32"]},
        {"step": 14, "precision": ["float32", "bfloat16"]},
    ]


def test_a_changed_state_is_passed_over(make_trainer: Make, tmp_path: Path) -> None:
    told: list[str] = []
    make_trainer(run=tmp_path).train()
    state = step_directories(tmp_path)[0] / "training_state.json"
    state.write_text(state.read_text().replace('"step": 14', '"step": 13'))

    make_trainer(run=tmp_path, note=told.append).resume()

    assert "training_state.json is damaged: its content has another" in told[0]


def test_a_checkpoint_of_an_earlier_version_is_refused(make_trainer: Make, tmp_path: Path) -> None:
    make_trainer(run=tmp_path).train()
    state = step_directories(tmp_path)[0] / "training_state.json"
    state.write_text('{"fingerprint": "abc", "step": 14, "sha256": {}}')

    with pytest.raises(TrainingError, match="by an earlier version of tidybert"):
        make_trainer(run=tmp_path).resume()


@pytest.mark.parametrize(("limit", "expected"), [(1, [14]), (2, [12, 14]), (9, [3, 6, 9, 12, 14])])
def test_only_the_last_checkpoints_are_kept(
    limit: int, expected: list[int], make_trainer: Make, tmp_path: Path
) -> None:
    make_trainer(run=tmp_path, save_steps=3, save_total_limit=limit).train()

    assert names(tmp_path) == [f"step-{step}" for step in expected]
    assert {path.name for path in step_directories(tmp_path)[0].iterdir()} == {
        "model.safetensors",
        "optimizer.safetensors",
        "training_state.json",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"step": 13},
        {"step": 14.0},
        {"best_step": 15},
        {"best_metrics": [0.5]},
        {"evaluations_since_best": "0"},
        {"progress": {"position": [0]}},
        {"course": {"settings": {}}},
        {"changes": None},
        {"more": 1},
    ],
)
def test_a_state_of_another_form_is_passed_over_though_its_checksum_is_right(
    change: dict[str, Any], make_trainer: Make, tmp_path: Path
) -> None:
    make_trainer(run=tmp_path, save_steps=7, save_total_limit=2).train()
    path = tmp_path / "checkpoints" / "step-14" / "training_state.json"
    content = {**json.loads(path.read_text()), **change}
    del content["checksum"]
    path.write_text(json.dumps({**content, "checksum": json_checksum(content)}))

    resumed = make_trainer(run=tmp_path, save_steps=7)
    (note,) = passed_over(resumed)

    assert "training_state.json" in note
    assert resumed.state.step == 7


@pytest.mark.parametrize(
    ("position", "strict", "expected"),
    [
        ([3, 1], True, True),
        ([3], False, True),
        ([3], True, False),
        ([], False, False),
        ([3, -1], True, False),
        ([3, "1"], True, False),
        (3, False, False),
        (None, False, False),
    ],
)
def test_the_position_of_a_state_is_a_list_of_numbers(
    position: Any, strict: bool, expected: bool
) -> None:
    assert module._is_like(position, [0, 0], strict=strict) is expected


def test_the_tensors_of_another_model_are_refused(make_trainer: Make, tmp_path: Path) -> None:
    trainer = make_trainer(run=tmp_path)
    weights = {**trainer.objective.model.state_dict()}
    first, *_ = weights
    state = module.TrainingState(trainer.record.identity.to_dict())
    moments = {f"{first}/exp_avg": weights[first][..., :1]}
    for found in (
        module.Checkpoint(state, {**weights, first: weights[first][:1]}, {}),
        module.Checkpoint(state, {name: weights[name] for name in (*weights,)[1:]}, {}),
        module.Checkpoint(state, weights, {"no.parameter/exp_avg": weights[first]}),
        module.Checkpoint(state, weights, moments),
    ):
        with pytest.raises(TrainingError, match="not those of this model"):
            module.check_fits(trainer.objective.model, found)
    module.check_fits(trainer.objective.model, module.Checkpoint(state, weights, {}))
