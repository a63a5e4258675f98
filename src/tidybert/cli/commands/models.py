"""``tidybert models`` lists the names of models; ``tidybert download`` installs weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from tidybert import catalog
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.configuration import PUBLISHED, SIZES, BertConfig


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
    _print_configurations("size (random weights)", SIZES)
    published = [name for name in PUBLISHED if name not in SIZES]
    _print_configurations("published (weights: your own)", published)
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


@takes()
def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that tidybert models lists.")],
) -> None:
    """Install published weights from a package, and check them by hash."""
    package = catalog.PRETRAINED.get(name)
    if package is not None and package.find() is None and not package.is_part_of_tidybert:
        note(f"installing {package.requirement} ({package.licence}) without its dependencies")
    print_line(str(catalog.download(name)))
