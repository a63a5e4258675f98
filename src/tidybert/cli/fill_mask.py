"""``tidybert fill-mask``: the likeliest words for each [MASK] in a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import print_json, print_line, print_table

# Characters of a long text that are shown on each side of the word.
_CONTEXT: Final = 60


@dataclass(frozen=True, kw_only=True)
class FillMaskFlags(flags.PickleFlag, flags.DeviceFlag):
    top_k: int | None = None
    """Words to show for each [MASK]. If not set: 5, or all of --among."""
    among: str | None = None
    """``--among WORD,WORD…``: Choose from these words only."""
    json: bool = False
    """``--json``: Print one JSON object for each text."""


@takes(given=FillMaskFlags)
def fill_mask(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model with a masked-LM head.")],
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="A text with one or more [MASK].")
    ],
    *,
    given: FillMaskFlags,
) -> None:
    """Fill in each [MASK] of a text with its likeliest words."""
    from tidybert.inference.fill_mask import MaskFiller

    words = None if given.among is None else [word.strip() for word in given.among.split(",")]
    filler = MaskFiller(model, device=given.device, allow_pickle=given.allow_pickle)
    for number, answer in enumerate(filler.fill(texts, top_k=given.top_k, among=words)):
        if given.json:
            print_json(answer)
            continue
        if number:
            print_line()
        _print(answer)


def _print(answer: Mapping[str, Any]) -> None:
    masks = answer["masks"]
    for number, mask in enumerate(masks, start=1):
        if number > 1:
            print_line()
        print_table(
            {"word": "left", "probability": "right", "text": "left"},
            [
                (each["word"], f"{each['probability']:.4f}", _around(each["text"], mask["start"]))
                for each in mask["words"]
            ],
            title=f"[MASK] {number} of {len(masks)}" if len(masks) > 1 else None,
        )
    if len(masks) > 1:
        print_line(f"\nall filled in: {answer['filled']}")


def _around(text: str, place: int) -> str:
    """The part of a text around a place, on one line."""
    begin, end = max(0, place - _CONTEXT), place + _CONTEXT
    part = " ".join(text[begin:end].split())
    return f"{'…' * (begin > 0)}{part}{'…' * (end < len(text))}"
