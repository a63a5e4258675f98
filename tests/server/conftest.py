"""Engines and clients for the tiny models of the fixture ``served``."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx

from tidybert.server.app import make_app
from tidybert.server.engine import Engine
from tidybert.server.settings import ServerSettings


@pytest.fixture
def make_engine(served: dict[str, str]) -> Iterator[Callable[..., Engine]]:
    """Opens and starts engines for some of the models, and ends them after the test."""
    engines: list[Engine] = []

    def build(*names: str, paths: dict[str, str] | None = None, **given: Any) -> Engine:
        models = paths or {name: served[name] for name in names}
        engine = Engine(ServerSettings(models=models, device="cpu", **given))
        engine.open()
        engine.start()
        engines.append(engine)
        return engine

    yield build
    for each in engines:
        each.close()


@pytest.fixture
def make_client() -> Callable[..., httpx.AsyncClient]:
    """Makes clients of an engine's app in this process; ``address`` tells clients apart."""

    def build(engine: Engine, address: str = "127.0.0.1", **given: Any) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(make_app(engine), client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost", **given)

    return build


@pytest.fixture
def own_copy(tmp_path: Path, served: dict[str, str]) -> Callable[[str], Path]:
    """Copies a model, for a test that changes it."""
    import shutil

    def copy(name: str) -> Path:
        return Path(shutil.copytree(served[name], tmp_path / name))

    return copy
