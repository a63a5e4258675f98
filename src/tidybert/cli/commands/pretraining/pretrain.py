"""``tidybert pretrain``: token shards in, an encoder of your own out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Protocol

import typer

from tidybert.cli import flags
from tidybert.cli.flags import take_branch, takes
from tidybert.cli.output import SHELL, note, print_json, print_table
from tidybert.errors import TidyBertError, in_shell
from tidybert.options import option, values_of
from tidybert.pretraining.batches.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.pretraining.pretraining_job import ModelShape, PretrainingJob, PretrainingOptions
from tidybert.storage.model_files import CURVES_FILE
from tidybert.storage.output_lock import output_lock
from tidybert.system.cores import load_note
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import clock

if TYPE_CHECKING:
    from tidybert.training.reports import StepReport, TrainingResult
    from tidybert.training.trackers import Track

_LINE_SECONDS: Final = 30.0
_MEANINGS: Final = {
    "loss": "sum of the losses below",
    "mlm_loss": "mean of -ln(probability of the masked word)",
    "lm_loss": "mean of -ln(probability of the next token)",
    "perplexity": "exp(loss of the words): between how many the model chooses",
    "mlm_accuracy": "fraction of the masked words that are right",
    "lm_accuracy": "fraction of the next tokens that are right",
    "nsp_loss": "mean of -ln(probability of the pair's class)",
    "nsp_accuracy": "fraction of the pairs that are right",
    "probe": "accuracy of a linear probe on the frozen states",
}
_SHOWN: Final = (
    "mlm_loss", "lm_loss", "mlm_accuracy", "lm_accuracy", "perplexity", "nsp_accuracy", "probe",
)  # fmt: skip
MOST_USED: Final = (
    "data", "out", "recipe", "objective", "max_steps", "tokens_per_step", "max_seq_length",
    "learning_rate", "seed", "resume",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PretrainFlags(flags.RunFlags, PretrainingOptions, flags.ThreadsFlag, flags.JsonFlag):
    PANEL: ClassVar = "Checkpoints"

    data: list[str]
    """``--data DIR[:WEIGHT]``: Corpus that build-corpus wrote. Give it again for more, whose
    weights divide the tokens: --data wiki:3 --data books:1."""
    # Its help is that of BranchOption.
    branch: str | None = option(None, recorded=False, callback=take_branch)


@takes(
    *MOST_USED,
    given=PretrainFlags,
    instances=InstanceOptions,
    masking=MaskingOptions,
    arguments=PretrainingArguments,
    shape=ModelShape,
)
def pretrain(
    model: Annotated[
        str,
        typer.Argument(
            metavar="SIZE_OR_MODEL",
            help="A size such as mini or base, a config.json without weights, or weights to "
            "continue from.",
        ),
    ],
    *,
    given: PretrainFlags,
    instances: InstanceOptions,
    masking: MaskingOptions,
    arguments: PretrainingArguments,
    shape: ModelShape,
) -> None:
    """Pre-train on a corpus, to predict masked words and whether sentences follow each other.

    Several devices: torchrun --nproc-per-node N -m tidybert pretrain …
    """
    job = PretrainingJob(
        model,
        given.data,
        arguments,
        instances=instances,
        masking=masking,
        shape=shape,
        **values_of(given, PretrainingOptions),
    )
    train_and_show(job, given, f"tidybert finetune classify {given.out} --train FILE --out RUN")


class ShownFlags(Protocol):
    """The flags that a shown pre-training reads."""

    @property
    def is_done(self) -> bool: ...
    @property
    def log_to(self) -> list[str] | None: ...
    @property
    def json(self) -> bool: ...


def train_and_show(job: PretrainingJob, given: "ShownFlags", then: str) -> None:
    """Run a job, alone or as one of torchrun's processes, and show it; ``then`` is a command."""
    if given.is_done:
        return
    from tidybert.pretraining.pretraining_run import run_pretraining
    from tidybert.training.distributed import processes
    from tidybert.training.trackers import tracked

    with (
        tracked(job.out, given.log_to, SHELL) as track,
        processes(job.device) as group,
        shown_training(job.out, track) as reporter,
    ):
        result = run_pretraining(job, reporter, group)
        is_first = group.is_first
    if is_first:
        show_result(result, job.out, then, as_json=given.json)


