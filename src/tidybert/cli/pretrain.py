"""``tidybert pretrain``: a corpus of token shards in, an encoder of one's own out."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_table
from tidybert.errors import UsageError
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.pretraining_arguments import PretrainingArguments

if TYPE_CHECKING:
    from tidybert.pretraining.pretraining_run import PretrainingCallbacks
    from tidybert.pretraining.step_reports import PretrainingReport

_LINE_SECONDS = 30.0
_MEANINGS = {
    "loss": "sum of what follows",
    "mlm_loss": "mean of -ln(probability of the masked word)",
    "perplexity": "exp of it: as many words are as likely",
    "mlm_accuracy": "share of the masked words that are right",
    "nsp_loss": "mean of -ln(probability of the pair's class)",
    "nsp_accuracy": "share of the pairs that are right",
}


@takes(instances=InstanceOptions, masking=MaskingOptions, arguments=PretrainingArguments)
def pretrain(
    model: Annotated[
        str,
        typer.Argument(metavar="SIZE_OR_MODEL", help="mini, base, …, or weights to train on."),
    ],
    *,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="What tidybert build-corpus wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="New directory to write.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write figures for TensorBoard into RUN.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    instances: InstanceOptions,
    masking: MaskingOptions,
    arguments: PretrainingArguments,
) -> None:
    """Pre-train on a corpus: masked words, and whether sentences follow each other.

    Several devices: torchrun --nproc-per-node N -m tidybert pretrain …
    """
    from tidybert.pretraining.pretraining_run import pretrain as run_pretraining
    from tidybert.training.distributed import processes
    from tidybert.training.run_directory import is_finished

    if resume and is_finished(out):
        note(f"the run in {out} is finished: there is nothing to resume")
        return
    with (
        _tensorboard(out, tensorboard) as tell,
        processes(device) as group,
        _shown(out, tell) as callbacks,
    ):
        result = run_pretraining(
            model,
            data,
            out,
            arguments,
            instances=instances,
            masking=masking,
            resume=resume,
            device=device,
            processes=group,
            callbacks=callbacks,
        )
        is_first = group.is_first
    if not is_first:
        return
    is_drawn = _draw_curves(out)
    if json:
        print_json(
            {
                **result.metrics,
                "best_step": result.best_step,
                "num_steps": result.num_steps,
                "num_tokens": result.num_tokens,
                "num_bad_steps": result.num_bad_steps,
                "seconds": result.seconds,
                "run": str(out),
            }
        )
        return
    print_table(
        {"held-out text": "left", "value": "right", "meaning": "left"},
        [
            (name, f"{result.metrics[name]:.4f}", meaning)
            for name, meaning in _MEANINGS.items()
            if name in result.metrics
        ],
    )
    if result.num_bad_steps:
        note(f"{result.num_bad_steps} steps were not finite and updated nothing: bad_steps.jsonl")
    rate = result.num_tokens / result.seconds if result.seconds else 0.0
    note(
        f"{result.num_steps} steps, {result.num_tokens:,} tokens in {_clock(result.seconds)} "
        f"({rate:,.0f} tokens/s); the weights are those of step {result.best_step}"
    )
    if is_drawn:
        note(f"the losses are drawn in {out / 'curves.svg'}")
    note(f"the model is in {out}; next: tidybert finetune classify {out} --train FILE --out RUN")


@contextmanager
def _shown(
    run: Path, tensorboard: Callable[[str, float, int], None] | None
) -> "Iterator[PretrainingCallbacks]":
    """Callbacks that tell how training goes: a line every half minute on stderr, and curves."""
    from tidybert.pretraining.pretraining_run import PretrainingCallbacks

    steps, tokens, seconds, told = 0, 0, 0.0, 0.0

    def step(done: "PretrainingReport") -> None:
        nonlocal steps, tokens, seconds, told
        steps, tokens, seconds = steps + 1, tokens + done.num_tokens, seconds + done.seconds
        if not done.updated:
            note(
                f"step {done.step}: the loss is {done.loss} and the gradient norm "
                f"{done.gradient_norm}; nothing was updated"
            )
        if seconds - told < _LINE_SECONDS and steps > 1 and done.step < done.num_steps:
            return
        told = seconds
        rate = tokens / seconds
        left = (done.num_steps - done.step) * seconds / steps
        parts = ", ".join(
            f"{name} {each:.3f} ({done.accuracies[name]:.1%})" for name, each in done.losses.items()
        )
        reached = "" if done.mfu is None else f" ({done.mfu:.0%} of the peak)"
        note(
            f"step {done.step:,} of {done.num_steps:,}: {parts}, rate {done.learning_rate:.1e}, "
            f"norm {done.gradient_norm:.2f}; {rate:,.0f} tokens/s{reached}, {_clock(left)} left"
        )

    def metrics(step: int, values: dict[str, Any]) -> None:
        shown = ", ".join(
            f"{name} {values[name]:.4f}"
            for name in ("mlm_loss", "mlm_accuracy", "perplexity", "nsp_accuracy")
            if name in values
        )
        note(f"step {step:,}, held-out text: {shown}")
        _draw_curves(run)

    yield PretrainingCallbacks(note=note, step=step, metrics=metrics, tensorboard=tensorboard)


def _draw_curves(run: Path) -> bool:
    """Whether RUN/curves.svg could be written; no run ends because there is no room for it."""
    from tidybert.model_files import CURVES_FILE
    from tidybert.reporting.pretraining_curves import write_curves

    try:
        write_curves(run)
    except OSError as error:
        note(f"{run / CURVES_FILE} cannot be written: {error}")
        return False
    return True


@contextmanager
def _tensorboard(run: Path, wanted: bool) -> "Iterator[Callable[[str, float, int], None] | None]":
    """What writes a figure for TensorBoard: name, value, step; None where it is not wanted."""
    if not wanted:
        yield None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UsageError(
            "--tensorboard needs the package tensorboard: pip install 'tidybert[tracking]'"
        ) from error
    writers: list[SummaryWriter] = []

    def add(name: str, value: float, step: int) -> None:
        if not writers:
            # Not before the first figure: until then RUN must be empty.  Of a run that was resumed
            # the figures from this step on are written again.
            writers.append(SummaryWriter(run / "tensorboard", purge_step=step))
        writers[0].add_scalar(name, value, step)

    try:
        yield add
    finally:
        for each in writers:
            each.close()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
