"""What the shell gives to the server, and the limits that it keeps."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidybert.errors import UsageError, param
from tidybert.storage.limits import JSON_BYTES
from tidybert.storage.opening import read_text

KEYS_VARIABLE: Final = "TIDYBERT_API_KEYS"
_SHORTEST: Final = 8
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
"""Addresses that only programs of this machine reach."""


@dataclass(frozen=True)
class Worker:
    """One of several processes of a server: its number, from 1 on, and its parent's process."""

    number: int
    parent: int


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The models and the limits of one server.

    Args:
        models: the MODEL or RUN of each name; the first one serves requests that name none.
        index: an index to search in, made by the encoder of one of the models.
        host, port: where it listens; port 0 takes a free one.
        unix_socket: a path to listen on instead.
        allowed_hosts: further names in small letters that clients may call it by.
        workers: how many processes answer.
        device, precision: as ``Predictor`` has them.
        allow_pickle: read weights from a pickle if there is no safetensors file.
        deadline: seconds after which a request that has no answer gets 504.
        max_body: bytes of one request.
        max_inputs: inputs of one request.
        queue_tokens, queue_inputs: what may wait before clients get 429.
        batch_tokens: tokens that a thread computes at once; None for what suits the device.
        keys: the API keys; none lets everybody in.

    Raises UsageError for a number that is not positive.
    """

    models: Mapping[str, str]
    index: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    unix_socket: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    workers: int = 1
    device: str = "auto"
    precision: str = "auto"
    allow_pickle: bool = False
    deadline: float = 30.0
    max_body: int = 2 * 2**20
    max_inputs: int = 2048
    queue_tokens: int = 65_536
    queue_inputs: int = 4096
    batch_tokens: int | None = None
    keys: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it listens on a loopback address."""
        return self.host in LOOPBACK and self.unix_socket is None

    def __post_init__(self) -> None:
        for name in (
            *("workers", "deadline", "max_body", "max_inputs", "queue_tokens", "queue_inputs"),
        ):
            if getattr(self, name) <= 0:
                raise UsageError(f"{param(name, getattr(self, name))}: expected more than 0")


def api_keys(file: Path | None) -> tuple[str, ...]:
    """The keys in a file, one a line, and in TIDYBERT_API_KEYS, with commas between them."""
    found = [each.strip() for each in os.environ.get(KEYS_VARIABLE, "").split(",")]
    if file is not None:
        lines = [each.strip() for each in read_text(file, JSON_BYTES).splitlines()]
        if not any(lines):
            raise UsageError(f"{param('api_key_file', file)}: it has no key; write one a line")
        found += lines
    keys = tuple(dict.fromkeys(each for each in found if each))
    if any(len(each) < _SHORTEST for each in keys):
        raise UsageError(f"an API key is shorter than {_SHORTEST} characters: give longer ones")
    return keys
