"""The bar of a notebook and of a terminal; nothing elsewhere."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tidybert.system.terminal import counting_bar, progress_bar


def test_nowhere_to_show_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar("fit") as show:
        assert show is None


def test_a_notebook_has_one_bar_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, dict[str, Any]]] = []

    def display(content: dict[str, str], **how: Any) -> None:
        shown.append((content["text/html"], how))

    monkeypatch.setattr("tidybert.system.terminal.notebook_display", lambda: display)
    monkeypatch.setattr("tidybert.system.terminal.PAUSE", 0.0)
    with progress_bar("fit <it>") as show:
        assert show is not None
        show(0, 20, lambda _seconds, _rate: "loss 1")
        show(10, 20, lambda _seconds, _rate: "loss <0.5>")
        show(20, 20, lambda _seconds, _rate: "loss 0.4")
    first, half, last = (html for html, _ in shown)
    assert first == 'fit &lt;it&gt; <progress value="0" max="1"></progress> '
    assert 'value="10" max="20"' in half
    assert "50%, loss &lt;0.5&gt;, 0:01 left" in half
    assert last.endswith(" 100%, loss 0.4, 0:00 left")
    assert [how["update"] for _, how in shown] == [False, True, True]
    assert len({how["display_id"] for _, how in shown}) == 1
    with progress_bar("fit", wanted=False) as show:
        assert show is None


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with counting_bar("predict", 2, wanted=True) as reporter:
        reporter.advance(2)
    assert "predict" in stream.getvalue()
    assert "100%, 2 of 2 texts, " in stream.getvalue()


def test_only_a_kernel_is_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidybert.system.terminal import notebook_display

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    assert notebook_display() is None
