"""``tidybert serve`` and ``page``: models over HTTP, and a page that shows their inside."""

import threading
import webbrowser
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import ClassVar, Final

from tidybert.catalog import obtainable
from tidybert.checkpoints.unfinished import find_unfinished
from tidybert.cli import flags
from tidybert.cli.flags import command
from tidybert.cli.output import is_quiet, note
from tidybert.errors import UsageError
from tidybert.options import option
from tidybert.server.settings import KEYS_VARIABLE, ServerSettings, api_keys
from tidybert.storage.model_files import METADATA_FILE
from tidybert.system.cores import prepare_short_answers
from tidybert.system.version import extra_of

# What tidybert quickstart writes.
_QUICKSTART: Final = "tidybert-quickstart"


@command(
    "serve", "host", "port", "index", "unix_socket", "allowed_host", "api_key_file", "deadline"
)
class Serve(ServerSettings, flags.DeviceFlag):
    """Answer requests over HTTP by one or several models, until Ctrl-C.

    A RUN predicts and embeds; a MODEL embeds, and fills masks if its weights can.
    """

    runs: list[str]
    """``RUN``: RUNs or MODELs to serve; NAME=RUN gives one a name of its own."""

    def run(self) -> None:
        process = server_process("serve")
        settings = replace(self, models=named(self.runs), keys=api_keys(self.api_key_file))
        if not settings.is_local and settings.unix_socket is None and not settings.keys:
            note(
                f"warning: {settings.host} may be reached from other machines, and no API key is "
                f"set: give --api-key-file, or set {KEYS_VARIABLE}"
            )
        process.serve(settings, note, log_requests=not is_quiet())


@command("page", panels=True)
class Page(flags.ThreadsFlag, flags.PickleFlag):
    """Open the page that shows what happens inside models, until Ctrl-C.

    Installed weights are on it too, and the quickstart's models where they are in this folder. Of a
    RUN in training it shows the last checkpoint and the curves.
    Only this machine can reach the page.
    """

    PANEL: ClassVar = "Other options"

    runs: list[str] | None = None
    """``RUN``: RUNs or MODELs to look into."""
    port: int = option(8100, at_least=0, at_most=65_535)
    """Port to listen on; 0 takes a free one."""
    index: Path | None = None
    """``--index DIR``: Also search in this index, which one of the models made."""
    no_browser: bool = False
    """``--no-browser``: Do not open a browser."""

    def run(self) -> None:
        process = server_process("page")
        given = named(self.runs or [])
        # Installed weights and the quickstart's finished RUN, except those named already.
        here = [each.name for each in obtainable() if each.find()]
        here += [_QUICKSTART] * (Path(_QUICKSTART) / METADATA_FILE).is_file()
        found = {**given, **named(each for each in here if Path(each).name not in given)}
        settings = ServerSettings(
            models={name: _last_of(path) for name, path in found.items()},
            index=self.index,
            port=self.port,
            device="cpu",
            allow_pickle=self.allow_pickle,
        )
        show = partial(show_page, self.no_browser)
        process.serve(settings, note, log_requests=False, listening=show)


def show_page(no_browser: bool, address: str) -> None:
    """Say where a page is, and open a browser on it."""
    note(f"the page is at {address}")
    if not no_browser:
        # A browser in a terminal would wait for its end.
        threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()


def _last_of(path: str) -> str:
    """A MODEL; of a RUN that has not ended its last checkpoint, which is one."""
    unfinished = find_unfinished(Path(path)) if Path(path).is_dir() else None
    return f"{path}@{unfinished.step}" if unfinished and unfinished.step else path


def server_process(command: str) -> ModuleType:
    """The module process of the server; UsageError without its packages."""
    prepare_short_answers()
    try:
        from tidybert.server import process
    except ModuleNotFoundError as error:
        raise UsageError(
            f"tidybert {command} needs the package {error.name}: pip install '{extra_of('server')}'"
        ) from None
    return process


def named(runs: Iterable[str]) -> dict[str, str]:
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
