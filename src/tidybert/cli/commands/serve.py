"""``tidybert serve``: models over HTTP, by the protocols that clients already speak."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, ClassVar, Final

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import is_quiet, note
from tidybert.errors import UsageError
from tidybert.options import option
from tidybert.system.cores import prepare_short_answers

MOST_USED: Final = (
    "host", "port", "index", "unix_socket", "allowed_host", "api_key_file", "deadline",
)  # fmt: skip
KEYS_VARIABLE: Final = "TIDYBERT_API_KEYS"


@dataclass(frozen=True, kw_only=True)
class ServeFlags(flags.DeviceFlag, flags.PickleFlag):
    PANEL: ClassVar = "Other options"

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every address of this machine."""
    port: int = option(8000, at_least=0, at_most=65_535)
    """Port to listen on; 0 takes a free one."""
    unix_socket: Path | None = None
    """``--unix-socket PATH``: Listen on this socket instead of a port."""
    allowed_host: str | None = None
    """``--allowed-host NAMES``: Also answer to these host names, with commas between them. On this
    machine's own address the server otherwise answers to localhost only."""
    workers: int = option(1, at_least=1)
    """``--workers N``: Processes that answer. They share the weights and divide the cores."""
    index: Path | None = None
    """``--index DIR``: Also search in this index, which one of the models made, at /search."""
    api_key_file: Path | None = None
    """``--api-key-file FILE``: Only let in clients that give one of the keys in FILE, one a line.
    TIDYBERT_API_KEYS may contain keys too, with commas between them."""
    deadline: float = 30.0
    """Refuse a request with status 504 after this many seconds."""
    max_body: int = option(2 * 2**20, at_least=1)
    """Most bytes of one request; a larger one gets status 413."""
    max_inputs: int = option(2048, at_least=1)
    """Most inputs of one request; more get status 422."""
    queue_tokens: int = option(65_536, at_least=1)
    """Refuse requests with status 429 while this many tokens wait."""
    queue_inputs: int = option(4096, at_least=1)
    """Refuse requests with status 429 while this many inputs wait."""
    precision: str = option("auto", panel="Device")
    """Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 on CUDA after
    training in it, else float32."""
    batch_tokens: int | None = option(None, at_least=1, panel="Device")
    """Most tokens that a thread computes at once. If not set: what suits the device."""


@takes(*MOST_USED, given=ServeFlags)
def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="RUNs or MODELs to serve; NAME=RUN gives one a name of its own.",
        ),
    ],
    *,
    given: ServeFlags,
) -> None:
    """Answer requests over HTTP by one or several models, until Ctrl-C.

    A RUN predicts and embeds; a MODEL embeds, and fills masks if its weights can.
    """
    process = server_process("serve")
    from tidybert.server.settings import ServerSettings, api_keys

    keys = api_keys(given.api_key_file)
    settings = ServerSettings(
        models=named(runs),
        index=given.index,
        host=given.host,
        port=given.port,
        unix_socket=given.unix_socket,
        allowed_hosts=tuple((given.allowed_host or "").lower().replace(",", " ").split()),
        workers=given.workers,
        device=given.device,
        precision=given.precision,
        allow_pickle=given.allow_pickle,
        deadline=given.deadline,
        max_body=given.max_body,
        max_inputs=given.max_inputs,
        queue_tokens=given.queue_tokens,
        queue_inputs=given.queue_inputs,
        batch_tokens=given.batch_tokens,
        keys=keys,
    )
    if not settings.is_local and given.unix_socket is None and not keys:
        note(
            f"warning: {given.host} may be reached from other machines, and no API key is set: "
            f"give --api-key-file, or set {KEYS_VARIABLE}"
        )
    process.serve(settings, note, log_requests=not is_quiet())


def server_process(command: str) -> ModuleType:
    """The module process of the server; UsageError without its packages."""
    prepare_short_answers()
    try:
        from tidybert.server import process
    except ModuleNotFoundError as error:
        raise UsageError(
            f"tidybert {command} needs the package {error.name}: pip install 'tidybert[server]'"
        ) from None
    return process


def named(runs: Sequence[str]) -> dict[str, str]:
    """The path of each model by its name: NAME=RUN, or the last part of the path."""
    found: dict[str, str] = {}
    for each in runs:
        name, sign, path = each.partition("=")
        if not sign or "/" in name:
            name, path = Path(each).name or Path(each).absolute().name, each
        if not name or not path:
            raise UsageError(f"{each!r}: expected RUN or NAME=RUN")
        if name in found:
            raise UsageError(
                f"two models are named {name!r}: give one another name, as in other={path}"
            )
        found[name] = path
    return found
