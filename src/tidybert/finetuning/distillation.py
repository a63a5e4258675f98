"""Distillation: a student learns the answers of a finished RUN, its teacher (Hinton et al. 2015).

The teacher answers each text once, before the first step, without dropout; its outputs stay in
memory.  R rows of outputs, C outputs, F features.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.data.batching import Batch, collate
from tidybert.data.features import Features, text_features
from tidybert.errors import LINE, DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.head_start import trained_before
from tidybert.finetuning.training_examples import TrainingExamples
from tidybert.inference.embedding import Embedder
from tidybert.inference.forward import run_batches
from tidybert.inference.loading import OpenedModel, fitting_length
from tidybert.inference.predictor import CrossEncoder, Predictor
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.bert import BertModel
from tidybert.modeling.heads import reorder_labels
from tidybert.modeling.kernels.transfer import to_device
from tidybert.system.reporter import Reporter
from tidybert.tasks.task import SHOWN_LABELS, AnyTask, Task, weights_of
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tasks.vectors.vector_examples import VectorExample
from tidybert.tasks.vectors.vector_training import (
    Imitation,
    TaughtVectors,
    of_places,
    of_scores,
    of_vectors,
)
from tidybert.tokenization import BertTokenizer
from tidybert.training.fine_tuning import FineTuning, Loss
from tidybert.training.linear_probe import ProbeLoss
from tidybert.training.loop import TrainingLoop

# A teacher of embed: a MODEL whose vectors a student learns, or a cross-encoder whose scores.
#
# It reads the texts by its own tokenizer, so its vocabulary may be another one.

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Taught:
    """What a teacher answered.

    Args:
        answers: to each example, as ``imitation`` compares them.
        fingerprint: a hash of all that decides them.
        num_hidden_layers, metrics: the teacher's.
        remark: what a user should know of them, as sentences that begin with "; ".
        encoder_fingerprint: as an index has it, of a teacher that gives vectors.
    """

    answers: Sequence[Floats]
    imitation: Imitation
    fingerprint: str
    num_hidden_layers: int
    metrics: Mapping[str, Any]
    remark: str
    encoder_fingerprint: str = ""


def _vectors(opened: OpenedModel, examples: Sequence[VectorExample], max_seq_length: int) -> Taught:
    """A vector of length 1 for each text; of an example with several, the first is a query."""
    embedder, form = Embedder.of(opened, normalize=True), opened.form
    query, document = (
        form.prompt(name=name) for name in (form.query_prompt_name, form.document_prompt_name)
    )
    asked = []
    for one in examples:
        prompts = [document] * len(one.texts)
        prompts[0] = query if len(one.texts) > 1 else document
        asked.append([prompt + text for prompt, text in zip(prompts, one.texts, strict=True)])
    number_of = _numbers([text for each in asked for text in each])
    length = min(max_seq_length, embedder.max_seq_length)
    features = text_features(embedder.tokenizer, [*number_of], None, length)
    found = embedder.vectors(features)
    remark = _cut_remark(sum(one.truncated for one in features), "text", length)
    settings = [embedder.pooling, embedder.dimension, query, document, length]
    return Taught(
        [found[[number_of[text] for text in each]] for each in asked],
        of_vectors,
        hashlib.sha256(json.dumps([embedder.fingerprint, settings]).encode()).hexdigest(),
        embedder.encoder.config.num_hidden_layers,
        {} if opened.directory.metadata is None else opened.directory.metadata.metrics,
        remark,
        embedder.fingerprint,
    )


def _scores(opened: OpenedModel, examples: Sequence[VectorExample], num_labelled: int) -> Taught:
    """(n - 1, 1) scores of an example's first text with each of its n - 1 others."""
    encoder = CrossEncoder(Predictor.of(opened.finished), opened.name)
    for number, one in enumerate(examples):
        if len(one.texts) == 1:
            part = param("train" if number < num_labelled else "unlabelled")
            raise DataError(
                f"{param('teacher', opened.name)} scores pairs of texts, and {LINE} {one.row} of "
                f"{part} has a single text: give pairs, or name a MODEL whose vectors are learned"
            )
    pairs = [[(one.texts[0], other) for other in one.texts[1:]] for one in examples]
    number_of = _numbers([pair for each in pairs for pair in each])
    firsts, seconds = zip(*number_of, strict=True)
    answers = encoder.answers(firsts, seconds)
    scores = np.array([[each.relevance()] for each in answers], dtype=np.float32)
    predictor = encoder.predictor
    return Taught(
        [scores[[number_of[pair] for pair in each]] for each in pairs],
        of_scores,
        predictor.fingerprint,
        encoder_of(predictor.network).config.num_hidden_layers,
        predictor.metadata.metrics,
        _cut_remark(sum(each.read.truncated for each in answers), "pair", predictor.max_seq_length),
    )


