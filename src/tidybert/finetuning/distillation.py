"""Distillation: a student learns the answers of a finished RUN, its teacher (Hinton et al. 2015).

The teacher answers each text once, before the first step, without dropout; its outputs stay in
memory.  R rows of outputs, C outputs, F features.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tidybert.data.batching import Batch, collate
from tidybert.data.features import Features
from tidybert.errors import UsageError, param
from tidybert.files.wording import count_of
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.training_examples import TrainingExamples
from tidybert.finetuning.vector_teacher import taught_by
from tidybert.inference.forward import run_batches
from tidybert.inference.loading import fitting_length
from tidybert.inference.predictor import Predictor
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.heads import reorder_labels
from tidybert.modeling.kernels.transfer import to_device
from tidybert.tasks.task import SHOWN_LABELS, AnyTask, Task, weights_of
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tasks.vectors.taught_vectors import TaughtVectors
from tidybert.tokenization import BertTokenizer
from tidybert.training.fine_tuning import Loss
from tidybert.training.linear_probe import ProbeLoss


@dataclass(frozen=True)
class Lessons:
    """The features that a model learns from, the loss, and the same loss of outputs (R, C).

    teacher: what arguments.json records of the teacher; empty without one.
    """

    features: Sequence[Features]
    loss: Loss
    summed_loss: ProbeLoss
    teacher: Mapping[str, Any]


def lessons_of(
    job: FinetuningJob,
    examples: TrainingExamples,
    task: AnyTask,
    tokenizer: BertTokenizer,
    features: Sequence[Features],
    tell: Callable[[str], None],
) -> Lessons:
    """What a job teaches: labels alone, or with a teacher its answers to all features too.

    ``features`` are those of the examples to train on, and then those of the unlabelled ones.

    Raises what ``Predictor`` and ``taught_by`` raise, and UsageError for a teacher of another task,
    other labels or another vocabulary.
    """
    if job.teacher is None:
        return Lessons(features, task.loss, task.summed_loss, {})
    begin = time.perf_counter()
    if isinstance(task, SentenceVectors):
        found = taught_by(job, task, examples)
        answers, remark, noun = found.answers, found.remark, "example"
        teacher, metrics, layers = found.fingerprint, found.metrics, found.num_hidden_layers
        loss: Any = TaughtVectors(
            task.batch_loss, found.imitation, job.teacher_weight, task.scale, task.widths
        )
        summed_loss = task.summed_loss
    else:
        opened = _open_teacher(job, task, tokenizer)
        answers, remark, noun = _answers(opened, features), "", "sequence"
        teacher, metrics = opened.fingerprint, opened.metadata.metrics
        layers = len(encoder_of(opened.model).layers)
        loss = Distillation(task, job.teacher_weight, job.teacher_temperature)
        summed_loss = loss.summed_loss
    for one, rows in zip(features, answers, strict=True):
        one.taught = rows
    size = sum(each.nbytes for each in answers) / 2**20
    tell(
        f"the teacher {job.teacher} answered {count_of(len(features), noun)} once; its "
        f"outputs take {size:.1f} MiB of memory{remark}; {time.perf_counter() - begin:.1f} s"
    )
    recorded = {"run": str(job.teacher), "sha256": teacher, "num_hidden_layers": layers}
    if task.metric in metrics:
        recorded[task.metric] = metrics[task.metric]
    return Lessons(features, loss, summed_loss, recorded)


class Distillation:
    """The loss of a student, weighted and summed over a batch.

    Each labelled feature gives ``weight`` of the task's ``imitation_losses`` and 1 - ``weight`` of
    its loss on labels; one without a label gives the first alone, and whole.
    """

    def __init__(self, task: AnyTask, weight: float, temperature: float) -> None:
        self.task = task
        self.weight = weight
        self.temperature = temperature

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """A scalar."""
        return self.summed_loss(self.task.trained_outputs(model, batch).float(), batch)

    def summed_loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The same from outputs (R, C)."""
        taught = torch.from_numpy(np.concatenate([one.taught for one in batch.features]))
        is_labelled = [one.label is not None for one in batch.features]
        losses = self.task.imitation_losses(
            outputs, to_device(taught, outputs.device), batch, self.temperature
        )
        shares = torch.tensor([self.weight if each else 1.0 for each in is_labelled])
        total = (losses * weights_of(batch, losses) * to_device(shares, losses.device)).sum()
        if self.weight == 1.0 or not any(is_labelled):
            return total
        if not all(is_labelled):
            counts = [self.task.num_head_rows(one) for one in batch.features]
            chosen = torch.from_numpy(np.flatnonzero(np.repeat(is_labelled, counts)))
            outputs = outputs[to_device(chosen, outputs.device)]
            batch = collate([one for one in batch.features if one.label is not None])
        return total + (1.0 - self.weight) * self.task.summed_loss(outputs, batch)


def _open_teacher(job: FinetuningJob, task: AnyTask, tokenizer: BertTokenizer) -> Predictor[Any]:
    """The teacher, its outputs in the order of the student's labels."""
    assert job.teacher is not None
    if type(task).imitation_losses is Task.imitation_losses:
        raise UsageError(f"{param('teacher')} is not for {task.name}; leave it out")
    teacher: Predictor[Any] = Predictor(
        job.teacher, device=job.device, allow_pickle=job.allow_pickle
    )
    named, theirs = param("teacher", job.teacher), teacher.task
    if theirs.name != task.name:
        raise UsageError(
            f"{named} was trained to {theirs.name}, and this training is to {task.name}: name a "
            "RUN of the same task"
        )
    if set(theirs.names) != set(task.names):
        raise UsageError(
            f"{named} has the labels {_shown(theirs.names)}, and the training examples have "
            f"{_shown(task.names)}: name a RUN of the same labels, or train on examples of each"
        )
    if theirs.settings().get("no_answers") != task.settings().get("no_answers"):
        unlike = "only here" if not theirs.settings()["no_answers"] else "only there"
        raise UsageError(
            f"{named} and these training examples differ in questions without an answer, which "
            f"are {unlike}: name a RUN that was trained on the same kinds of questions"
        )
    if _cuts(teacher.tokenizer) != _cuts(tokenizer):
        raise UsageError(
            f"{named} and the model {job.model} have different tokenizers "
            f"({teacher.tokenizer.vocab_size:,} and {tokenizer.vocab_size:,} tokens), so the "
            "student cannot learn its answers token by token: name a RUN and a MODEL of one "
            "vocabulary"
        )
    try:
        fitting_length(encoder_of(teacher.model).config, job.length)
    except UsageError as error:
        raise UsageError(f"{named}: {error.message}") from None
    if theirs.names:
        reorder_labels(teacher.model, [theirs.label_ids[name] for name in task.names])
    return teacher


def _answers(teacher: Predictor[Any], features: Sequence[Features]) -> list[Any]:
    """What the teacher outputs for each of the features, (r, C) float32."""
    task, model = teacher.task, teacher.model
    return run_batches(
        lambda batch: task.trained_outputs(model, batch),
        features,
        [task.num_head_rows(one) for one in features],
        teacher.device,
        precision=teacher.precision,
    )


def _cuts(tokenizer: BertTokenizer) -> dict[str, Any]:
    """All that decides the ids of a text."""
    state = tokenizer.__getstate__()
    return {**state, "vocab": state["vocab"].tokens}


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_LABELS:,} more" if names[SHOWN_LABELS:] else ""
    return ", ".join(names[:SHOWN_LABELS]) + more
