"""``tidybert serve``: models over HTTP, by the protocols that clients already speak."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Final

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import is_quiet, note
from tidybert.errors import UsageError
from tidybert.server.settings import KEYS_VARIABLE, ServerSettings, api_keys
from tidybert.system.cores import prepare_short_answers

MOST_USED: Final = (
    "host", "port", "index", "unix_socket", "allowed_host", "api_key_file", "deadline",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ServeFlags(ServerSettings, flags.DeviceFlag):
    pass


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
    settings = replace(given, models=named(runs), keys=api_keys(given.api_key_file))
    if not settings.is_local and settings.unix_socket is None and not settings.keys:
        note(
            f"warning: {settings.host} may be reached from other machines, and no API key is set: "
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
