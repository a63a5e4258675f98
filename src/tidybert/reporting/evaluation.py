"""Evaluation: everything that a report is made of, and where its model comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.unfinished import read_arguments
from tidybert.errors import TidyBertError, in_python
from tidybert.metrics.bootstrap import NUM_RESAMPLES, Intervals
from tidybert.reporting.training_history import TrainingHistory, read_training_history
from tidybert.storage.model_files import ARGUMENTS_FILE

if TYPE_CHECKING:
    from tidybert.tasks.answers import Answers, Judgement, ScoredEntities, Search


@dataclass(frozen=True)
class ModelOrigin:
    """The MODEL, the file and the seed of a training, and the model's sha256; None if unknown."""

    start: str | None = None
    train: str | None = None
    seed: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Evaluation:
    """A model measured on a labelled file; ``model`` and ``data`` are as the user named them.

    metrics: numbers and tables as the task gives them, with the counts of an Examination.
    judgements: one for each example. For scores ``correct`` is None, and expected and predicted are
    numbers with all their digits.  correctness: what ``correct`` measures, in words.
    truncation: what happened to examples that lost a part, after "3 of 9 examples".
    metric: the one that picked the model's weights.  meanings: in the order of the report.
    notes: sentences to read before all others.
    entities: those in the answers.  entity_types: by type all that may be there.
    dev_metrics: what the training measured on dev.
    is_dev: whether the file is the dev of the training; None where that is not known.
    label_names, probabilities (N, C): None where an example does not have one class.
    """

    task: str
    model: str
    data: str
    date: str
    metrics: Mapping[str, Any]
    judgements: Sequence["Judgement"]
    max_seq_length: int
    truncation: str
    meanings: Mapping[str, str] = field(default_factory=dict)
    metric: str = ""
    label_names: Sequence[str] | None = None
    probabilities: npt.NDArray[np.float64] | None = None
    temperature: float | None = None
    intervals: Intervals | None = None
    training: TrainingHistory | None = None
    origin: ModelOrigin = field(default_factory=ModelOrigin)
    correctness: str = "accuracy"
    searches: Sequence["Search"] = ()
    entities: "ScoredEntities | None" = None
    entity_types: Mapping[str, "ScoredEntities"] = field(default_factory=dict)
    dev_metrics: Mapping[str, Any] = field(default_factory=dict)
    is_dev: bool | None = None
    notes: Sequence[str] = ()

    @property
    def of_scores(self) -> bool:
        """Whether the answers are scores, which are near or far and not right or wrong."""
        return all(one.correct is None for one in self.judgements)

    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each example, (N,)."""
        ids = {name: number for number, name in enumerate(self.label_names or ())}
        return np.array([ids[one.expected] for one in self.judgements], dtype=np.int64)


def evaluation_of(
    answers: "Answers[Any, Any]",
    metrics: Mapping[str, Any],
    *,
    run: str,
    file: str,
    date: str | None = None,
    max_seq_length: int,
    num_resamples: int = NUM_RESAMPLES,
    is_dev: bool | None = None,
    notes: Sequence[str] = (),
) -> Evaluation:
    """Judge every example, and draw the intervals around the metrics."""
    task, probabilities = answers.task, answers.class_probabilities
    return Evaluation(
        task=task.name,
        model=run,
        data=file,
        date=date or datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
        metrics=metrics,
        judgements=list(answers.judgements()),
        max_seq_length=max_seq_length,
        truncation=in_python(task.truncation),
        meanings=task.meanings,
        metric=task.metric,
        label_names=None if probabilities is None else task.label_names,
        probabilities=probabilities,
        temperature=task.settings().get("temperature"),
        intervals=answers.intervals(num_resamples),
        training=read_training_history(Path(run)),
        origin=read_model_origin(run),
        correctness=task.correctness,
        searches=answers.searches(),
        entities=answers.entities_given(),
        entity_types=answers.entities_by_type(),
        dev_metrics=metadata.metrics if (metadata := _metadata(run)) else {},
        is_dev=is_dev,
        notes=notes,
    )


def read_model_origin(run: str | Path) -> ModelOrigin:
    """The origin of the model in a RUN; files that are missing or damaged say nothing."""
    try:
        arguments, _ = read_arguments(Path(run) / ARGUMENTS_FILE)
    except TidyBertError:
        arguments = {}
    metadata = _metadata(run)
    return ModelOrigin(
        start=_of_kind(arguments.get("model"), str),
        train=_of_kind(arguments.get("train"), str),
        seed=_of_kind(arguments.get("seed"), int),
        sha256=metadata.sha256 if metadata else None,
    )


def _metadata(run: str | Path) -> ModelMetadata | None:
    try:
        return ModelMetadata.read(run)
    except TidyBertError:
        return None


def _of_kind(value: Any, kind: type) -> Any:
    return value if type(value) is kind else None
