"""The bar of a notebook and of a terminal; nothing elsewhere."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tidybert.system.terminal import progress_bar


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
        show(0, 20, "loss 1")
        show(10, 20, "loss 0.5")
        show(20, 20, "")
    first, half, last = (html for html, _ in shown)
    assert first == 'fit &lt;it&gt; <progress value="0" max="20"></progress> 0 of 20, loss 1'
    assert 'value="10"' in half
    assert "10 of 20, loss 0.5, " in half
    assert "0:00 left" in last
    assert [how["update"] for _, how in shown] == [False, True, True]
    assert len({how["display_id"] for _, how in shown}) == 1
    with progress_bar("fit", wanted=False) as show:
        assert show is None


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("predict") as show:
        assert show is not None
        show(1, 2, "")
        show(2, 2, "")
    assert "predict" in stream.getvalue()
    assert "2 of 2" in stream.getvalue()


def test_only_a_kernel_is_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidybert.system.terminal import notebook_display

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    assert notebook_display() is None
