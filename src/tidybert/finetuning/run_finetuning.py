"""``run_finetuning``: runs a FinetuningJob: once, with several seeds, or as a search."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import find_model, is_size
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.configuration import BertConfig
from tidybert.errors import ConfigError, DivergedError, TrainingError, WeightsError, in_shell, param
from tidybert.files.rows import count_of
from tidybert.finetuning.finetuned_model import (
    FinetunedModel,
    Trial,
    Trials,
    finished,
    read_trials,
    write_trials,
)
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.finetuning.head_start import ProbeMemory, model_sources
from tidybert.finetuning.train import train
from tidybert.finetuning.training_examples import TrainingExamples, examples_of, share_of
from tidybert.inference.loading import to_device
from tidybert.modeling.heads import ARCHITECTURES, NEXT_SENTENCE
from tidybert.options import declared, is_given, named
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.model_files import (
    METADATA_FILE,
    MODULES_FILE,
    TRIALS_FILE,
    TRIALS_FOLDER,
    WEIGHTS_FILE,
)
from tidybert.storage.opening import present
from tidybert.storage.own_files import move_files, remove_tree
from tidybert.system.reporter import SILENT, Reporter
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.training.determinism import repeating
from tidybert.training.precision import usual_torch
from tidybert.training.runs.run_checkpoints import checkpoints_directory
from tidybert.training.runs.run_directory import clear_run, is_finished, owned_run
from tidybert.training.training_arguments import DEFAULT_EPOCHS, TrainingArguments

# How a fine-tuning learns where no argument says it: the number of labels decides.
#
# The measurements behind the rule are in benchmarks/NOTES.md, under "Few labels".

MOST_OF_A_CLASS: Final = 50
"""Texts a class, on average, up to which contrastive training is better than fine-tuning."""
MOST_CLASSES: Final = 20
MOST_TEXTS: Final = 999
"""Texts up to which the rule chooses."""
STEPS: Final = 100
"""Fewest steps of a fine-tuning on so few texts."""
MOST_EXAMPLES: Final = 3000
"""Pairs, scores, choices, tagged sentences and questions up to which small batches are better."""
EXAMPLES_A_STEP: Final = 8


def with_best_strategy(
    job: FinetuningJob, examples: TrainingExamples
) -> tuple[FinetuningJob, str | None]:
    """The job with the start, pooling, epochs and batch size that it leaves open, and a line on it.

    The rule is for a MODEL whose sentence vectors are means; every other job stays as it is.  Of
    texts of one class each, up to 50 a class and 20 classes, the encoder learns by contrast and the
    head is a probe.  Otherwise, up to 999 texts, everything is fine-tuned from a probe, for 100
    steps at least.  The head reads the mean of all tokens after contrastive training, and wherever
    MODEL comes without a next-sentence head, which trains [CLS]; else [CLS].  Up to 3,000 pairs,
    scores, choices, tagged sentences and questions are fine-tuned with 8 in a step.  Vectors and
    texts of several labels have no rule.

    Raises what opening MODEL raises.
    """
    texts, task, arguments = examples.train, examples.task, job.arguments
    if isinstance(task, SentenceVectors | MultiLabelClassification):
        return job, None
    if job.search or job.teacher is not None:
        return job, None
    are_texts = isinstance(task, Classification) and all(one.text_pair is None for one in texts)
    if (
        not 0 < len(texts) <= (MOST_TEXTS if are_texts else MOST_EXAMPLES)
        or (directory := _of_means(job.model)) is None
    ):
        return job, None
    if not are_texts:
        return _with_small_batches(job, len(texts))
    num_classes = len(task.names)
    chosen, strategy = _strategy(job, len(texts), num_classes)
    arguments = replace(arguments, **chosen)
    # A next-sentence head has [CLS] learn to hold what its sentence says; contrast suits the mean.
    heads = (ARCHITECTURES[name] for name in directory.head.architectures if name in ARCHITECTURES)
    is_cls_trained = any(NEXT_SENTENCE in each.parts for each in heads)
    is_cls_read = is_cls_trained and arguments.head_start != "contrastive"
    pooling = arguments.pooling or ("cls" if is_cls_read else "mean")
    arguments = replace(arguments, pooling=pooling)
    reads = "the mean of all tokens" if pooling == "mean" else "[CLS]"
    names = job.class_names is not False
    return replace(job, arguments=arguments, class_names=names), (
        f"{count_of(len(texts), 'labelled text')} of {num_classes} classes: {strategy}; the head "
        f"reads {reads}; {param('head_start')}, {param('num_train_epochs')} and {param('pooling')} "
        "set another way"
    )


def _strategy(job: FinetuningJob, num_texts: int, num_classes: int) -> tuple[dict[str, Any], str]:
    """The arguments for so many texts and classes, and a name for them."""
    arguments = job.arguments
    is_small = num_texts <= MOST_OF_A_CLASS * num_classes and num_classes <= MOST_CLASSES
    if is_small and _may_learn_by_contrast(job):
        chosen = {"head_start": "contrastive", "num_train_epochs": 0.0}
        return chosen, "contrastive training, then a probe"
    if arguments.num_train_epochs is not None or arguments.max_steps is not None:
        return {}, "fine-tuning as asked for"
    epochs = STEPS * arguments.batch_size / num_texts
    epochs = max(DEFAULT_EPOCHS, math.ceil(10 * epochs) / 10)
    return {"num_train_epochs": epochs}, f"fine-tuning for {epochs:g} epochs"


def _with_small_batches(job: FinetuningJob, count: int) -> tuple[FinetuningJob, str | None]:
    """The job with the batch size of few examples, where it says none."""
    if job.arguments.train_batch_size is not None:
        return job, None
    arguments = replace(job.arguments, train_batch_size=EXAMPLES_A_STEP)
    return replace(job, arguments=arguments), (
        f"{count_of(count, 'labelled example')}: {EXAMPLES_A_STEP} in a step; "
        f"{param('train_batch_size')} sets another number"
    )


def _may_learn_by_contrast(job: FinetuningJob) -> bool:
    """Whether the job gives no option that contrastive training has no use for."""
    asks_for_steps = any(
        declared(each).of_steps and is_given(each, getattr(group, each.name))
        for group in (job.arguments, job.task_options)
        for each in fields(group)
    )
    return not asks_for_steps and len(set(job.example_weights or ())) < 2


def _of_means(model: str | Path | FinetunedModel) -> ModelDirectory | None:
    """MODEL's directory if its sentence vectors are the mean of its tokens' states, and no more."""
    if isinstance(model, FinetunedModel) or is_size(model):
        return None
    directory = ModelDirectory.open(model)
    if not present(directory.path / MODULES_FILE, error=ConfigError):
        return None
    try:
        form = read_sentence_form(directory)
    except (ConfigError, WeightsError):
        # Fine-tuning needs only the encoder of such a directory.
        return None
    return directory if form.pooling == "mean" and not form.dense else None


def run_finetuning(job: FinetuningJob, reporter: Reporter | None = None) -> FinetunedModel[Any]:
    """Read the examples of a job, train as it says, and return the model that it chose.

    Raises what reading raises, and what ``train`` and ``run_trials`` raise.
    """
    reporter = reporter or Reporter()
    with ExitStack() as stack:
        if job.out is not None:
            stack.enter_context(owned_run(job.out, job.resume, job.force))
        stack.enter_context(usual_torch())
        stack.enter_context(repeating(job.arguments.deterministic, job.device))
        examples = examples_of(job, reporter, warns=reporter.rows is not None)
        reporter.provenance(examples.provenance)
        if isinstance(job.task, str) and job.dev is None:
            # arguments.json repeats the share, whatever becomes of the data.
            job = replace(job, dev_fraction=share_of(job, examples.labelled))
        job, why = with_best_strategy(job, examples)
        if why is not None:
            reporter.tell(why)
        if job.has_trials:
            assert job.out is not None, "the job has checked it"
            if job.force:
                clear_run(job.out)
            probe = ProbeMemory()
            trials = run_trials(
                job,
                variants_of(job),
                lambda trial: _train(trial, examples, reporter, probe),
                shared=shared_settings(job, examples),
                metric=examples.task.metric,
                reporter=reporter,
            )
            best = FinetunedModel.of_run(job.out)
            to_device(best.model, job.device)
            return replace(
                best,
                result=replace(best.result, seconds=trials.best.seconds),
                collapsed=trials.best.collapsed,
                provenance=examples.provenance,
                held_out=examples.held_out or (),
                trials=trials,
            )
        return _train(job, examples, reporter)


def _train(
    job: FinetuningJob,
    examples: TrainingExamples,
    reporter: Reporter,
    probe: ProbeMemory | None = None,
) -> FinetunedModel[Any]:
    """Train once, with reporter of its own where there are any."""
    begin = reporter.training
    with begin(job, examples.task.metric) if begin else nullcontext(reporter) as its_own:
        return train(job, examples, its_own, probe)


# Several runs in one: other seeds, or a search over the paper's hyper-parameters (A.3).
#
# Each run is a trial with its own directory under RUN/trials.  RUN/trials.json records its result
# as soon as it ends, so a stopped search goes on with the next trial, under the same settings.  The
# best trial's model becomes the RUN's, and the weights of the others are removed.  A trial whose
# loss or gradient is not finite has failed, and the next one begins.

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
    for name in ("descriptions", "labels"):
        if (value := getattr(job, name)) is not None:
            taught[name] = _hash_of([repr(value)])
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