def _numbers(values: Sequence[Any]) -> dict[Any, int]:
    """The different ones, numbered in their order."""
    return {each: number for number, each in enumerate(dict.fromkeys(values))}


def _cut_remark(count: int, noun: str, length: int) -> str:
    return f"; it read the first {length:,} tokens of {count_of(count, noun)}" if count else ""


@dataclass(frozen=True)
class Supervision:
    """The features that a model learns from, the loss, and the same loss of outputs (R, C).

    teacher: what arguments.json records of the teacher; empty without one.
    encoder: the teacher's, where the student is to learn its states before its answers.
    space: the width and the fingerprint of a teacher whose vectors become the student's own.
    """

    features: Sequence[Features]
    loss: Loss
    summed_loss: ProbeLoss
    teacher: Mapping[str, Any]
    encoder: BertModel | None = None
    space: tuple[int, str] | None = None


def supervision_of(
    job: FinetuningJob,
    examples: TrainingExamples,
    task: AnyTask,
    tokenizer: BertTokenizer,
    features: Sequence[Features],
    reporter: Reporter,
) -> Supervision:
    """What a job teaches: labels alone, or with a teacher its answers to all features too.

    ``features`` are those of the examples to train on, and then those of the unlabelled ones.

    Raises what ``Predictor`` and ``Embedder`` raise, UsageError for a teacher of another task,
    other labels or another vocabulary, or one that scores no pairs, and DataError for single texts
    to a cross-encoder.
    """
    if job.teacher is None:
        return Supervision(features, task.loss, task.summed_loss, {})
    begin, encoder, space = time.perf_counter(), None, None
    if isinstance(task, SentenceVectors):
        asked = [*examples.train, *examples.unlabelled]
        other = OpenedModel(job.teacher, device=job.device, allow_pickle=job.allow_pickle)
        metadata = other.directory.metadata
        # It gives vectors, unless it was trained to something else.
        if other.is_finished and (metadata is None or metadata.task != task.name):
            found = _scores(other, asked, len(examples.train))
        else:
            found = _vectors(other, asked, job.length)
        answers, remark, noun = found.answers, found.remark, "example"
        teacher, metrics, layers = found.fingerprint, found.metrics, found.num_hidden_layers
        imitation = found.imitation
        if task.loss_name == "leaf":
            imitation, space = of_places, (answers[0].shape[1], found.encoder_fingerprint)
        loss: Any = TaughtVectors(
            task.batch_loss, imitation, job.teacher_weight, task.scale, task.widths
        )
        summed_loss = task.summed_loss
    else:
        opened = _open_teacher(job, task, tokenizer)
        answers, remark, noun = _answers(opened, features), "", "sequence"
        teacher, metrics = opened.fingerprint, opened.metadata.metrics
        layers = len(encoder_of(opened.network).layers)
        if examples.unlabelled and job.num_layers:
            encoder = encoder_of(opened.network)
        loss = Distillation(task, job.teacher_weight, job.teacher_temperature)
        summed_loss = loss.summed_loss
    for one, rows in zip(features, answers, strict=True):
        one.taught = rows
    size = sum(each.nbytes for each in answers) / 2**20
    reporter.tell(
        f"the teacher {job.teacher} answered {count_of(len(features), noun)} once; its "
        f"outputs take {size:.1f} MiB of memory{remark}; {time.perf_counter() - begin:.1f} s"
    )
    recorded = {"run": str(job.teacher), "sha256": teacher, "num_hidden_layers": layers}
    if task.metric in metrics:
        recorded[task.metric] = metrics[task.metric]
    return Supervision(features, loss, summed_loss, recorded, encoder, space)


