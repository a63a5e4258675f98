"""``tidybert models`` lists the names of models; ``tidybert download`` installs weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidybert import catalog
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.progress import shown_progress
from tidybert.configuration import PUBLISHED, SIZES, BertConfig
from tidybert.storage.hub_files import cached_model, cached_names
from tidybert.storage.model_files import CONFIG_FILE


@dataclass(frozen=True, kw_only=True)
class ModelsFlags:
    json: bool = False
    """``--json``: Print one JSON object for each model."""


@takes(given=ModelsFlags)
def models(*, given: ModelsFlags) -> None:
    """List the names that MODEL can have, and which are installed."""
    if given.json:
        for package in catalog.obtainable():
            directory = package.find()
            print_json(
                {
                    "name": package.name,
                    "kind": "weights",
                    "installed": directory is not None,
                    "directory": directory and str(directory),
                    "licence": package.licence,
                    "package": package.requirement,
                    "description": package.description,
                }
            )
        for each in cached_names():
            print_json(
                {
                    "name": each.repo,
                    "kind": "hub",
                    "installed": True,
                    "directory": str(cached_model(each)),
                }
            )
        for name in PUBLISHED:
            kind = "size" if name in SIZES else "configuration"
            print_json({"name": name, "kind": kind, **_figures(name)})
        return

    rows = [
        (each.name, "yes" if each.find() else "no", each.licence, each.description)
        for each in catalog.obtainable()
    ]
    print_table(
        {"weights": "left", "installed": "left", "licence": "left", "description": "left"}, rows
    )
    if cached := cached_names():
        print_line()
        print_table(
            {"from the hub": "left", "revision": "left"},
            [(each.repo, (cached_model(each) or Path()).name[:12]) for each in cached],
        )
    _print_configurations("size (random weights)", SIZES)
    published = [name for name in PUBLISHED if name not in SIZES]
    _print_configurations("published (tidybert download NAME)", published)
    for package in catalog.obtainable():
        if package.find() is None:
            note(f"install {package.name} with: tidybert download {package.name}")


def _figures(name: str) -> dict[str, int]:
    config = BertConfig.from_name(name)
    return {
        "num_hidden_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "vocab_size": config.vocab_size,
        "num_parameters": config.num_parameters,
    }


def _print_configurations(heading: str, names: Iterable[str]) -> None:
    print_line()
    rows = [(name, *(f"{value:,}" for value in _figures(name).values())) for name in names]
    print_table(
        {
            heading: "left",
            "layers": "right",
            "width": "right",
            "heads": "right",
            "vocabulary": "right",
            "parameters": "right",
        },
        rows,
    )


@dataclass(frozen=True, kw_only=True)
class DownloadFlags:
    allow_pickle: bool = False
    """Fetch weights that the hub has only as a pickle; reading them needs this flag too."""


@takes(given=DownloadFlags)
def download(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A name that tidybert models lists, or a hub's OWNER/NAME[@REVISION].",
        ),
    ],
    *,
    given: DownloadFlags,
) -> None:
    """Fetch published weights from a package or a hub, and check them by hash.

    It is the only command that opens a connection.
    """
    on_hub = None if name in catalog.PRETRAINED else catalog.hub_name(name)
    if on_hub is None:
        package = catalog.PRETRAINED.get(name)
        if package is not None and package.find() is None and not package.is_part_of_tidybert:
            note(f"installing {package.requirement} ({package.licence}) without its dependencies")
        print_line(str(catalog.download(name)))
        return
    with shown_progress(f"fetching {on_hub}") as show:

        def progress(file: str, done: int, total: int) -> None:
            show(done, total, lambda _, rate: f"{file}, {rate / 1e6:.1f} MB/s")

        found = catalog.download_from_hub(
            on_hub, allow_pickle=given.allow_pickle, progress=progress
        )
    config = BertConfig.from_file(found.directory / CONFIG_FILE)
    note(
        f"{on_hub} at {found.commit[:12]}: {config.num_hidden_layers} layers, width "
        f"{config.hidden_size}, {config.num_parameters / 1e6:.1f} M parameters; licence "
        f"{found.licence or 'not stated'}; {found.num_bytes / 1e6:,.1f} MB"
    )
    note(f"next: tidybert finetune classify {on_hub} --train FILE --out RUN")
    print_line(str(found.directory))
