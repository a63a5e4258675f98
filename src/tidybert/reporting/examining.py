"""From a model's answers to labelled examples to the Evaluation that a report is made of."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidybert.errors import in_shell
from tidybert.metrics.bootstrap import bootstrap
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.training_history import read_training_history

if TYPE_CHECKING:
    from tidybert.tasks.answers import Answers


def evaluation_of(
    answers: "Answers[Any, Any]",
    metrics: Mapping[str, Any],
    *,
    run: str,
    file: str,
    date: str,
    max_seq_length: int,
) -> Evaluation:
    """Judge every example, and draw the intervals around the metrics.

    Args:
        answers: those to labelled examples.
        metrics: all of theirs, with their counts.
        run, file, date: as the report is to name them; ``run`` is where the training's log lies.
        max_seq_length: tokens that a sequence may have.
    """
    task, probabilities = answers.task, answers.class_probabilities
    return Evaluation(
        task=task.name,
        model=run,
        data=file,
        date=date,
        metrics=metrics,
        judgements=list(answers.judgements()),
        max_seq_length=max_seq_length,
        truncation=in_shell(task.truncation),
        meanings=task.meanings,
        metric=task.metric,
        label_names=None if probabilities is None else task.label_names,
        probabilities=probabilities,
        temperature=task.settings().get("temperature"),
        intervals=bootstrap(answers.metrics, len(answers.examples)),
        training=read_training_history(Path(run)),
    )
