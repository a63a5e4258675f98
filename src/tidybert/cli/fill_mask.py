"""``tidybert fill-mask``: the words that a pre-trained model puts in the place of [MASK]."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from tidybert.cli.output import print_json, print_table

# Of a long text only so many characters around the word are shown.
_CONTEXT: Final = 60


def fill_mask(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="With a masked-LM head, as pre-training leaves.")
    ],
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="In which [MASK] stands for a word, or several."),
    ],
    *,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k", help="Words shown for each [MASK]; 5 if not set, or all of --among."
        ),
    ] = None,
    among: Annotated[
        str | None,
        typer.Option("--among", metavar="WORD,WORD…", help="The only words to choose from."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights from a pickle of MODEL.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a text.")] = False,
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
    """A text's part around a place, on one line."""
    begin, end = max(0, place - _CONTEXT), place + _CONTEXT
    part = " ".join(text[begin:end].split())
    return f"{'…' * (begin > 0)}{part}{'…' * (end < len(text))}"
