"""``tidybert next-sentence``: whether B follows A, for two sentences or a file of pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import print_json, print_line
from tidybert.cli.text_job import answer_texts
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import LongestLengthOption, PairOptions
from tidybert.options import values_of


@dataclass(frozen=True, kw_only=True)
class NextSentenceFlags(LongestLengthOption, flags.AnswerFlags, flags.JsonFlag, flags.OutFlags):
    PANEL: ClassVar = "Other options"

    file: str | None = None
    """``--file FILE``: Pairs instead of A and B, each answered by a JSON line; - reads stdin."""


@takes(given=NextSentenceFlags, read=ReadOptions)
def next_sentence(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model with a next-sentence head.")
    ] = DEFAULT_MODEL,
    first: Annotated[str | None, typer.Argument(metavar="A", help="The first sentence.")] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="The sentence that may follow.")
    ] = None,
    *,
    given: NextSentenceFlags,
    read: ReadOptions,
) -> None:
    """Print the probability that sentence B follows sentence A in a text.

    Without MODEL, A needs more than one word. With --json it prints {"follows", "num_tokens",
    "truncated"}.
    """
    from tidybert.inference.text_jobs import NextSentenceJob

    if first is not None and second is None and " " in model and not Path(model).is_dir():
        model, first, second = DEFAULT_MODEL, model, first
    if (first is None) != (second is None) or (first is None) == (given.file is None):
        raise UsageError("expected two sentences, A and B, or --file with pairs")
    job = NextSentenceJob(
        model=model,
        options=values_of(given, PairOptions),
        read=read,
        skip_bad_rows=given.skip_bad_rows,
    )
    show = print_json if given.json or given.file is not None else _print
    typed = [] if first is None else [(first, second)]
    answer_texts(job, given.file, given, "answering", show, typed=typed)


def _print(answer: Mapping[str, Any]) -> None:
    print_line(f"{answer['follows']:.4f} is the probability that B follows A")
