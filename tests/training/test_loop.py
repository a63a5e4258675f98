"""The loop with an objective of a few lines: a line fitted to points that a stream draws."""

import json
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tidybert.errors import DivergedError, TrainingError
from tidybert.storage.json_objects import json_checksum
from tidybert.system.reporter import Reporter
from tidybert.training.distributed import Processes
from tidybert.training.interruption import TrainingInterrupted
from tidybert.training.loop import TrainingLoop
from tidybert.training.objective import LoopSettings, Objective, Work
from tidybert.training.reports import Measured, StepReport
from tidybert.training.runs.run_checkpoints import Checkpoint

SETTINGS = {"num_steps": 40, "eval_steps": 10, "save_steps": 10, "logging_steps": 1}


class LineFit(Objective):
    """Fits y = 2 x - 1 to three points a step, by two losses, with weights that are drawn.

    scores: what evaluations give, by step; otherwise the distance from the line.  bad: steps whose
    loss is not a number.
    """

    def __init__(self, scores: Mapping[int, float] = {}, bad: Sequence[int] = (), **settings: Any):
        torch.manual_seed(0)
        model = nn.Linear(1, 1)
        super().__init__(
            model,
            torch.optim.AdamW(model.parameters(), fused=True),
            LoopSettings(**{**SETTINGS, **settings}),
            progress={"position": 0},
        )
        self.scores, self.bad, self.evaluated = scores, bad, 0

    def learning_rate(self, step: int) -> float:
        return 0.2 * (1 - step / self.settings.num_steps)

    def work(self, step: int, progress: Mapping[str, Any]) -> Work:
        points = [torch.tensor([[math.sin(progress["position"] + n)]]) for n in range(3)]
        bad = math.nan if step + 1 in self.bad else 1.0
        return Work((points, bad), 3, 6, {"position": progress["position"] + 3})

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        points, bad = work.batches
        totals = torch.zeros(2)
        for x in points:
            wrong = (self.model(x) - 2 * x + 1) * (0.5 + torch.rand(1))
            losses = torch.stack([wrong.square().mean(), 0.1 * wrong.abs().mean()]) * bad
            (losses.sum() / len(points)).backward()
            totals += losses.detach() / len(points)
        return torch.cat([totals, self.model.weight.detach().flatten()])

    def measured(self, step: int, work: Work, figures: Sequence[float], seconds: float) -> Measured:
        square, distance, slope = figures
        losses = {"square": square, "distance": distance}
        return Measured(square + distance, losses, figures={"slope": slope})

    def evaluate(self) -> dict[str, Any]:
        self.evaluated += 1
        step = self.evaluated * self.settings.eval_steps
        weights = torch.stack([self.model.weight.flatten(), self.model.bias])
        wrong = (weights - torch.tensor([[2.0], [-1.0]])).square().sum().item()
        return {"loss": self.scores.get(step, wrong)}


def lines(run: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / name).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in found]


def weights(loop: TrainingLoop[LineFit]) -> list[float]:
    return [each.item() for each in loop.objective.model.parameters()]


def at_step(step: int, act: Callable[[], None]) -> Reporter:
    return Reporter(step=lambda done: act() if done.step == step else None)


@pytest.fixture(params=[0, 1], ids=["read at once", "read late"])
def late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """After how many later steps figures are read: on CUDA, one."""
    monkeypatch.setattr("tidybert.training.loop.steps_late", lambda _device: request.param)
    found: int = request.param
    return found


def test_it_fits_and_tells_every_step_once_and_in_order(late: int, tmp_path: Path) -> None:
    reports: list[StepReport] = []
    told: list[tuple[int, float]] = []
    reporter = Reporter(
        step=reports.append, metrics=lambda step, found: told.append((step, found["loss"]))
    )
    loop = TrainingLoop(LineFit(), run=tmp_path, reporter=reporter)

    result = loop.train()

    assert weights(loop) == pytest.approx([2.0, -1.0], abs=0.4)
    assert [each.step for each in reports] == list(range(1, 41))
    assert [step for step, _ in told] == [10, 20, 30, 40]
    assert (result.num_steps, result.num_examples, result.num_tokens) == (40, 120, 240)
    assert result.metrics == {"loss": min(loss for _, loss in told)}
    logged = lines(tmp_path)
    steps = [line for line in logged if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 41))
    for line, done in zip(steps, reports, strict=True):
        assert line["loss"] == done.loss == line["square_loss"] + line["distance_loss"]
        assert line["slope"] == pytest.approx(done.figures["slope"], rel=1e-3)
        assert line["learning_rate"] == loop.objective.learning_rate(done.step - 1)
        assert line["gradient_norm"] == done.gradient_norm
    # The evaluation after a step has its line after that step's.
    assert [line["step"] for line in logged][9:12] == [10, 10, 11]


