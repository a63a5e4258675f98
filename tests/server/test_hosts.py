"""The names a server answers to, and the pages that may ask it."""

from pathlib import Path
from typing import Any

import pytest

from tidybert.server.answers import Refusal
from tidybert.server.middleware import HostCheck
from tidybert.server.settings import ServerSettings

NAMED = {"allowed_host": "models.example"}
SOCKET = {"unix_socket": Path("socket")}
EVERYWHERE = {"host": "0.0.0.0"}


def passes(given: dict[str, Any], method: str, host: str, origin: str | None = None) -> bool:
    headers = [(b"accept", b"*/*"), (b"host", host.encode())]
    headers += [] if origin is None else [(b"origin", origin.encode())]
    refusal = None
    try:
        HostCheck(ServerSettings(models={}, **given)).check(method, headers)
    except Refusal as error:
        refusal = error
    assert refusal is None or (refusal.status == 403 and "--allowed-host NAME" in refusal.message)
    return refusal is None


@pytest.mark.parametrize(
    ("given", "host", "expected"),
    [
        ({}, "127.0.0.1:8000", True),
        ({}, "LOCALHOST", True),
        ({}, "[::1]:8000", True),
        ({}, "", True),
        ({}, "evil.example", False),
        ({}, "localhost.evil.example:8000", False),
        ({}, "127.0.0.1.evil.example", False),
        ({}, "[::1", False),
        (NAMED, "models.example:443", True),
        (NAMED, "evil.example", False),
        # A page that makes its own name lead here has a name with a dot.
        (EVERYWHERE, "anything.example", False),
        (EVERYWHERE, "anything.example.:8000", False),
        (EVERYWHERE, "localhost:8000", True),
        (EVERYWHERE, "10.0.0.5:8000", True),
        (EVERYWHERE, "[fd00::5]:8000", True),
        (EVERYWHERE, "tidybert:8000", True),
        (EVERYWHERE, "my_models-1", True),
        (EVERYWHERE, "box.own.example:8000", True),
        ({"host": "10.0.0.5"}, "anything.example", False),
        ({**EVERYWHERE, "keys": ("a-long-key",)}, "anything.example", True),
        ({**EVERYWHERE, **NAMED}, "10.0.0.5", True),
        ({**EVERYWHERE, **NAMED}, "anything.example", False),
        ({**EVERYWHERE, **NAMED}, "models.example", True),
        (SOCKET, "models.example", True),
    ],
)
def test_hosts(
    given: dict[str, Any], host: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Box.own.example")
    assert passes(given, "GET", host) is expected


def test_an_origin_of_the_same_foreign_name_is_no_proof() -> None:
    for method in ("GET", "POST"):
        origin = "http://evil.example:8000"
        assert not passes(EVERYWHERE, method, "evil.example:8000", origin)
    assert passes(EVERYWHERE, "POST", "tidybert:8000", "http://tidybert:8000")


@pytest.mark.parametrize(
    ("given", "origin", "expected"),
    [
        ({}, "http://localhost:8000", True),
        ({}, "http://localhost:3000", False),
        ({}, "https://evil.example", False),
        ({}, "null", False),
        (NAMED, "https://models.example", True),
        (NAMED, "https://models.example.evil.example", False),
        (EVERYWHERE, "https://evil.example", False),
        ({"keys": ("a-long-key",)}, "https://evil.example", True),
        (SOCKET, "https://models.example", True),
    ],
)
def test_origins_of_what_is_posted(given: dict[str, Any], origin: str, expected: bool) -> None:
    assert passes(given, "POST", "localhost:8000", origin) is expected
    assert passes(given, "GET", "localhost:8000", origin)