def learn_states(trainer: TrainingLoop[FineTuning], teacher: BertModel) -> None:
    """Teach a student's layers the teacher's states, in one pass over all features, and note it.

    Of l layers the k-th learns the output of the teacher's layer k L / l by the mean squared
    difference, at twice the rate that follows (as TinyBERT's first stage, Jiao et al. 2020).  Where
    l does not divide L, or the widths differ, it only notes that no states are learned.
    """
    begin, objective = time.perf_counter(), trainer.objective
    student = encoder_of(objective.model)
    every, rest = divmod(len(teacher.layers), len(student.layers))
    if rest or teacher.config.hidden_size != student.config.hidden_size:
        theirs, ours = (
            f"{len(one.layers)} of width {one.config.hidden_size}" for one in (teacher, student)
        )
        trainer.reporter.tell(
            f"the teacher's states are not learned: its layers are {theirs}, the student's {ours}"
        )
        return

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        # The student's batch numbers the tokens in use; the teacher has a vocabulary of its own.
        rows = collate(batch.features).to(objective.device).rows
        with torch.no_grad():
            wanted = teacher(rows, output_hidden_states=True).hidden_states[every::every]
        found = encoder_of(model)(batch.rows, output_hidden_states=True).hidden_states[1:]
        losses = [
            functional.mse_loss(mine.float(), other.float())
            for mine, other in zip(found, wanted, strict=True)
        ]
        return torch.stack(losses).sum() * sum(one.weight for one in batch.features)

    with trainer.whole_model(), trainer.stage("states") as each:
        arguments = replace(
            objective.arguments,
            num_train_epochs=1.0,
            learning_rate=2 * objective.arguments.peak_rate,
        )
        stage = FineTuning(objective.model, objective.features, loss, arguments)
        losses = trained_before(stage, trainer, "the teacher's states", each)
    trainer.reporter.tell(
        f"the student's layers learned the teacher's states from "
        f"{count_of(len(objective.features), 'example')}: {losses}; "
        f"{time.perf_counter() - begin:.1f} s"
    )


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
    if teacher.tokenizer.identity() != tokenizer.identity():
        raise UsageError(
            f"{named} and the model {job.model} have different tokenizers "
            f"({teacher.tokenizer.vocab_size:,} and {tokenizer.vocab_size:,} tokens), so the "
            "student cannot learn its answers token by token: name a RUN and a MODEL of one "
            "vocabulary"
        )
    ways = [one.settings().get("running_text") for one in (theirs, task)]
    if ways[0] != ways[1] and not tokenizer.cuts_words_alone():
        raise UsageError(
            f"{named} was trained on words that were cut alone, by an older version, and a student "
            "reads the running text: train the teacher again"
        )
    try:
        fitting_length(encoder_of(teacher.network).config, job.length)
    except UsageError as error:
        raise UsageError(f"{named}: {error.message}") from None
    if theirs.names:
        reorder_labels(teacher.network, [theirs.label_ids[name] for name in task.names])
    return teacher


def _answers(teacher: Predictor[Any], features: Sequence[Features]) -> list[Any]:
    """What the teacher outputs for each of the features, (r, C) float32."""
    task, model = teacher.task, teacher.network
    return run_batches(
        lambda batch: task.trained_outputs(model, batch),
        features,
        [task.num_head_rows(one) for one in features],
        teacher.device,
        precision=teacher.precision,
    )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_LABELS:,} more" if names[SHOWN_LABELS:] else ""
    return ", ".join(names[:SHOWN_LABELS]) + more