def show_result(result: "TrainingResult", out: Path, then: str, *, as_json: bool) -> None:
    """Draw the curves, print the metrics, and say how the training went; ``then`` is a command."""
    from tidybert.cli.results import note_trained, trained_figures
    from tidybert.training.runs.run_origin import measured_text

    is_drawn = _draw_curves(out)

    if as_json:
        counts = {"num_tokens": result.num_tokens, "num_bad_steps": result.num_bad_steps}
        print_json({**trained_figures(result, out), **counts})
        return
    print_table(
        {measured_text(out): "left", "value": "right", "meaning": "left"},
        [
            (name, f"{each:.4f}", _meaning(name))
            for meant in _MEANINGS
            for name, each in result.metrics.items()
            if _kind(name) == meant
        ],
    )
    if result.num_bad_steps:
        note(f"{result.num_bad_steps} steps were not finite and updated nothing: bad_steps.jsonl")
    note_trained(result, result.num_tokens, "tokens")
    if is_drawn:
        note(f"the losses are drawn in {out / CURVES_FILE}")
    note(f"the model is in {out}; next: {then}")


def _kind(metric: str) -> str:
    """The name of a metric, whichever corpus, length or probe it is of."""
    return "probe" if metric.startswith("probe_") else metric.partition("/")[0]


def _meaning(metric: str) -> str:
    """What a metric is; that of one corpus or length is the same as of all."""
    corpus = metric.partition("/")[2]
    return f"the same, in {corpus}" if corpus else _MEANINGS[_kind(metric)]


@contextmanager
def shown_training(run: Path, track: "Track | None") -> "Iterator[Reporter]":
    """Reporter that show the training: a line every half minute on stderr, and the curves."""
    from tidybert.training.runs.run_origin import measured_text

    if busy := load_note():
        note(busy)
    steps, tokens, seconds, last, is_first = 0, 0, 0.0, 0.0, True

    def step(done: "StepReport") -> None:
        nonlocal steps, tokens, seconds, last, is_first
        steps, tokens, seconds = steps + 1, tokens + done.num_tokens, seconds + done.seconds
        if not done.updated:
            note(
                f"step {done.step}: the loss is {done.loss} and the gradient norm "
                f"{done.gradient_norm}; nothing was updated"
            )
        if seconds - last < _LINE_SECONDS and not is_first and done.step < done.num_steps:
            return
        last = seconds
        rate = tokens / seconds
        left = (done.num_steps - done.step) * seconds / steps
        parts = ", ".join(
            f"{name} {each:.3f} ({done.accuracies[name]:.1%})" for name, each in done.losses.items()
        )
        mfu = done.figures["mfu"]
        reached = "" if mfu is None else f" ({mfu:.0%} of the peak)"
        note(
            f"step {done.step:,} of {done.num_steps:,}: {parts}, rate {done.learning_rate:.1e}, "
            f"norm {done.gradient_norm:.2f}; {rate:,.0f} tokens/s{reached}, {clock(left)} left"
        )
        if is_first:
            # The first step also prepares a GPU, so the rate is that of the others.
            steps, tokens, seconds, last, is_first = 0, 0, 0.0, 0.0, False

    def metrics(step: int, values: dict[str, Any]) -> None:
        names = [name for shown in _SHOWN for name in values if _kind(name) == shown]
        shown = ", ".join(f"{name} {values[name]:.4f}" for name in names)
        note(f"step {step:,}, {measured_text(run)}: {shown}")
        _draw_curves(run)

    yield Reporter(note=note, spell=in_shell, step=step, metrics=metrics, track=track)


def _draw_curves(run: Path) -> bool:
    """Draw RUN/curves.svg; returns False, with a note, if it cannot be written."""
    from tidybert.reporting.pretraining_curves import write_curves

    try:
        # A kill then leaves the lock of the RUN, which every command on it looks for.
        with output_lock(run):
            write_curves(run)
    except TidyBertError as error:
        note(error.message)
        return False
    return True
