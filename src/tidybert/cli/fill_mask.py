"""``tidybert fill-mask``: the likeliest words for each [MASK] in a text."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.output import print_json, print_table

# Characters of a long text that are shown on each side of the word.
_CONTEXT: Final = 60


def fill_mask(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model with a masked-LM head.")],
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="A text with one or more [MASK]."),
    ],
    *,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k", help="Words to show for each [MASK]. If not set: 5, or all of --among."
        ),
    ] = None,
    among: Annotated[
        str | None,
        typer.Option("--among", metavar="WORD,WORD…", help="Choose from these words only."),
    ] = None,
    device: flags.DeviceOption = "auto",
    allow_pickle: flags.AllowPickleOption = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each text.")
    ] = False,
) -> None:
    """Fill in each [MASK] of a text with its likeliest words."""
    from tidybert.inference.fill_mask import MaskFiller

    words = None if among is None else [word.strip() for word in among.split(",")]
    filler = MaskFiller(model, device=device, allow_pickle=allow_pickle)
    for number, answer in enumerate(filler.fill(texts, top_k=top_k, among=words)):
        if json:
            print_json(answer)
            continue
        if number:
            print()
        _print(answer)


def _print(answer: Mapping[str, Any]) -> None:
    masks = answer["masks"]
    for number, mask in enumerate(masks, start=1):
        if number > 1:
            print()
        print_table(
            {"word": "left", "probability": "right", "text": "left"},
            [
                (each["word"], f"{each['probability']:.4f}", _around(each["text"], mask["start"]))
                for each in mask["words"]
            ],
            title=f"[MASK] {number} of {len(masks)}" if len(masks) > 1 else None,
        )
    if len(masks) > 1:
        print(f"\nall filled in: {answer['filled']}")


def _around(text: str, place: int) -> str:
    """The part of a text around a place, on one line."""
    begin, end = max(0, place - _CONTEXT), place + _CONTEXT
    part = " ".join(text[begin:end].split())
    return f"{'…' * (begin > 0)}{part}{'…' * (end < len(text))}"
