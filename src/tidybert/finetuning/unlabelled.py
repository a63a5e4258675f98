"""What the checks find in examples without labels, which a teacher answers."""

from collections.abc import Sequence
from typing import Any

from tidybert.data.checks import DataReport, TrainingData, count_tokens, lines_of
from tidybert.data.features import Features
from tidybert.files.wording import count_of
from tidybert.tasks.task import AnyTask


def examine_unlabelled(
    report: DataReport,
    task: AnyTask,
    data: TrainingData[Any],
    unlabelled: Sequence[Any],
    features: Sequence[Features],
) -> None:
    """Count them, those that lose a part, and those with a text that occurs twice.

    Raises DataError where they hold other inputs than the training examples.
    """
    if not unlabelled:
        return
    task.check_inputs(unlabelled, task.inputs_of(data.train))
    report.facts.append(f"unlabelled: {count_of(len(unlabelled), 'example')} for the teacher")
    truncated = count_tokens(report, "unlabelled", features)
    if len(truncated):
        report.warnings.append(
            f"{len(truncated):,} of {len(unlabelled):,} unlabelled examples {task.truncation}"
        )
    texts = [task.identity(one) for one in unlabelled]
    repeated = len(texts) - len(set(texts))
    if repeated:
        report.facts.append(
            f"unlabelled: {count_of(repeated, 'example')} with a text of an earlier one"
        )
    known = {task.identity(one) for one in data.train}
    shared = sum(text in known for text in texts)
    if shared:
        report.facts.append(
            f"unlabelled: {count_of(shared, 'example')} with a text of a training example"
        )
    known = {task.identity(one) for one in data.held_out}
    rows = [one.row for one, text in zip(unlabelled, texts, strict=True) if text in known]
    if rows:
        report.warnings.append(
            f"{count_of(len(rows), 'unlabelled example')} of {len(unlabelled):,} with a text that "
            f"a dev example has too ({lines_of(rows)} of unlabelled), so the dev metrics may "
            "flatter the model; remove them from one of the two"
        )
