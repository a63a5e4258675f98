"""``tidybert page``: the page that shows what happens inside, for models of this machine."""

import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer

from tidybert.catalog import obtainable
from tidybert.checkpoints.unfinished import find_unfinished
from tidybert.cli import flags
from tidybert.cli.commands.serve import named, server_process
from tidybert.cli.flags import takes
from tidybert.cli.output import note
from tidybert.options import option
from tidybert.server.settings import ServerSettings
from tidybert.storage.model_files import METADATA_FILE

PORT: Final = 8100
# What tidybert quickstart and tidybert quickstart --poem write.
QUICKSTARTS: Final = ("tidybert-quickstart", "tidybert-poem")


@dataclass(frozen=True, kw_only=True)
class PageFlags(flags.ThreadsFlag, flags.PickleFlag):
    PANEL: ClassVar = "Other options"

    port: int = option(PORT, at_least=0, at_most=65_535)
    """Port to listen on; 0 takes a free one."""
    index: Path | None = None
    """``--index DIR``: Also search in this index, which one of the models made."""
    no_browser: bool = False
    """``--no-browser``: Do not open a browser."""


@takes(given=PageFlags)
def page(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="RUNs or MODELs to look into."),
    ] = None,
    *,
    given: PageFlags,
) -> None:
    """Open the page that shows what happens inside models, until Ctrl-C.

    Installed weights are on it too, and the quickstart's models where they are in this folder. Of a
    RUN in training it shows the last checkpoint and the curves.
    Only this machine can reach the page.
    """
    process = server_process("page")

    given_runs = runs or []
    here = _found_here(given_runs)
    settings = ServerSettings(
        models={name: _last_of(path) for name, path in named([*given_runs, *here]).items()},
        index=given.index,
        port=given.port,
        device="cpu",
        allow_pickle=given.allow_pickle,
    )

    def listening(address: str) -> None:
        note(f"the page is at {address}")
        if not given.no_browser:
            # A browser in a terminal would wait for its end.
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    process.serve(settings, note, log_requests=False, listening=listening)


def _last_of(path: str) -> str:
    """A MODEL; of a RUN that has not ended its last checkpoint, which is one."""
    unfinished = find_unfinished(Path(path)) if Path(path).is_dir() else None
    return f"{path}@{unfinished.step}" if unfinished and unfinished.step else path


def _found_here(runs: list[str]) -> list[str]:
    """Installed weights and the quickstart's finished RUNs, except those named already."""
    found = [each.name for each in obtainable() if each.find()]
    found += [each for each in QUICKSTARTS if (Path(each) / METADATA_FILE).is_file()]
    names = named(runs)
    return [each for each in found if Path(each).name not in names]
