"""Signals to a command: a message, its clean-up and a status, and never a traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidybert.system.signals import (
    STOP_SIGNALS,
    CommandSignals,
    Interrupted,
    signal_name,
    uninterrupted_children,
)


@pytest.fixture
def handlers() -> Iterator[CommandSignals]:
    """Handlers that are at work, in a process that had the usual ones."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    hook = sys.unraisablehook
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    installed = CommandSignals()
    installed.install()
    installed.is_working = True
    yield installed
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The statuses with which the process would have ended at once."""
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    return found


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_stop_signal_raises_and_says_so_at_once(
    number: signal.Signals, handlers: CommandSignals, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Interrupted) as caught:
        signal.raise_signal(number)

    assert caught.value.exit_status == 128 + number
    assert handlers.interrupted is caught.value
    name = signal_name(number)
    assert capfd.readouterr().err == f"interrupted by {name}: unfinished files are put in order\n"


def test_the_second_signal_lets_the_clean_up_go_on_and_the_third_ends_it(
    handlers: CommandSignals, exits: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Interrupted):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert exits == []
    assert "a third signal ends at once" in capfd.readouterr().err

    signal.raise_signal(signal.SIGTERM)

    assert exits == [143]


def test_an_interrupt_that_nobody_can_catch_ends_the_program(
    handlers: CommandSignals, exits: list[int]
) -> None:
    class Dropped:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    Dropped()

    assert exits == [143]


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    hook, others = sys.unraisablehook, [signal.getsignal(each) for each in STOP_SIGNALS[:2]]
    try:
        CommandSignals().install()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        sys.unraisablehook = hook
        for number, handler in zip(STOP_SIGNALS, [*others, before], strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("module", "status", "message"),
    # Before there are handlers the signal itself ends the program; the shell shows 130 for it too.
    [("tidybert.system.cores", -signal.SIGINT, ""), ("tidybert.cli.main", 130, "interrupted\n")],
)
def test_while_the_program_loads_ctrl_c_shows_no_traceback(
    module: str, status: int, message: str
) -> None:
    program = f"""
import os, runpy, signal, sys
class Impatient:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Impatient())
sys.argv[0] = "-m"
runpy.run_module("tidybert", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (status, "", message)


def test_a_child_that_starts_is_not_interrupted() -> None:
    wait = "import signal, sys; sys.exit(signal.SIGINT in signal.pthread_sigmask(0, []))"
    with uninterrupted_children():
        child = subprocess.Popen([sys.executable, "-c", wait])

    assert child.wait() == 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
