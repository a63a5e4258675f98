"""From a model's outputs on labelled examples to the Evaluation that a report is made of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidybert.errors import in_shell
from tidybert.metrics.bootstrap import bootstrap
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.training_history import read_training_history

if TYPE_CHECKING:
    from tidybert.inference.predictor import Examination


def evaluation_of(
    examination: "Examination",
    metrics: Mapping[str, Any],
    *,
    run: str,
    file: str,
    date: str,
    max_seq_length: int,
) -> Evaluation:
    """Judge every example, and draw the intervals around the metrics.

    Args:
        metrics: the examination's.
        run, file, date: as the report is to name them; ``run`` is where the training's log lies.
        max_seq_length: tokens that a sequence may have.
    """
    task = examination.task
    given = examination.outputs, examination.features, examination.examples
    return Evaluation(
        task=task.name,
        model=run,
        data=file,
        date=date,
        metrics=metrics,
        judgements=task.judgements(*given),
        max_seq_length=max_seq_length,
        truncation=in_shell(task.truncation),
        meanings=task.meanings,
        metric=task.metric,
        label_names=task.label_names if "confusion_matrix" in metrics else None,
        probabilities=_probabilities(task.predictions(*given), task.label_names)
        if "confusion_matrix" in metrics
        else None,
        temperature=task.settings().get("temperature"),
        intervals=bootstrap(task.scorer(*given), len(examination.examples)),
        training=read_training_history(Path(run)),
    )


def _probabilities(
    answers: Sequence[Mapping[str, Any]], label_names: Sequence[str] | None
) -> npt.NDArray[np.float64] | None:
    """(N, C), of answers that give each class a score."""
    if not label_names or not all(isinstance(each.get("scores"), Mapping) for each in answers):
        return None
    return np.array([[each["scores"][name] for name in label_names] for each in answers])
