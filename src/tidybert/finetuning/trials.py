"""Several runs in one: other seeds, or a search over the paper's hyper-parameters (A.3).

Each run is a trial with its own directory under RUN/trials.  RUN/trials.json records its result as
soon as it ends, so a stopped search goes on with the next trial, under the same settings.  The best
trial's model becomes the RUN's, and the weights of the others are removed.  A trial whose loss or
gradient is not finite has failed, and the next one begins.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tidybert.configuration import BertConfig
from tidybert.errors import DivergedError, TrainingError, UsageError, in_shell, param
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.trials_file import Trial, read_trials, write_trials
from tidybert.storage.model_files import METADATA_FILE, TRIALS_FILE, TRIALS_FOLDER, WEIGHTS_FILE
from tidybert.storage.own_files import move_files, remove_tree
from tidybert.training.argument_checks import check_seed
from tidybert.training.run_checkpoints import checkpoints_directory
from tidybert.training.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

SEARCHED: Final = ("learning_rate", "train_batch_size", "num_train_epochs")
_BATCH_SIZES: Final = (32, 16)
_EPOCHS: Final = (3.0, 2.0, 4.0)
# Appendix A.3 of the paper, for base and large.
_RATES: Final = (5e-5, 3e-5, 2e-5)
# The grid of the published miniatures: small models want larger steps.
_RATES_OF_SMALL: Final = (3e-4, 1e-4, 5e-5, 3e-5)
_SMALL: Final = 50_000_000

Variants = Sequence[tuple[str, dict[str, Any]]]
"""Names, and the arguments that each changes."""


def seed_variants(arguments: TrainingArguments, count: int) -> Variants:
    """``count`` seeds from the arguments' own on.  Raises UsageError for a seed too high."""
    check_seed(arguments.seed + count - 1)
    seeds = range(arguments.seed, arguments.seed + count)
    return [(f"seed-{seed}", {"seed": seed}) for seed in seeds]


def search_variants(config: BertConfig) -> Variants:
    """The paper's grid (A.3), in order of importance: at three epochs, each learning rate.

    Below 50 M parameters the learning rates are those of the published miniatures.
    """
    rates = _RATES_OF_SMALL if config.num_parameters < _SMALL else _RATES
    return [
        (
            f"rate-{rate:g}-batch-{size}-epochs-{epochs:g}",
            {"learning_rate": rate, "train_batch_size": size, "num_train_epochs": epochs},
        )
        for epochs in _EPOCHS
        for size in _BATCH_SIZES
        for rate in rates
    ]


def check_search(arguments: TrainingArguments) -> None:
    """Raise UsageError where an argument is given that the search will set."""
    defaults = TrainingArguments()
    for name in SEARCHED:
        if getattr(arguments, name) != getattr(defaults, name):
            raise UsageError(
                f"{param(name)} is given, but {param('search')} sets it: leave out one of them"
            )


@dataclass(frozen=True)
class Trials:
    """The trials in their order, the best one, and how many the time limit left out."""

    trials: tuple[Trial, ...]
    best: Trial
    num_untried: int

    @property
    def num_failed(self) -> int:
        """The number of trials without metrics."""
        return len(self.trials) - len(_finished(self.trials))

    def spread(self, metric: str) -> tuple[float, float]:
        """Mean and standard deviation (n - 1) of a metric over the trials that did not fail."""
        values = [each.metrics[metric] for each in _finished(self.trials)]
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


Train = Callable[[TrainingArguments, Path, bool], FinetunedModel]
"""Trains with these arguments into this directory; the third is whether to resume."""


def run_trials(
    train: Train,
    arguments: TrainingArguments,
    variants: Variants,
    *,
    shared: Mapping[str, Any],
    metric: str,
    run: Path,
    time_limit: float | None = None,
    note: Callable[[str], None] = lambda _line: None,
) -> Trials:
    """Train each variant, and leave the best one's model in ``run``.

    Args:
        train: see Train.
        shared: see ``shared_settings``; the trials in trials.json must have had the same.
        metric: decides which trial is best, the higher the better.
        time_limit: seconds of training.  A trial begins only if it should end within them at the
            speed of those before it; the first always begins.

    Raises UsageError where trials.json has other shared settings, TrainingError where all trials
    failed, and what ``train`` raises except DivergedError.
    """
    path = run / TRIALS_FILE
    known = {each.name: each for each in read_trials(path, shared)}
    done: list[Trial] = []
    untried = 0
    for number, (name, varied) in enumerate(variants, start=1):
        if name not in known:
            if time_limit is not None and _expected(done, arguments, varied) > time_limit:
                untried += 1
                continue
            note(f"trial {number} of {len(variants)}: {name}")
            directory = run / TRIALS_FOLDER / name
            known[name] = _run_trial(train, arguments, name, varied, directory)
            write_trials(path, shared, known.values())
        remove_tree(checkpoints_directory(run / TRIALS_FOLDER / name))
        done.append(known[name])
        note(_line(done[-1], metric))
        best = _best(done, metric)
        for each in _finished(done):
            if each is not best:
                remove_tree(run / TRIALS_FOLDER / each.name / WEIGHTS_FILE)
    best = _best(done, metric)
    if best is None:
        raise TrainingError(
            f"all {len(done)} trials failed ({path} says why each did); give other arguments and a "
            f"new {param('out')}. The first: {done[0].error}"
        )
    # tidybert.json makes the RUN whole, and so it moves last.
    move_files(run / TRIALS_FOLDER / best.name, run, last=METADATA_FILE)
    return Trials(tuple(done), best, untried)


def _run_trial(
    train: Train, arguments: TrainingArguments, name: str, varied: dict[str, Any], directory: Path
) -> Trial:
    if is_finished(directory):
        # A kill came before trials.json recorded it, so its result is lost.
        remove_tree(directory)
    begin = time.perf_counter()
    try:
        trained = train(replace(arguments, **varied), directory, directory.exists())
    except DivergedError as error:
        return Trial(name, varied, {}, time.perf_counter() - begin, error=in_shell(error.message))
    result = trained.result
    return Trial(name, varied, dict(result.metrics), result.seconds, trained.collapsed)


def _finished(trials: Iterable[Trial]) -> list[Trial]:
    return [each for each in trials if each.error is None]


def _line(trial: Trial, metric: str) -> str:
    if trial.error is not None:
        return f"{trial.name}: it failed: {trial.error}"
    line = f"{trial.name}: {metric} {trial.metrics[metric]:.4f} on dev, {trial.seconds:.0f} s"
    if trial.collapsed is not None:
        line += f"; it collapsed: every example gets the answer {trial.collapsed!r:.80}"
    return line


def _expected(done: Sequence[Trial], arguments: TrainingArguments, varied: dict[str, Any]) -> float:
    """Seconds of training after one more trial, as fast as those that did not fail."""

    def epochs(changed: dict[str, Any]) -> float:
        return replace(arguments, **changed).num_train_epochs

    finished = _finished(done)
    spent = sum(each.seconds for each in done)
    if not finished:
        return spent
    seconds = sum(each.seconds for each in finished)
    return spent + seconds / sum(epochs(each.varied) for each in finished) * epochs(varied)


def _best(trials: Iterable[Trial], metric: str) -> Trial | None:
    """The first of the best; None where all failed."""
    return max(_finished(trials), key=lambda each: float(each.metrics[metric]), default=None)
