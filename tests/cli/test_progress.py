"""Progress on stderr: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable

import pytest

from tidybert.cli import progress
from tidybert.cli.output import choose_notes
from tidybert.cli.progress import shown_progress, shown_texts


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the seconds that the clock shows, one after the other."""

    def sets(*seconds: float) -> None:
        shown = iter(seconds)
        monkeypatch.setattr(time, "monotonic", lambda: next(shown))

    return sets


def test_no_line_in_the_first_half_minute_where_stderr_is_no_terminal(capsys) -> None:
    with shown_progress("training") as show:
        for done in (0, 32, 64):
            show(done, 64, lambda _seconds, rate: f"loss 0.41, {rate:.1f}/s")
    assert capsys.readouterr() == ("", "")


def test_a_log_shows_that_a_long_step_lasts(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.06)
    with shown_progress("training") as show:
        show(1, 4, lambda _seconds, _rate: "")
        time.sleep(0.2)
        show(2, 4, lambda _seconds, _rate: "loss 0.5")
        time.sleep(0.2)
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith("training: begun; at work on this for ")
    assert "training: 50%, loss 0.5, 0:01 left" in rest
    assert rest[-1].startswith("training: 50%, loss 0.5, 0:01 left; at work on this for ")


def test_steps_that_are_nearly_as_long_as_the_pause_are_no_silence(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.6)
    with shown_progress("training") as show:
        for step in (1, 2, 3):
            show(step, 4, lambda _seconds, _rate: "loss 0.5")
            time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("training: 50%, loss 0.5")
    assert "at work" not in lines[0]


def test_a_stage_after_the_texts_is_counted_anew(clock, capsys) -> None:
    clock(0, 10, 20, 60, 90)
    with shown_texts("indexing", 100) as reporter:
        reporter.advance(0)
        reporter.advance(100)
        telling = reporter.of_stage("counting words", 100)
        telling.advance(40)
        telling.advance(80)
    assert capsys.readouterr().err.splitlines() == [
        "indexing: 40%, counting words, 1:00 left",
        "indexing: 80%, counting words, 0:18 left",
    ]


def test_quiet_shows_no_progress(clock, capsys) -> None:
    choose_notes(quiet=True, verbose=False)
    with shown_progress("training") as show:
        show(1, 2, lambda _seconds, _rate: "")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_with_figures(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with shown_progress("training") as show:
        show(32, 64, lambda _seconds, _rate: "loss 0.5242")
        show(64, 64, lambda _seconds, _rate: "loss 0.4142")
    out, err = capsys.readouterr()
    assert out == ""
    assert "100%, loss 0.4142, 0:00 left" in err


def test_lines_come_now_and_then_and_rates_are_of_this_process(clock, capsys) -> None:
    clock(100, 110, 129, 140)
    with shown_progress("reading") as show:
        for done in (500, 600, 700, 900):
            show(done, 1000, lambda seconds, rate: f"{seconds:.0f} s, {rate:.0f}/s")
    assert capsys.readouterr().err == "reading: 90%, 40 s, 10/s, 0:10 left\n"


@pytest.mark.parametrize(
    ("total", "line"),
    [
        (None, "1,024 texts, 12.5/s"),
        (2000, "51%, 1,024 of 2,000 texts, 12.5/s, 1:19 left"),
        (1024, "100%, 1,024 of 1,024 texts, 12.5/s, 0:00 left"),
    ],
)
def test_embedding_counts_texts(total: int | None, line: str, clock, capsys) -> None:
    clock(100, 181.92)
    with shown_texts("embedding", total) as reporter:
        reporter.advance(0)
        reporter.advance(1024)
    assert capsys.readouterr().err == f"embedding: {line}\n"
