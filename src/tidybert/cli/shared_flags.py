"""Flags and arguments that several commands share, each declared once.

The panel of a flag is the section of ``--help`` that shows it, where a command has sections.
"""

from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A name that tidybert models lists, or a directory.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A finished RUN.")]
TextsArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Texts; - reads standard input.")
]
CorpusArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS...",
        help="Files, folders or globs: text with a blank line between documents, JSON lines, "
        "Parquet; plain, .gz, .xz or .zst.",
    ),
]

RunOption = Annotated[
    Path, typer.Option("--out", metavar="RUN", help="New directory for the trained model.")
]
NewDirectoryOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="New directory to write.")
]
HeldOutOption = Annotated[
    float, typer.Option("--held-out", help="Share of the documents kept apart to measure on.")
]
SkipBadRowsOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Skip rows that cannot be read, and report which.",
        rich_help_panel="Data",
    ),
]
_MAX_SEQ_LENGTH = "Most tokens of a text; a longer one is cut. "
TrainedLengthOption = Annotated[
    int | None,
    typer.Option("--max-seq-length", help=_MAX_SEQ_LENGTH + "If not set, as in training."),
]
LongestLengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-seq-length", help=_MAX_SEQ_LENGTH + "If not set, as many as the model allows."
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on from the last checkpoint in RUN.",
        rich_help_panel="Checkpoints",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        help="Device to compute on: auto, cpu, cuda or cuda:N.",
        rich_help_panel="Device",
    ),
]
AllowPickleOption = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Also read weights from a pickle; nothing else in it is loaded.",
        rich_help_panel="Checkpoints",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
