"""``tidybert score``: the probability of each token of texts, and their perplexity."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.text_job import answer_texts
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import OpeningOptions
from tidybert.options import values_of


@dataclass(frozen=True, kw_only=True)
class ScoreFlags(flags.AnswerFlags, flags.JsonFlag, flags.OutFlags):
    """The flags of score."""


@takes(given=ScoreFlags, read=ReadOptions)
def score(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A RUN of train-lm, or a BERT with a masked-LM head."),
    ],
    file: flags.TextsArgument,
    *,
    given: ScoreFlags,
    read: ReadOptions,
) -> None:
    """Show how likely a model finds texts: each token's probability, and the perplexity.

    A language model predicts each token from those before it. A BERT predicts each from all
    others, masked in turn: that gives a pseudo-perplexity, and the two cannot be compared.
    """
    from tidybert.inference.text_jobs import ScoreJob

    job = ScoreJob(
        model=model,
        options=values_of(given, OpeningOptions),
        read=read,
        skip_bad_rows=given.skip_bad_rows,
    )
    answered, num_tokens, total, name = 0, 0, 0.0, ""

    def show(answer: dict[str, Any]) -> None:
        nonlocal answered, num_tokens, total, name
        name = next(each for each in answer if each.endswith("perplexity"))
        answered += 1
        num_tokens += answer["num_tokens"]
        total += answer["num_tokens"] * math.log(answer[name])
        if given.json:
            print_json(answer)
        else:
            _print(answer, name.replace("_", "-"), answer[name])

    answer_texts(job, file, given, "scoring", show)
    if answered > 1:
        mean = math.exp(total / num_tokens)
        measure = name.replace("_", "-")
        note(f"all {answered:,} texts: {measure} {mean:,.2f}, {num_tokens:,} tokens")


def _print(answer: Mapping[str, Any], measure: str, value: float) -> None:
    print_table(
        {"token": "left", "probability": "right"},
        [(each["token"], f"{each['probability']:.4f}") for each in answer["tokens"]],
    )
    print_line(f"{measure} {value:,.2f}\n")
