"""Several runs in one: other seeds, or a search over the paper's hyper-parameters.

Each run is a trial with a directory of its own under RUN/trials; what it came to stands in
RUN/trials.json as soon as it is finished, so that a stopped search goes on with the next one, and
beside it the settings that all of them share, so that it goes on with the same.  The best trial's
model becomes that of the RUN, and the weights of the others are removed.  Where a trial's loss or
gradient is not finite it has failed, and the next one begins.
"""

import hashlib
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tidybert.atomic_files import atomic_write_json, file_sha256
from tidybert.catalog import find_model, is_size
from tidybert.configuration import BertConfig
from tidybert.errors import DivergedError, TrainingError, UsageError, in_shell, param
from tidybert.finetuning.finetuning_run import FinetunedModel
from tidybert.model_files import METADATA_FILE, TRIALS_FILE, TRIALS_FOLDER, WEIGHTS_FILE
from tidybert.training.argument_checks import check_seed
from tidybert.training.run_checkpoints import checkpoints_directory
from tidybert.training.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

SEARCHED: Final = ("learning_rate", "train_batch_size", "num_train_epochs")
_BATCH_SIZES: Final = (32, 16)
_EPOCHS: Final = (3.0, 2.0, 4.0)
# Appendix A.3 of the paper, for base and large.
_RATES: Final = (5e-5, 3e-5, 2e-5)
# What the published miniatures were tuned over: small models want larger steps.
_RATES_OF_SMALL: Final = (3e-4, 1e-4, 5e-5, 3e-5)
_SMALL: Final = 50_000_000
# Flags that change no result but for rounding and what dropout draws.
_FREE: Final = ("tokens_per_batch", "save_steps", "save_total_limit", "logging_steps")
# What is known by a hash of its content, wherever it lies.
_CONTENTS: Final = ("model", "vocab", "train", "dev")


@dataclass(frozen=True)
class Trial:
    """What one run came to.

    ``varied`` are the arguments in which it differs from the others; ``collapsed`` is the one
    answer that it gives to everything, where it does.  ``error`` says why there are no metrics,
    where the trial failed.
    """

    name: str
    varied: dict[str, Any]
    metrics: dict[str, Any]
    seconds: float
    collapsed: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Trials:
    """The trials in the order they were run, the best one, and how many the time was too short for.

    ``num_untried`` is 0 without a time limit.
    """

    trials: tuple[Trial, ...]
    best: Trial
    num_untried: int

    @property
    def num_failed(self) -> int:
        """How many of the trials have no metrics."""
        return len(self.trials) - len(_finished(self.trials))

    def spread(self, metric: str) -> tuple[float, float]:
        """Mean and standard deviation (n - 1) of a metric over the trials that did not fail."""
        values = [each.metrics[metric] for each in _finished(self.trials)]
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


Variants = Sequence[tuple[str, dict[str, Any]]]
"""A name, and the arguments that it changes."""

Train = Callable[[TrainingArguments, Path, bool], FinetunedModel]
"""Trains with these arguments into this directory; the third is whether to resume."""


def seed_variants(arguments: TrainingArguments, count: int) -> Variants:
    """``count`` seeds from the arguments' own on.  Raises UsageError where they get too high."""
    check_seed(arguments.seed + count - 1)
    seeds = range(arguments.seed, arguments.seed + count)
    return [(f"seed-{seed}", {"seed": seed}) for seed in seeds]


