"""``tidybert page``: which models it opens, where it listens, and the browser."""

import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx

from tidybert.cli.commands import serving as page
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
    words = ["page", "runs/a", "mine=tidybert-small", "--port", "0", "--index", "faq-index"]

    assert run(words if has_browser else [*words, "--no-browser"]) == 0

    ((settings, log_requests),) = given
    assert (settings.host, settings.port, log_requests) == ("127.0.0.1", 0, False)
    assert settings.index == Path("faq-index")
    found = dict(settings.models)
    assert list(found)[:2] == ["a", "mine"]
    assert found["tidybert-small"] == "tidybert-small"
    assert found["tidybert-quickstart"] == "tidybert-quickstart"
    assert opened.wait(5 if has_browser else 0) == has_browser
    assert "the page is at http://127.0.0.1:5" in capsys.readouterr().err


def test_the_command_serves_the_page_until_it_is_ended(
    served: dict[str, str], tmp_path: Path, begin: Any
) -> None:
    words = ["page", served["base"], "--port", "0", "--no-browser"]
    command = begin(*words, stderr=subprocess.PIPE, cwd=tmp_path)
    first = command.stderr.readline()
    address = first.split()[-1]
    while not command.stderr.readline().startswith("ready on "):
        pass

    index = httpx.get(address)
    models = httpx.get(f"{address}/page/about").json()["models"]
    command.send_signal(signal.SIGTERM)

    assert first.startswith("the page is at http://127.0.0.1:")
    assert "default-src 'self'" in index.headers["content-security-policy"]
    assert {"base", "tidybert-small"} <= {each["name"] for each in models}
    assert command.wait() == 0
