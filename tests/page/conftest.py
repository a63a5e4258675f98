"""The models of the page's tests, and the browser."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidybert.page.page_model import PageModel

EVIL = "evil.example"


@pytest.fixture(scope="session")
def opened(served: dict[str, str]) -> Callable[[str], PageModel]:
    """A PageModel by name: tidybert-small, or one of the tiny models of ``served``."""
    models: dict[str, PageModel] = {}

    def get(name: str) -> PageModel:
        path = served.get(name, name)
        return models.setdefault(name, PageModel(path, path))

    return get


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium that has no network; EVIL is a name of this machine.

    Not longer than a module: an event loop of its own runs as long.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox; the page is our own.
        args = ["--no-sandbox", f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"]
        opened = playwright.chromium.launch(executable_path=path, args=args)
        yield opened
        opened.close()