@pytest.mark.parametrize("writes_beside", [False, True])
@pytest.mark.parametrize("stop", [1, 9, 10, 23, 38])
def test_a_stopped_run_ends_with_the_same_bits(
    stop: int, writes_beside: bool, late: int, tmp_path: Path
) -> None:
    given = {"writes_beside": writes_beside, "save_steps": 7}
    whole = TrainingLoop(LineFit(**given), run=tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    (tmp_path / "run").mkdir()
    expected = whole.train()
    reporter = at_step(stop, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(TrainingInterrupted) as stopped:
        TrainingLoop(LineFit(**given), run=tmp_path / "run", reporter=reporter).train()

    objective = LineFit(**given)
    loop = TrainingLoop(objective, run=tmp_path / "run")
    loop.resume()
    # A step that a device has begun ends too; before an evaluation it has begun none.
    assert loop.state.step == stop + (late and stop % 10 > 0)
    assert loop.state.progress["position"] == 3 * loop.state.step
    objective.evaluated = loop.state.step // 10
    result = loop.train()

    assert stopped.value.exit_status == 128 + signal.SIGTERM
    assert weights(loop) == weights(whole)
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")
    assert (result.best_step, result.metrics) == (expected.best_step, expected.metrics)
    assert result.resumed_from == stop + (late and stop % 10 > 0)


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_best_weights_come_back_though_later_ones_are_worse(
    on_disk: bool, late: int, tmp_path: Path
) -> None:
    loop = TrainingLoop(LineFit(scores={20: -1.0}), run=tmp_path if on_disk else None)
    first = TrainingLoop(LineFit(), reporter=at_step(20, stop_here))
    with pytest.raises(KeyError):
        first.train()

    result = loop.train()

    assert (result.best_step, result.metrics, result.num_steps) == (20, {"loss": -1.0}, 40)
    assert weights(loop) == weights(first)


def stop_here() -> None:
    raise KeyError("a kill")


@pytest.mark.parametrize(("patience", "steps"), [(1, 30), (2, 40), (None, 40)])
def test_patience_counts_evaluations_since_the_best(patience: int | None, steps: int) -> None:
    result = TrainingLoop(LineFit({10: 2, 20: 1, 30: 1, 40: 3}, patience=patience)).train()

    assert (result.num_steps, result.best_step) == (steps, 20)
    assert result.stopped_early == (steps < 40)


def from_the_start(**given: Any) -> LineFit:
    """Scores of 0, 10, …: the first evaluation is that of the weights before any step."""
    objective = LineFit(**given)
    objective.evaluated = -1
    return objective


@pytest.mark.parametrize("stop", [None, 7, 23])
@pytest.mark.parametrize("on_disk", [False, True])
def test_the_start_competes_as_step_0_and_its_weights_come_back(
    stop: int | None, on_disk: bool, tmp_path: Path
) -> None:
    first = weights(TrainingLoop(LineFit()))
    told: list[int] = []
    given = {"scores": {0: -1.0}, "save_steps": 7, "patience": 3}
    reporter = Reporter(metrics=lambda step, _found: told.append(step))
    if on_disk and stop:
        cut = at_step(stop, lambda: signal.raise_signal(signal.SIGTERM))
        loop = TrainingLoop(from_the_start(**given), run=tmp_path, reporter=cut)
        with loop.stage("probe") as losses:
            losses.append(0.5)
        with pytest.raises(TrainingInterrupted):
            loop.train(measures_start=True)
    loop = TrainingLoop(
        from_the_start(**given), run=tmp_path if on_disk else None, reporter=reporter
    )
    if on_disk and stop:
        loop.resume()
        loop.objective.evaluated = loop.state.step // 10

    result = loop.train(measures_start=True)

    assert (result.best_step, result.metrics, weights(loop)) == (0, {"loss": -1.0}, first)
    # Three evaluations after step 0 bring no better one.
    assert (result.num_steps, result.stopped_early) == (30, True)
    assert told == [step for step in (0, 10, 20, 30) if not (on_disk and stop) or step > stop]
    if on_disk:
        logged = [line["step"] for line in lines(tmp_path) if "eval_loss" in line]
        assert logged == [0, 10, 20, 30]
        assert ("probe" in result.stages) == (stop is not None)


def test_a_start_that_loses_changes_nothing(tmp_path: Path) -> None:
    plain, measured = TrainingLoop(LineFit()), TrainingLoop(from_the_start())

    expected, found = plain.train(), measured.train(measures_start=True)

    assert weights(measured) == weights(plain)
    assert (found.best_step, found.metrics) == (expected.best_step, expected.metrics)


def test_what_comes_before_the_steps_has_its_time_and_losses(tmp_path: Path) -> None:
    loop = TrainingLoop(LineFit(num_steps=1), run=tmp_path)
    with loop.stage("contrast") as losses:
        losses += [0.5, 0.25]
    for _ in range(2):
        with loop.stage("probe"):
            pass

    result = loop.train()

    assert list(result.stages) == ["contrast", "probe", "steps"]
    assert result.seconds >= sum(result.stages.values()) > 0
    first = lines(tmp_path)[0]
    assert (first["step"], first["stage"]) == (0, "contrast")
    assert first["steps"] == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    # A run without a checkpoint begins again, and tells of all of it again.
    loop.record.log.rewind(0)
    assert lines(tmp_path) == []


def test_it_stops_at_the_first_loss_that_is_not_finite(late: int, tmp_path: Path) -> None:
    good = TrainingLoop(LineFit(bad=[13]), reporter=at_step(12, stop_here))
    loop = TrainingLoop(LineFit(bad=[13]), run=tmp_path)
    with pytest.raises(DivergedError, match=r"at step 13 of 40 the loss is nan .* step 13\. Try"):
        loop.train()

    assert loop.state.step == 12
    assert not (tmp_path / "bad_steps.jsonl").exists()
    # Nothing changed, though a device has begun step 14 by then.
    with pytest.raises(KeyError):
        good.train()
    assert weights(loop) == weights(good)
    assert lines(tmp_path)[-1]["step"] == 12


def test_bad_steps_that_are_allowed_change_nothing_and_are_listed(
    late: int, tmp_path: Path
) -> None:
    reports: list[StepReport] = []
    objective = LineFit(bad=[3, 4, 6, 7, 9], max_bad_steps=3)
    loop = TrainingLoop(objective, run=tmp_path, reporter=Reporter(step=reports.append))

    result = loop.train()

    assert result.num_bad_steps == 5
    assert [each.step for each in reports if not each.updated] == [3, 4, 6, 7, 9]
    assert [line["step"] for line in lines(tmp_path, "bad_steps.jsonl")] == [3, 4, 6, 7, 9]
    (first, *_) = lines(tmp_path, "bad_steps.jsonl")
    assert (first["loss"], first["losses"]) == ("nan", {"square": "nan", "distance": "nan"})
    assert (first["position"], first["num_sequences"]) == (6, 3)
    slopes = [each.figures["slope"] for each in reports]
    # Of the weights before each step's update.
    assert slopes[2] == slopes[3] == slopes[4] != slopes[5]
    # A log has only numbers that are finite.
    assert [line["step"] for line in lines(tmp_path) if "loss" not in line][:2] == [3, 4]


@pytest.mark.parametrize("bad", [[5, 6, 7], [2, 3, 5, 6, 7, 9]])
def test_too_many_bad_steps_in_a_row_end_the_run(bad: list[int], late: int, tmp_path: Path) -> None:
    loop = TrainingLoop(LineFit(bad=bad, max_bad_steps=3), run=tmp_path)

    with pytest.raises(TrainingError, match=r"in 3 steps in a row: it began at step 5 of 40"):
        loop.train()

    assert [line["step"] for line in lines(tmp_path, "bad_steps.jsonl")] == [
        b for b in bad if b < 8
    ]


def test_minutes_save_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved: list[int] = []
    loop = TrainingLoop(LineFit(save_steps=39, save_minutes=1.0), run=tmp_path)
    save, seconds = loop.record.save, iter(range(10**6))
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0] + 1e-6 * next(seconds))
    monkeypatch.setattr(
        loop.record, "save", lambda *given: (saved.append(loop.state.step), save(*given))
    )
    loop._saved_at = 0.0
    loop.reporter = at_step(5, lambda: clock.__setitem__(0, 61.0))

    loop.train()

    assert saved == [5, 39, 40]


