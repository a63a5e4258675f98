"""``tidybert fill-mask``: the likeliest words for each [MASK] of a text, or of a file's texts."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.errors import DataError, UsageError
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import OpeningOptions
from tidybert.options import values_of

if TYPE_CHECKING:
    from tidybert.inference.pretraining_heads import MaskFiller

# Characters of a long text that are shown on each side of the word.
_CONTEXT: Final = 60


@dataclass(frozen=True, kw_only=True)
class FillMaskFlags(flags.AnswerFlags):
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
    from tidybert.files.text_files import read_examples
    from tidybert.inference.pretraining_heads import MaskFiller

    texts = texts or []
    if "[MASK]" in model:
        model, texts = DEFAULT_MODEL, [model, *texts]
    if bool(texts) == (given.file is not None):
        raise UsageError("expected a TEXT with [MASK], or --file with texts")
    if given.file is not None:
        read_examples.formats.check(given.file, read.format)
    words = None if given.among is None else [word.strip() for word in given.among.split(",")]
    filler = MaskFiller(model, **values_of(given, OpeningOptions))
    if given.file is not None:
        _fill_file(filler, given.file, given, read, words)
        return
    for number, answer in enumerate(filler.fill(texts, top_k=given.top_k, among=words)):
        if given.json:
            print_json(answer)
            continue
        if number:
            print_line()
        _print(answer)


def _fill_file(
    filler: "MaskFiller",
    file: str,
    given: FillMaskFlags,
    read: ReadOptions,
    words: list[str] | None,
) -> None:
    """Print a JSON line for each text of a file, as it comes."""
    from tidybert.files.reading import ReadReport
    from tidybert.files.text_files import read_examples
    from tidybert.inference.forward import as_it_comes

    report = ReadReport()
    examples = read_examples(
        file, read, need_label=False, skip_bad_rows=given.skip_bad_rows, report=report
    )
    try:
        with as_it_comes(examples, file) as coming:
            for answer in filler.fill_stream(coming, top_k=given.top_k, among=words):
                print_json(answer)
                if file == "-":
                    sys.stdout.flush()
    except DataError as error:
        at = "" if error.message.startswith(file) else f"{file}: "
        raise DataError(f"{at}{error.message}") from error
    note(*report.lines(str))


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
