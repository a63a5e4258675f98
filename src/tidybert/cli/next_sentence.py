"""``tidybert next-sentence``: does B follow A?  Of two sentences, or of a file of pairs."""

import sys
from typing import Annotated

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions


@takes(read=ReadOptions)
def next_sentence(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="With a next-sentence head, as pre-training leaves."),
    ],
    first: Annotated[str | None, typer.Argument(metavar="A", help="A sentence.")] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="The one that may follow it.")
    ] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Pairs in place of A and B, answered by a JSON line each; - reads standard input.",
        ),
    ] = None,
    max_seq_length: Annotated[
        int | None,
        typer.Option(
            "--max-seq-length",
            help="Tokens a pair is cut to; all that the model has positions for if not set.",
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and say which.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights from a pickle of MODEL.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    read: ReadOptions,
) -> None:
    """Tell how likely it is that sentence B follows sentence A in a text.

    As JSON this is {"follows", "num_tokens", "truncated"}.
    """
    from tidybert.files.text_examples import ReadReport, TextExample
    from tidybert.files.text_files import read_examples
    from tidybert.inference.arrivals import as_it_comes
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
    answered = truncated = 0
    with as_it_comes(examples, file or "") as coming:
        for answer in predictor.predict_stream(coming):
            if json or file is not None:
                print_json(answer)
            else:
                print(f"{answer['follows']:.4f} is the probability that B follows A")
            if answered == 0 or file == "-":
                sys.stdout.flush()
            answered += 1
            truncated += answer["truncated"]
    for line in report.lines():
        note(line)
    if truncated:
        note(f"{truncated:,} of {answered:,} pairs were cut to {predictor.max_seq_length} tokens")
