"""``run_finetuning``: one function that runs a FinetuningJob: once, few labels, seeds or search."""

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

from tidybert.finetuning.few_labels import choose_way, recommend_few
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.finetuning_run import Callbacks, train
from tidybert.finetuning.head_start import ProbeMemory
from tidybert.finetuning.training_examples import TrainingExamples, examples_of
from tidybert.finetuning.trials import run_trials, shared_settings, variants_of
from tidybert.inference.loading import to_device
from tidybert.training.determinism import repeating
from tidybert.training.runs.run_directory import clear_run, owned_run
from tidybert.training.training_arguments import TrainingArguments


def run_finetuning(job: FinetuningJob, callbacks: Callbacks | None = None) -> FinetunedModel[Any]:
    """Read the examples of a job, train as it says, and return the model that it chose.

    Raises what reading raises, and what ``finetuning_run.train`` and ``run_trials`` raise.
    """
    callbacks = callbacks or Callbacks()
    with ExitStack() as stack:
        if job.out is not None:
            stack.enter_context(owned_run(job.out, job.resume, job.force))
        stack.enter_context(repeating(job.arguments.deterministic, job.device))
        examples = examples_of(job, callbacks.tell, warns=callbacks.rows is not None)
        callbacks.origin(examples.origin)
        if job.few:
            return _run_few(job, examples, callbacks)
        if isinstance(job.task, str) and job.teacher is None:
            recommend_few(examples.task, len(examples.train), callbacks.tell)
        if job.has_trials:
            return _run_trials(job, examples, callbacks)
        return _train(job, examples, callbacks)


def _train(
    job: FinetuningJob,
    examples: TrainingExamples,
    callbacks: Callbacks,
    probe: ProbeMemory | None = None,
) -> FinetunedModel[Any]:
    """Train once, with callbacks of its own where there are any."""
    begin = callbacks.training
    with begin(job, examples.task.metric) if begin else nullcontext(callbacks) as its_own:
        return train(job, examples, its_own, probe)


def _run_few(
    job: FinetuningJob, examples: TrainingExamples, callbacks: Callbacks
) -> FinetunedModel[Any]:
    """Choose the best way on folds, and train in this way on all examples."""
    # arguments.json repeats the way, which would not be chosen again.
    job = replace(job, few=False, dev_fraction=0.0, new_head=True)
    in_memory = replace(job, out=None, resume=False, change=False, force=False)

    def train_some(some: Sequence[Any], arguments: TrainingArguments) -> FinetunedModel[Any]:
        return train(replace(in_memory, arguments=arguments), examples.some(some), Callbacks())

    way = choose_way(examples.task, examples.train, job.arguments, train_some, callbacks.tell)
    trained = _train(replace(job, arguments=way.arguments), examples, callbacks)
    return replace(trained, few=way.figures())


def _run_trials(
    job: FinetuningJob, examples: TrainingExamples, callbacks: Callbacks
) -> FinetunedModel[Any]:
    """Train several models, and take the best one from the RUN."""
    assert job.out is not None, "the job has checked it"
    if job.force:
        clear_run(job.out)
    probe = ProbeMemory()
    trials = run_trials(
        job,
        variants_of(job),
        lambda trial: _train(trial, examples, callbacks, probe),
        shared=shared_settings(job, examples),
        metric=examples.task.metric,
        note=callbacks.tell,
    )
    best = FinetunedModel.of_run(job.out)
    to_device(best.model, job.device)
    return replace(
        best,
        result=replace(best.result, seconds=trials.best.seconds),
        collapsed=trials.best.collapsed,
        made_from=examples.origin,
        held_out=examples.held_out or (),
        trials=trials,
    )
