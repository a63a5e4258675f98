"""``tidybert next-sentence``: whether B follows A, for two sentences or a file of pairs."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.labelled_files import note_reading, print_answers
from tidybert.cli.output import print_json
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions


@takes(read=ReadOptions)
def next_sentence(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A model with a next-sentence head."),
    ],
    first: Annotated[str | None, typer.Argument(metavar="A", help="The first sentence.")] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="The sentence that may follow.")
    ] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Pairs instead of A and B, each answered by a JSON line; - reads standard input.",
        ),
    ] = None,
    max_seq_length: flags.LongestLengthOption = None,
    skip_bad_rows: flags.SkipBadRowsOption = False,
    device: flags.DeviceOption = "auto",
    allow_pickle: flags.AllowPickleOption = False,
    json: flags.JsonOption = False,
    read: ReadOptions,
) -> None:
    """Print the probability that sentence B follows sentence A in a text.

    With --json it prints {"follows", "num_tokens", "truncated"}.
    """
    from tidybert.files.read_report import ReadReport
    from tidybert.files.text_examples import TextExample
    from tidybert.files.text_files import read_examples
    from tidybert.inference.next_sentence import NextSentencePredictor

    if (first is None) != (second is None) or (first is None) == (file is None):
        raise UsageError("expected two sentences, A and B, or --file with pairs")
    predictor = NextSentencePredictor(
        model, max_seq_length=max_seq_length, device=device, allow_pickle=allow_pickle
    )
    report = ReadReport()
    if file is not None:
        examples = read_examples(
            file, read, need_label=False, skip_bad_rows=skip_bad_rows, report=report
        )
    else:
        examples = iter([TextExample(first or "", second, None, 1)])
    as_json = json or file is not None
    answered, truncated = print_answers(
        predictor.predict_stream, examples, file or "", print_json if as_json else _print
    )
    cut = f"pairs were cut to {predictor.max_seq_length} tokens"
    note_reading(report, truncated, answered, cut)


def _print(answer: Mapping[str, Any]) -> None:
    print(f"{answer['follows']:.4f} is the probability that B follows A")
