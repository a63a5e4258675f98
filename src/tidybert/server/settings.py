"""What the shell gives to the server, and the limits that it keeps, one field a flag."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

from tidybert.errors import UsageError, param
from tidybert.inference.options import PrecisionOption
from tidybert.options import Options, option
from tidybert.storage.limits import JSON_BYTES
from tidybert.storage.opening import read_text
from tidybert.training.training_arguments import DeviceOption, PickleOption

KEYS_VARIABLE: Final = "TIDYBERT_API_KEYS"
_SHORTEST: Final = 8
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
"""Addresses that only programs of this machine reach."""


@dataclass(frozen=True, kw_only=True)
class BatchOption(Options):
    PANEL: ClassVar = "Device"

    batch_tokens: int | None = option(None, at_least=1)
    """Most tokens that a thread computes at once. If not set: what suits the device."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings(PrecisionOption, BatchOption, DeviceOption, PickleOption):
    """The models and the limits of one server.

    models: the MODEL or RUN of each name; the first one serves requests that name none.
    keys: the API keys; none lets everybody in.
    """

    PANEL: ClassVar = "Other options"

    host: str = option("127.0.0.1")
    """Address to listen on; 0.0.0.0 is every address of this machine."""
    port: int = option(8000, at_least=0, at_most=65_535)
    """Port to listen on; 0 takes a free one."""
    unix_socket: Path | None = option(None)
    """``--unix-socket PATH``: Listen on this socket instead of a port."""
    allowed_host: str | None = option(None)
    """``--allowed-host NAMES``: Also answer to these host names, with commas between them; without
    keys, addresses and names without a dot are answered anyway."""
    allow_token_ids: bool = False
    """``--allow-token-ids``: Take token ids at /v1/embeddings too. Clients of OpenAI may send those
    of another model, which give meaningless vectors."""
    special_tokens_in_text: bool = False
    """``--special-tokens-in-text``: Read special tokens that clients write in texts, such as
    [SEP], as the model was trained to; otherwise they are plain text."""
    workers: int = option(1, at_least=1)
    """``--workers N``: Processes that answer. They share the weights and divide the cores."""
    index: Path | None = option(None)
    """``--index DIR``: Also search in this index, which one of the models made, at /search."""
    api_key_file: Path | None = option(None)
    """``--api-key-file FILE``: Only let in clients that give one of the keys in FILE, one a line.
    TIDYBERT_API_KEYS may contain keys too, with commas between them."""
    deadline: float = option(30.0, above=0)
    """Refuse a request with status 504 after this many seconds."""
    max_body: int = option(2 * 2**20, at_least=1)
    """Most bytes of one request; a larger one gets status 413."""
    max_inputs: int = option(2048, at_least=1)
    """Most inputs of one request; more get status 422."""
    queue_tokens: int = option(65_536, at_least=1)
    """Refuse requests with status 429 while this many tokens wait."""
    queue_inputs: int = option(4096, at_least=1)
    """Refuse requests with status 429 while this many inputs wait."""
    models: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = field(default=(), repr=False)

    @cached_property
    def are_graphs(self) -> bool:
        """Whether ONNX graphs answer, and no network; raises as ``find_model``."""
        from tidybert.inference.loading import answers_by_graph

        return bool(self.models) and all(map(answers_by_graph, self.models.values()))

    @property
    def device_type(self) -> str:
        """cpu or cuda; PyTorch, which knows, is loaded where it will be needed."""
        if self.are_graphs:
            return "cpu"
        from tidybert.inference.loading import choose_device

        return choose_device(self.device).type

    @property
    def is_local(self) -> bool:
        """Whether it listens on a loopback address."""
        return self.host in LOOPBACK and self.unix_socket is None


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
