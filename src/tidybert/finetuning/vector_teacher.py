"""A teacher of embed: a MODEL whose vectors a student learns, or a cross-encoder whose scores.

It reads the texts by its own tokenizer, so its vocabulary may be another one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.data.features import text_features
from tidybert.errors import LINE, DataError, param
from tidybert.files.wording import count_of
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.training_examples import TrainingExamples
from tidybert.inference.cross_encoder import CrossEncoder
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import is_finished
from tidybert.modeling.architectures import encoder_of
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tasks.vectors.taught_vectors import Imitation, of_scores, of_vectors
from tidybert.tasks.vectors.vector_examples import VectorExample

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Taught:
    """What a teacher answered.

    Args:
        answers: to each example, as ``imitation`` compares them.
        fingerprint: a hash of all that decides them.
        num_hidden_layers, metrics: the teacher's.
        remark: what a user should know of them, as sentences that begin with "; ".
    """

    answers: Sequence[Floats]
    imitation: Imitation
    fingerprint: str
    num_hidden_layers: int
    metrics: Mapping[str, Any]
    remark: str


def taught_by(
    job: FinetuningJob,
    task: SentenceVectors,
    examples: TrainingExamples,
) -> Taught:
    """What a job's teacher answers to the examples to train on, then to the unlabelled ones.

    It gives vectors, unless it was trained to something else.

    Raises UsageError for a teacher that scores no pairs, DataError for single texts to a
    cross-encoder, and what ``Embedder`` and ``Predictor`` raise.
    """
    assert job.teacher is not None
    asked = [*examples.train, *examples.unlabelled]
    directory = ModelDirectory.open(job.teacher)
    metadata = directory.metadata
    if is_finished(directory) and (metadata is None or metadata.task != task.name):
        return _scores(job, asked, len(examples.train))
    return _vectors(job, directory, asked)


def _vectors(
    job: FinetuningJob,
    directory: ModelDirectory,
    examples: Sequence[VectorExample],
) -> Taught:
    """A vector of length 1 for each text; of an example with several, the first is a query."""
    assert job.teacher is not None
    given: Any = {"device": job.device, "allow_pickle": job.allow_pickle}
    embedder = Embedder(job.teacher, normalize=True, **given)
    form = read_sentence_form(directory, allow_pickle=job.allow_pickle)
    query, document = (
        form.prompt(name=name) for name in (form.query_prompt_name, form.document_prompt_name)
    )
    asked = []
    for one in examples:
        prompts = [document] * len(one.texts)
        prompts[0] = query if len(one.texts) > 1 else document
        asked.append([prompt + text for prompt, text in zip(prompts, one.texts, strict=True)])
    number_of = _numbers([text for each in asked for text in each])
    length = min(job.length, embedder.max_seq_length)
    features = text_features(embedder.tokenizer, [*number_of], None, length)
    found = embedder.vectors(features)
    remark = _cut_remark(sum(one.truncated for one in features), "text", length)
    settings = [embedder.pooling, embedder.dimension, query, document, length]
    return Taught(
        [found[[number_of[text] for text in each]] for each in asked],
        of_vectors,
        hashlib.sha256(json.dumps([embedder.fingerprint, settings]).encode()).hexdigest(),
        embedder.encoder.config.num_hidden_layers,
        {} if directory.metadata is None else directory.metadata.metrics,
        remark,
    )


def _scores(job: FinetuningJob, examples: Sequence[VectorExample], num_labelled: int) -> Taught:
    """(n - 1, 1) scores of an example's first text with each of its n - 1 others."""
    assert job.teacher is not None
    encoder = CrossEncoder.open(job.teacher, device=job.device, allow_pickle=job.allow_pickle)
    for number, one in enumerate(examples):
        if len(one.texts) == 1:
            part = param("train" if number < num_labelled else "unlabelled")
            raise DataError(
                f"{param('teacher', job.teacher)} scores pairs of texts, and {LINE} {one.row} of "
                f"{part} has a single text: give pairs, or name a MODEL whose vectors are learned"
            )
    pairs = [[(one.texts[0], other) for other in one.texts[1:]] for one in examples]
    number_of = _numbers([pair for each in pairs for pair in each])
    firsts, seconds = zip(*number_of, strict=True)
    answers = encoder.answers(firsts, seconds)
    scores = np.array([[encoder.score(each)] for each in answers], dtype=np.float32)
    predictor = encoder.predictor
    return Taught(
        [scores[[number_of[pair] for pair in each]] for each in pairs],
        of_scores,
        predictor.fingerprint,
        encoder_of(predictor.model).config.num_hidden_layers,
        predictor.metadata.metrics,
        _cut_remark(sum(each["truncated"] for each in answers), "pair", predictor.max_seq_length),
    )


def _numbers(values: Sequence[Any]) -> dict[Any, int]:
    """The different ones, numbered in their order."""
    return {each: number for number, each in enumerate(dict.fromkeys(values))}


def _cut_remark(count: int, noun: str, length: int) -> str:
    return f"; it read the first {length:,} tokens of {count_of(count, noun)}" if count else ""
