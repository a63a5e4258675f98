"""``tidybert train-lm``: text in, a language model that reads from left to right out."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.commands.pretrain import show_result, shown_training
from tidybert.cli.flags import takes
from tidybert.cli.output import note
from tidybert.cli.progress import tensorboard_figures
from tidybert.pretraining.language_model_arguments import LanguageModelArguments

MOST_USED: Final = (
    "out", "model", "max_steps", "tokens_per_step", "max_seq_length", "learning_rate", "vocab",
    "seed", "resume",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainLMFlags(flags.RunFlags, flags.DeviceFlag, flags.JsonFlag):
    PANELS: ClassVar = {
        "Task": ("model", "max_seq_length", "positions"),
        "Data": ("vocab", "held_out"),
    }

    model: str = "transformer-tiny"
    """``--model SIZE``: Size of the model: transformer-tiny, transformer-mini, or transformer, the
    original one (6 layers, width 512)."""
    max_seq_length: int = 128
    """Most tokens that the model reads at once, [SOS] included; longer documents are cut."""
    positions: str = "sinusoidal"
    """Position vectors: sinusoidal, computed once, or learned."""
    vocab: str | None = None
    """``--vocab MODEL``: Model or directory whose vocabulary to use for text. If not set: all words
    and characters of the text."""
    held_out: float | None = None
    """Share of the text's documents kept apart to measure on. If not set: 0.005."""


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
    from tidybert.pretraining.instance_options import NextTokenOptions
    from tidybert.pretraining.language_model_run import train_language_model
    from tidybert.training.distributed import processes
    from tidybert.training.run_directory import is_resumed_in_vain

    out = given.out
    if given.resume and is_resumed_in_vain(out, given.keep_checkpoints):
        note(f"the run in {out} is finished: there is nothing to resume")
        return
    with (
        tensorboard_figures(out, given.tensorboard) as add_figure,
        processes(given.device) as group,
        shown_training(out, add_figure) as callbacks,
    ):
        result = train_language_model(
            given.model,
            data,
            out,
            arguments,
            instances=NextTokenOptions(
                max_seq_length=given.max_seq_length, positions=given.positions
            ),
            vocab=given.vocab,
            held_out=given.held_out,
            resume=given.resume,
            keep_checkpoints=given.keep_checkpoints,
            force=given.force,
            device=given.device,
            processes=group,
            callbacks=callbacks,
        )
        is_first = group.is_first
    if is_first:
        show_result(result, out, f'tidybert generate {out} "A beginning"', as_json=given.json)
