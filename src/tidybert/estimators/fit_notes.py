"""What an estimator says while it works: findings as warnings, notes, a bar, and its history."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from tidybert.errors import TruncationWarning, in_python
from tidybert.finetuning import Callbacks
from tidybert.progress_bar import progress_bar
from tidybert.terminal_text import printable
from tidybert.training.trainer import StepReport
from tidybert.user_warnings import warn_user

_STEPS_PER_LINE = 10
_LOST = {
    "truncate": "their end",
    "head-tail": "their middle",
    "windows": "the end of their first text",
}

History = list[dict[str, float]]
"""A row for each step: step, epoch, loss, learning_rate and, after an evaluation, its scores."""


@contextmanager
def noted_fit(history: History, *, verbose: int) -> Iterator[Callbacks]:
    """Callbacks that write a fit's ``history`` and, above 0, say how it goes."""
    with progress_bar("fit", wanted=verbose > 0) as show:

        def step(done: StepReport) -> None:
            history.append(
                {
                    "step": done.step,
                    "epoch": done.epoch,
                    "loss": done.loss,
                    "learning_rate": done.learning_rate,
                }
            )
            if show is not None:
                text = f"loss {done.loss:.4f}, rate {done.learning_rate:.1e}"
                show(done.step, done.num_steps, text)
            elif verbose and (done.step % _STEPS_PER_LINE == 0 or done.step == done.num_steps):
                speed = f"{done.num_examples / done.seconds:.0f} examples/s"
                tell(f"step {done.step} of {done.num_steps}: loss {done.loss:.4f}, {speed}")

        def metrics(step: int, found: dict[str, Any]) -> None:
            scores = {name: each for name, each in found.items() if isinstance(each, float)}
            history[-1].update(scores)
            if verbose:
                shown = ", ".join(f"{name} {each:.4f}" for name, each in scores.items())
                tell(f"step {step}: {shown} on the part held out")

        yield Callbacks(
            note=tell if verbose else lambda _line: None,
            spell=str,
            step=step,
            metrics=metrics,
            rows="position",
        )


def tell(text: str) -> None:
    """Print a note on stderr; the row of an example is its position in X."""
    print(printable(in_python(text, rows="position")), file=sys.stderr)


# Predicting must not change an estimator, so this is beside it: those that have warned.
_WARNED: "WeakKeyDictionary[Any, bool]" = WeakKeyDictionary()


def forget_warnings(estimator: Any) -> None:
    """Let a newly fitted estimator warn again."""
    _WARNED.pop(estimator, None)


def warn_of_truncation(
    estimator: Any, lengths: Sequence[int], total: int, max_seq_length: int, mode: str = "truncate"
) -> None:
    """Warn once of texts of these lengths, in tokens, that ``mode`` of LongTexts has cut."""
    if not lengths or estimator in _WARNED:
        return
    _WARNED[estimator] = True
    warn_user(
        f"{len(lengths)} of {total} examples are longer than max_seq_length={max_seq_length} "
        f"tokens and lose {_LOST[mode]} (the longest has {max(lengths)}); a higher "
        "max_seq_length keeps them whole, at the cost of time (said once for each fit)",
        TruncationWarning,
    )
