"""``tidybert train-lm``: text in, a language model that reads from left to right out."""

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from tidybert.cli import flags
from tidybert.cli.commands.pretraining.pretrain import train_and_show
from tidybert.cli.flags import take_branch, takes
from tidybert.options import option, values_of
from tidybert.pretraining.batches.instance_options import NextTokenOptions
from tidybert.pretraining.pretraining_arguments import LanguageModelArguments
from tidybert.pretraining.pretraining_job import BranchOption, PretrainingJob, TextCorpusOptions
from tidybert.training.runs.run_options import RunOptions

MOST_USED: Final = (
    "out", "model", "max_steps", "tokens_per_step", "max_seq_length", "learning_rate", "vocab",
    "seed", "resume",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainLMFlags(
    flags.RunFlags, BranchOption, TextCorpusOptions, flags.ThreadsFlag, flags.JsonFlag
):
    model: str = option("transformer-tiny", panel="Task")
    """``--model SIZE``: Size of the model: transformer-tiny, transformer-mini, or transformer, the
    original one (6 layers, width 512)."""
    max_seq_length: int = option(128, panel="Task")
    """Most tokens that the model reads at once, [SOS] included; longer documents are cut."""
    positions: str = option("sinusoidal", panel="Task")
    """Position vectors: sinusoidal, computed once, or learned."""
    # Its help is that of BranchOption.
    branch: str | None = option(None, recorded=False, callback=take_branch)


@takes(*MOST_USED, given=TrainLMFlags, arguments=LanguageModelArguments)
def train_lm(
    data: Annotated[
        str,
        typer.Argument(
            metavar="CORPUS",
            help="A directory that build-corpus wrote, or a file, folder or glob of text, with a "
            "blank line between documents.",
        ),
    ],
    *,
    given: TrainLMFlags,
    arguments: LanguageModelArguments,
) -> None:
    """Train a language model that predicts each next token from those before it.

    Then: tidybert generate RUN "A beginning".
    """
    job = PretrainingJob(
        given.model,
        data,
        arguments,
        instances=NextTokenOptions(max_seq_length=given.max_seq_length, positions=given.positions),
        **values_of(given, RunOptions, BranchOption, TextCorpusOptions),
    )
    train_and_show(job, given, f'tidybert generate {given.out} "A beginning"')
