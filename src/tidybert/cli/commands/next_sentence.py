"""``tidybert next-sentence``: whether B follows A, for two sentences or a file of pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note_reading, print_answers, print_json, print_line
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import PairOptions
from tidybert.options import values_of


@dataclass(frozen=True, kw_only=True)
class NextSentenceFlags(PairOptions, flags.AnswerFlags, flags.JsonFlag):
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
    from tidybert.files.reading import ReadReport
    from tidybert.files.text_examples import TextExample
    from tidybert.files.text_files import read_examples
    from tidybert.inference.pretraining_heads import NextSentencePredictor

    if first is not None and second is None and " " in model and not Path(model).is_dir():
        model, first, second = DEFAULT_MODEL, model, first
    if (first is None) != (second is None) or (first is None) == (given.file is None):
        raise UsageError("expected two sentences, A and B, or --file with pairs")
    if given.file is not None:
        read_examples.formats.check(given.file, read.format)
    predictor = NextSentencePredictor(model, **values_of(given, PairOptions))
    report = ReadReport()
    if given.file is not None:
        examples = read_examples(
            given.file, read, need_label=False, skip_bad_rows=given.skip_bad_rows, report=report
        )
    else:
        examples = iter([TextExample(first or "", second, None, 1)])
    as_json = given.json or given.file is not None
    answered, truncated = print_answers(
        predictor.predict_stream, examples, given.file or "", print_json if as_json else _print
    )
    cut = f"pairs were cut to {predictor.max_seq_length} tokens"
    note_reading(report, truncated, answered, cut)


def _print(answer: Mapping[str, Any]) -> None:
    print_line(f"{answer['follows']:.4f} is the probability that B follows A")
