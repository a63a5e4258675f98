"""``tidybert page``: which models it opens, where it listens, and the browser."""

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tidybert.cli import page
from tidybert.cli.main import run
from tidybert.server import process


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_page_has_what_is_there_and_opens_a_browser(
    has_browser: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: list[Any] = []
    opened = threading.Event()

    def serve(settings: Any, say: Any, *, log_requests: bool, listening: Any) -> None:
        given.append((settings, log_requests))
        listening("http://127.0.0.1:5")

    monkeypatch.setattr(process, "serve", serve)
    monkeypatch.setattr(page.webbrowser, "open", lambda address: opened.set())
    monkeypatch.chdir(tmp_path)
    for name in ("tidybert-quickstart", "unfinished"):
        Path(name).mkdir()
    Path("tidybert-quickstart/tidybert.json").write_text("{}")
    words = ["page", "runs/a", "mine=tidybert-mini", "--port", "0"]

    assert run(words if has_browser else [*words, "--no-browser"]) == 0

    ((settings, log_requests),) = given
    assert (settings.host, settings.port, log_requests) == ("127.0.0.1", 0, False)
    found = dict(settings.models)
    assert list(found)[:2] == ["a", "mine"]
    assert found["tidybert-mini"] == "tidybert-mini"
    assert found["tidybert-quickstart"] == "tidybert-quickstart"
    assert "tidybert-poem" not in found
    assert opened.wait(5 if has_browser else 0) == has_browser
    assert "the page is at http://127.0.0.1:5" in capsys.readouterr().err