def search_variants(config: BertConfig) -> Variants:
    """The paper's grid (A.3), those of most weight first: at three epochs, each learning rate.

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


def shared_settings(
    model: str | Path,
    vocab: str | Path | None,
    train: Sequence[Any],
    dev: Sequence[Any] | None,
    **given: Any,
) -> dict[str, Any]:
    """What all trials of a RUN have in common, by the names of the arguments, as JSON holds it.

    Args:
        model: a MODEL; of its files, and of those of ``vocab``, a hash is kept, of a size its name.
        train: the examples as they were read; of them, and of ``dev``, a hash is kept.
        given: what else there is; flags that make no difference are left out.

    Raises ModelNotFoundError.
    """
    return {
        **{name: value for name, value in given.items() if name not in _FREE},
        "model": str(model) if is_size(model) else _hash_of_files(model),
        "vocab": None if vocab is None else _hash_of_files(vocab),
        "train": _hash_of(map(repr, train)),
        "dev": None if dev is None else _hash_of(map(repr, dev)),
    }


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
        shared: what the trials that trials.json has must have been run with too; see
            ``shared_settings``.
        metric: decides, the higher the better.
        time_limit: seconds of training; a trial begins only if it should end within them, as far as
            the speed of those before it tells.  The first always does.

    Raises UsageError where ``shared`` is not that of trials.json, TrainingError where all trials
    failed, and what ``train`` raises but for DivergedError; what was finished before stands in
    trials.json.
    """
    path = run / TRIALS_FILE
    known = {each.name: each for each in _read(path, shared)}
    done: list[Trial] = []
    untried = 0
    for number, (name, varied) in enumerate(variants, start=1):
        if name not in known:
            epochs = float(varied.get("num_train_epochs", arguments.num_train_epochs))
            if time_limit is not None and _expected(done, arguments, epochs) > time_limit:
                untried += 1
                continue
            note(f"trial {number} of {len(variants)}: {name}")
            directory = run / TRIALS_FOLDER / name
            known[name] = _run_trial(train, arguments, name, varied, directory)
            _write(path, shared, known.values())
            shutil.rmtree(checkpoints_directory(directory), ignore_errors=True)
        done.append(known[name])
        note(_line(done[-1], metric))
        _keep_best_weights(run, _finished(done), metric)
    if not _finished(done):
        raise TrainingError(
            f"all {len(done)} trials failed ({path} says why each did); give other arguments and a "
            f"new {param('out')}. The first: {done[0].error}"
        )
    best = _best(_finished(done), metric)
    _take(run / TRIALS_FOLDER / best.name, run)
    return Trials(tuple(done), best, untried)


def check_search(arguments: TrainingArguments) -> None:
    """Raise UsageError where an argument is given that the search is to find."""
    defaults = TrainingArguments()
    for name in SEARCHED:
        if getattr(arguments, name) != getattr(defaults, name):
            raise UsageError(
                f"{param(name)} is given, but {param('search')} is to find it: leave out one of "
                "them"
            )


def _run_trial(
    train: Train, arguments: TrainingArguments, name: str, varied: dict[str, Any], directory: Path
) -> Trial:
    if is_finished(directory):
        # Killed before it was written down: what it came to is not known any more.
        shutil.rmtree(directory)
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
        line += f"; it collapsed: every example is given the answer {trial.collapsed!r:.80}"
    return line


def _expected(done: Sequence[Trial], arguments: TrainingArguments, epochs: float) -> float:
    """Seconds of training after a trial of so many epochs, as fast as those that did not fail."""
    finished = _finished(done)
    seconds = sum(each.seconds for each in finished)
    passes = sum(
        float(each.varied.get("num_train_epochs", arguments.num_train_epochs)) for each in finished
    )
    spent = sum(each.seconds for each in done)
    return spent + seconds / passes * epochs if passes else spent


def _best(trials: Sequence[Trial], metric: str) -> Trial:
    return max(trials, key=lambda each: float(each.metrics[metric]))


def _keep_best_weights(run: Path, finished: Sequence[Trial], metric: str) -> None:
    for each in finished:
        if each is not _best(finished, metric):
            (run / TRIALS_FOLDER / each.name / WEIGHTS_FILE).unlink(missing_ok=True)


def _take(trial: Path, run: Path) -> None:
    """Move the files of the best trial to the RUN; tidybert.json, which makes it whole, last."""
    files = sorted(trial.iterdir(), key=lambda each: each.name == METADATA_FILE)
    for file in files:
        file.replace(run / file.name)
    trial.rmdir()


def _read(path: Path, shared: Mapping[str, Any]) -> list[Trial]:
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, list):
            raise ValueError("it does not tell the settings that its trials were run with")
        before = dict(content["shared"])
        trials = [Trial(**each) for each in content["trials"]]
    except (ValueError, TypeError, KeyError) as error:
        raise TrainingError(f"{path} cannot be read: {error}; give a new {param('out')}") from error
    other = [
        _difference(name, before.get(name), value)
        for name, value in shared.items()
        if before.get(name) != value
    ]
    if other:
        raise UsageError(
            f"{param('resume')}: the trials in {path} were run with other settings: "
            f"{', '.join(other)}; go on with the same, or give a new {param('out')}"
        )
    return trials


def _write(path: Path, shared: Mapping[str, Any], trials: Iterable[Trial]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"shared": dict(shared), "trials": [asdict(each) for each in trials]}
    atomic_write_json(path, content)


def _difference(name: str, before: Any, now: Any) -> str:
    shown = name.upper() if name in ("task", "model") else param(name)
    if name in _CONTENTS:
        return f"{shown} (other content)"
    was, given = ("not given" if each is None or each is False else each for each in (before, now))
    return f"{shown} ({was} before, {given} now)"


def _hash_of_files(model: str | Path) -> str:
    files = sorted(path for path in find_model(model).iterdir() if path.is_file())
    return _hash_of(f"{file_sha256(path)}  {path.name}" for path in files)


def _hash_of(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()