def test_a_checkpoint_that_is_written_beside_has_the_state_of_its_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[tuple[int, int]] = []

    def write(_run: Path, checkpoint: Checkpoint, _keep: int) -> None:
        time.sleep(0.1)  # Later steps go on meanwhile.
        written.append((checkpoint.state.step, checkpoint.state.progress["position"]))

    monkeypatch.setattr("tidybert.training.runs.run_record.write_checkpoint", write)

    TrainingLoop(LineFit(writes_beside=True), run=tmp_path).train()

    assert written == [(10, 30), (20, 60), (30, 90), (40, 120)]


@pytest.mark.parametrize("position", [True, -1, 10**15, 120.0, "120", None])
def test_a_position_that_is_not_a_count_is_passed_over(position: object, tmp_path: Path) -> None:
    TrainingLoop(LineFit(save_total_limit=2), run=tmp_path).train()
    path = tmp_path / "checkpoints" / "step-40" / "training_state.json"
    content = json.loads(path.read_text())
    content["progress"]["position"] = position
    del content["checksum"]
    path.write_text(json.dumps({**content, "checksum": json_checksum(content)}))

    loop = TrainingLoop(LineFit(), run=tmp_path)
    loop.resume()

    assert loop.state.step == 30


def test_a_step_is_logged_by_its_own_number(late: int, tmp_path: Path) -> None:
    TrainingLoop(LineFit(logging_steps=7), run=tmp_path).train()

    logged = [line["step"] for line in lines(tmp_path) if "loss" in line]
    assert logged == [7, 14, 21, 28, 35, 40]


