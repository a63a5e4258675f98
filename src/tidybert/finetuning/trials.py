"""Several runs in one: other seeds, or a search over the paper's hyper-parameters (A.3).

Each run is a trial with its own directory under RUN/trials.  RUN/trials.json records its result as
soon as it ends, so a stopped search goes on with the next trial, under the same settings.  The best
trial's model becomes the RUN's, and the weights of the others are removed.  A trial whose loss or
gradient is not finite has failed, and the next one begins.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import find_model, is_size
from tidybert.configuration import BertConfig
from tidybert.errors import DivergedError, TrainingError, in_shell, param
from tidybert.finetuning.finetuned_model import (
    FinetunedModel,
    Trial,
    Trials,
    finished,
    read_trials,
    write_trials,
)
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.finetuning.head_start import model_sources
from tidybert.finetuning.training_examples import TrainingExamples
from tidybert.options import named
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.model_files import METADATA_FILE, TRIALS_FILE, TRIALS_FOLDER, WEIGHTS_FILE
from tidybert.storage.own_files import move_files, remove_tree
from tidybert.system.reporter import SILENT, Reporter
from tidybert.training.runs.run_checkpoints import checkpoints_directory
from tidybert.training.runs.run_directory import is_finished
from tidybert.training.training_arguments import TrainingArguments

_BATCH_SIZES: Final = (32, 16)
_EPOCHS: Final = (3.0, 2.0, 4.0)
# Appendix A.3 of the paper, for base and large.
_RATES: Final = (5e-5, 3e-5, 2e-5)
# The grid of the published miniatures: small models want larger steps.
_RATES_OF_SMALL: Final = (3e-4, 1e-4, 5e-5, 3e-5)
_SMALL: Final = 50_000_000

Variants = Sequence[tuple[str, dict[str, Any]]]
"""Names, and the arguments that each changes."""


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


def variants_of(job: FinetuningJob) -> Variants:
    """The trials of a job: those of a search, or one for each seed from the arguments' own on."""
    if job.search:
        return search_variants(model_sources(job.model, job.vocab)[0])
    first = job.arguments.seed
    return [(f"seed-{seed}", {"seed": seed}) for seed in range(first, first + job.seeds)]


def shared_settings(job: FinetuningJob, examples: TrainingExamples) -> dict[str, Any]:
    """The settings that all trials of a job share, by the names of the arguments, as JSON.

    A MODEL is recorded by a hash of its files, a size by its name, and examples by a hash as they
    were read.  Arguments that change no result are not shared.  Raises ModelNotFoundError.
    """
    arguments, model, has_dev = job.arguments, str(job.model), job.dev is not None
    train = examples.labelled or examples.train
    taught: dict[str, Any] = {} if job.num_layers is None else {"num_layers": job.num_layers}
    if job.descriptions is not None:
        taught["descriptions"] = _hash_of([repr(job.descriptions)])
    if job.teacher is not None:
        taught |= {name: getattr(job, name) for name in named(FinetuningOptions, needs="teacher")}
        taught["teacher"] = _hash_of_files(job.teacher)
        taught["unlabelled"] = _hash_of(map(repr, examples.unlabelled))
    return {
        "task": job.task_class.name,
        "dev_fraction": job.share_held_out(len(train)) if not has_dev else None,
        "max_seq_length": job.length,
        "new_head": job.new_head,
        "search": job.search,
        **asdict(job.task_options),
        **{name: getattr(arguments, name) for name in named(arguments, shared=True)},
        "model": model if is_size(model) else _hash_of_files(model),
        "vocab": None if job.vocab is None else _hash_of_files(job.vocab),
        "train": _hash_of(map(repr, train)),
        "dev": _hash_of(map(repr, examples.held_out or ())) if has_dev else None,
        **taught,
    }


def run_trials(
    job: FinetuningJob,
    variants: Variants,
    train: Callable[[FinetuningJob], FinetunedModel],
    *,
    shared: Mapping[str, Any],
    metric: str,
    reporter: Reporter = SILENT,
) -> Trials:
    """Train each variant of a job, and leave the best one's model in its RUN.

    A trial begins only if it should end within the job's ``time_limit`` at the speed of those
    before it; the first always begins.
    """
    run = job.out
    assert run is not None, "the job has checked it"
    path = run / TRIALS_FILE
    known = {each.name: each for each in read_trials(path, shared)}
    seconds = math.inf if job.time_limit is None else 60 * job.time_limit
    done: list[Trial] = []
    untried = 0
    for number, (name, varied) in enumerate(variants, start=1):
        directory = run / TRIALS_FOLDER / name
        if name not in known:
            if _expected(done, job.arguments, varied) > seconds:
                untried += 1
                continue
            reporter.tell(f"trial {number} of {len(variants)}: {name}")
            known[name] = _run_trial(job, name, varied, directory, train)
            write_trials(path, shared, known.values())
        remove_tree(checkpoints_directory(directory))
        done.append(known[name])
        reporter.tell(_line(done[-1], metric))
        best = _best(done, metric)
        for each in finished(done):
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
    job: FinetuningJob,
    name: str,
    varied: dict[str, Any],
    directory: Path,
    train: Callable[[FinetuningJob], FinetunedModel],
) -> Trial:
    if is_finished(directory):
        # A kill came before trials.json recorded it, so its result is lost.
        remove_tree(directory)
    # A trial counts as a run of its own.
    trial = replace(
        job,
        arguments=replace(job.arguments, **varied),
        seeds=1,
        search=False,
        time_limit=None,
        out=directory,
        resume=directory.exists(),
        change=False,
        force=False,
    )
    begin = time.perf_counter()
    try:
        trained = train(trial)
    except DivergedError as error:
        return Trial(name, varied, {}, time.perf_counter() - begin, error=in_shell(error.message))
    result = trained.result
    return Trial(name, varied, dict(result.metrics), result.seconds, trained.collapsed)


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
        return replace(arguments, **changed).epochs

    ended = finished(done)
    spent = sum(each.seconds for each in done)
    if not ended:
        return spent
    seconds = sum(each.seconds for each in ended)
    return spent + seconds / sum(epochs(each.varied) for each in ended) * epochs(varied)


def _best(trials: Iterable[Trial], metric: str) -> Trial | None:
    """The first of the best; None where all failed."""
    return max(finished(trials), key=lambda each: float(each.metrics[metric]), default=None)


def _hash_of_files(model: str | Path) -> str:
    files = sorted(path for path in find_model(model).iterdir() if path.is_file())
    return _hash_of(f"{file_sha256(path)}  {path.name}" for path in files)


def _hash_of(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()
