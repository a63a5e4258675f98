"""``tidybert fill-mask``: the likeliest words for each [MASK] of a text, or of a file's texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import typer

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import print_json, print_line, print_table
from tidybert.cli.text_job import answer_texts
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import OpeningOptions
from tidybert.options import values_of

# Characters of a long text that are shown on each side of the word.
_CONTEXT: Final = 60


@dataclass(frozen=True, kw_only=True)
class FillMaskFlags(flags.AnswerFlags, flags.OutFlags):
    PANEL: ClassVar = "Other options"

    file: str | None = None
    """``--file FILE``: Texts instead of TEXT, each answered by a JSON line; - reads stdin."""
    top_k: int | None = None
    """Words to show for each [MASK]. If not set: 5, or all of --among."""
    among: str | None = None
    """``--among WORD,WORD…``: Choose from these words only."""
    json: bool = False
    """``--json``: Print one JSON object for each text."""


@takes(given=FillMaskFlags, read=ReadOptions)
def fill_mask(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model with a masked-LM head.")
    ] = DEFAULT_MODEL,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="A text with one or more [MASK]."),
    ] = None,
    *,
    given: FillMaskFlags,
    read: ReadOptions,
) -> None:
    """Fill in each [MASK] of a text with its likeliest words."""
    from tidybert.inference.text_jobs import FillMaskJob

    texts = texts or []
    if "[MASK]" in model:
        model, texts = DEFAULT_MODEL, [model, *texts]
    if bool(texts) == (given.file is not None):
        raise UsageError("expected a TEXT with [MASK], or --file with texts")
    job = FillMaskJob(
        model=model,
        options=values_of(given, OpeningOptions),
        read=read,
        skip_bad_rows=given.skip_bad_rows,
        top_k=given.top_k,
        among=None if given.among is None else [word.strip() for word in given.among.split(",")],
    )
    is_first = True

    def show(answer: dict[str, Any]) -> None:
        nonlocal is_first
        if given.json or given.file is not None:
            print_json(answer)
            return
        if not is_first:
            print_line()
        is_first = False
        _print(answer)

    typed = [(text, None) for text in texts]
    answer_texts(job, given.file, given, "filling in", show, typed=typed)


def _print(answer: Mapping[str, Any]) -> None:
    masks = answer["masks"]
    for number, mask in enumerate(masks, start=1):
        if number > 1:
            print_line()
        masked = answer["text"][mask["start"] : mask["end"]]
        print_table(
            {"word": "left", "probability": "right", "text": "left"},
            [
                (each["word"], f"{each['probability']:.4f}", _around(each["text"], mask["start"]))
                for each in mask["words"]
            ],
            title=f"{masked} {number} of {len(masks)}" if len(masks) > 1 else None,
        )
    if len(masks) > 1:
        print_line(f"\nall filled in: {answer['filled']}")


def _around(text: str, place: int) -> str:
    """The part of a text around a place, on one line."""
    begin, end = max(0, place - _CONTEXT), place + _CONTEXT
    part = " ".join(text[begin:end].split())
    return f"{'…' * (begin > 0)}{part}{'…' * (end < len(text))}"