@pytest.mark.parametrize(("times_steps", "seconds"), [(False, 24), (True, 4)])
def test_seconds_are_those_of_the_run_or_only_of_its_steps(
    times_steps: bool, seconds: int, late: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock, ticks = [0.0], iter(range(10**6))
    monkeypatch.setattr("time.perf_counter", lambda: clock[0] + 1e-6 * next(ticks))

    class Timed(LineFit):
        """A step takes a second, an evaluation ten."""

        def work(self, step: int, progress: Mapping[str, Any]) -> Work:
            clock[0] += 1
            return super().work(step, progress)

        def evaluate(self) -> dict[str, Any]:
            clock[0] += 10
            return super().evaluate()

    given = {"num_steps": 4, "eval_steps": 2, "save_steps": 2, "times_steps": times_steps}
    loop = TrainingLoop(Timed(**given), run=tmp_path)

    result = loop.train()

    assert result.seconds == pytest.approx(24, abs=0.01)
    assert loop.state.progress["seconds"] == pytest.approx(seconds, abs=0.01)
    logged = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    # A step that is read late ends when the next one does, so the rate is that of several.
    assert [line["tokens_per_second"] for line in logged if "loss" in line][1::2] == [6, 6]


def test_a_loop_that_is_over_or_has_no_step_does_nothing(tmp_path: Path) -> None:
    result = TrainingLoop(LineFit(num_steps=0), run=tmp_path).train()

    assert (result.num_steps, result.best_step, result.num_examples) == (0, 0, 0)
    assert not result.stopped_early


class OfTwo(Processes):
    """The second of two processes; the other one has the same figures, and may get a signal."""

    def any(self, *flags: bool) -> list[bool]:
        return [True, *flags[1:]] if len(flags) == 2 else [False]


def test_a_signal_to_another_process_stops_this_one_which_writes_nothing(tmp_path: Path) -> None:
    objective = LineFit(writes_beside=True)
    objective.processes = OfTwo(rank=1, size=2)
    loop = TrainingLoop(objective, run=tmp_path)

    with pytest.raises(TrainingInterrupted, match="after step 1 of 40") as stopped:
        loop.train()

    assert stopped.value.exit_status == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_processes_draw_other_numbers() -> None:
    first, second = LineFit(num_steps=5), LineFit(num_steps=5)
    second.processes = Processes(rank=1, size=2)
    loops = TrainingLoop(first), TrainingLoop(second)
    for loop in loops:
        loop.train()

    assert weights(loops[0]) != weights(loops[1])


def test_the_random_numbers_of_others_are_left_as_they_were() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    loop = TrainingLoop(LineFit(num_steps=5))
    torch.manual_seed(3)

    loop.train()

    assert torch.equal(torch.rand(2), expected)
