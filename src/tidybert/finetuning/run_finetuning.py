"""``run_finetuning``: runs a FinetuningJob: once, with several seeds, or as a search."""

import math
from contextlib import ExitStack, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import is_size
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.errors import ConfigError, WeightsError, param
from tidybert.files.rows import count_of
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.head_start import ProbeMemory
from tidybert.finetuning.train import train
from tidybert.finetuning.training_examples import TrainingExamples, examples_of, share_of
from tidybert.finetuning.trials import run_trials, shared_settings, variants_of
from tidybert.inference.loading import to_device
from tidybert.modeling.heads import ARCHITECTURES, NEXT_SENTENCE
from tidybert.options import declared, is_given
from tidybert.storage.model_files import MODULES_FILE
from tidybert.storage.opening import present
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.training.determinism import repeating
from tidybert.training.precision import usual_torch
from tidybert.training.runs.run_directory import clear_run, owned_run
from tidybert.training.training_arguments import DEFAULT_EPOCHS

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
            return _run_trials(job, examples, reporter)
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


def _run_trials(
    job: FinetuningJob, examples: TrainingExamples, reporter: Reporter
) -> FinetunedModel[Any]:
    """Train several models, and take the best one from the RUN."""
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
