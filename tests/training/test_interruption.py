"""A stop signal: the step at hand ends, a checkpoint is written, and the run can go on."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import nn

from tidybert.training.interruption import TrainingInterrupted, stop_requests
from tidybert.training.loop import TrainingLoop
from tidybert.training.reports import StepReport
from tidybert.training.runs.run_checkpoints import step_directories

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def signal_after(step: int, number: signal.Signals) -> Callable[[StepReport], None]:
    def report(done: StepReport) -> None:
        if done.step == step:
            signal.raise_signal(number)

    return report


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """nohup and a shell's background processes begin with signals that are ignored."""
    handlers = (signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL)
    before = [
        signal.signal(number, handler)
        for (number, _), handler in zip(SIGNALS, handlers, strict=True)
    ]
    yield
    for (number, _), handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_leaves_a_checkpoint_from_which_the_run_goes_on(
    number: signal.Signals,
    status: int,
    make_trainer: Callable[..., TrainingLoop],
    same_weights: Callable[[nn.Module, nn.Module], bool],
    tmp_path: Path,
) -> None:
    whole = make_trainer()
    whole.train()
    before = signal.getsignal(number)

    with pytest.raises(TrainingInterrupted, match=r"after step 5 of 14.*resume") as stopped:
        make_trainer(run=tmp_path, report=signal_after(5, number)).train()

    assert stopped.value.exit_status == status
    assert signal.getsignal(number) is before
    assert [path.name for path in step_directories(tmp_path)] == ["step-5"]
    resumed = make_trainer(run=tmp_path)
    resumed.resume()
    assert resumed.train().resumed_from == 5
    assert same_weights(resumed.objective.model, whole.objective.model)


def test_without_a_run_it_says_where_it_stopped_and_can_be_told_to_go_on(
    make_trainer: Callable[..., TrainingLoop], same_weights: Callable[[nn.Module, nn.Module], bool]
) -> None:
    trainer, whole = make_trainer(report=signal_after(2, signal.SIGINT)), make_trainer()
    with pytest.raises(TrainingInterrupted, match=r"^stopped after step 2 of 14$"):
        trainer.train()

    trainer.train()
    whole.train()

    assert same_weights(trainer.objective.model, whole.objective.model)


def test_after_the_last_step_a_signal_changes_nothing(
    make_trainer: Callable[..., TrainingLoop],
) -> None:
    assert make_trainer(report=signal_after(14, signal.SIGTERM)).train().num_steps == 14


def test_the_second_signal_is_answered_and_the_third_one_stops_at_once() -> None:
    said: list[tuple[int, int]] = []

    with stop_requests(lambda *each: said.append(each)) as request:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert said == [(signal.SIGTERM, 1), (signal.SIGINT, 2)]
        assert request.signal_number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_run_says_what_it_waits_for_and_what_a_third_signal_would_lose(
    make_trainer: Callable[..., TrainingLoop], tmp_path: Path
) -> None:
    said: list[str] = []

    def report(done: StepReport) -> None:
        if done.step in (5, 6):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(TrainingInterrupted):
        make_trainer(run=tmp_path, save_steps=3, report=report, note=said.append).train()

    waits, loses = said
    assert waits == (
        "Ctrl-C: the run ends after the step at hand, with a checkpoint (5 of 14 steps are done)"
    )
    assert loses == (
        "SIGTERM again: a third signal ends at once and loses the steps after step 3, the last "
        "checkpoint"
    )
    resumed = make_trainer(run=tmp_path, save_steps=3, report=report, note=said.append)
    resumed.resume()
    with pytest.raises(TrainingInterrupted):
        resumed.train()
    assert said[-1].endswith("loses the steps after step 5, the last checkpoint")


def test_nohup_keeps_a_run_going(make_trainer: Callable[..., TrainingLoop]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert make_trainer(report=signal_after(2, signal.SIGHUP)).train().num_steps == 14


def test_a_second_signal_that_may_be_the_first_once_more_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)

    with stop_requests(forwarded=True) as request:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    assert request.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_signals_are_left_alone(
    make_trainer: Callable[..., TrainingLoop],
) -> None:
    results: list[int] = []
    thread = threading.Thread(
        target=lambda: results.append(make_trainer(max_steps=2).train().num_steps)
    )
    thread.start()
    thread.join()

    assert results == [2]
