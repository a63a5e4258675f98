"""``run_finetuning``: runs a FinetuningJob: once, with several seeds, or as a search."""

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

from tidybert.finetuning.best_way import with_best_way
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.finetuning_run import Callbacks, train
from tidybert.finetuning.head_start import ProbeMemory
from tidybert.finetuning.training_examples import TrainingExamples, examples_of
from tidybert.finetuning.trials import run_trials, shared_settings, variants_of
from tidybert.inference.loading import to_device
from tidybert.training.determinism import repeating
from tidybert.training.runs.run_directory import clear_run, owned_run


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
        if isinstance(job.task, str) and job.dev is None:
            # arguments.json repeats the share, whatever becomes of the data.
            job = replace(job, dev_fraction=job.share_held_out(len(examples.labelled)))
        job, why = with_best_way(job, examples)
        if why is not None:
            callbacks.tell(why)
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
