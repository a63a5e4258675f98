"""The examples of a fine-tuning, read for the shell and for Python alike."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidybert.checkpoints.label_values import stored_values
from tidybert.data.corrections import apply_corrections
from tidybert.errors import UsageError, param
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.files.reading import Reading
from tidybert.files.wording import count_of
from tidybert.tasks.labelled_examples import read_all
from tidybert.tasks.task import AnyTask
from tidybert.tasks.task_options import TaskOptions
from tidybert.training.run_origin import RunOrigin, file_identity

Tell = Callable[[str], None]


@dataclass(frozen=True)
class TrainingExamples:
    """The task, the examples to train on and to measure on, and all that ``train`` holds.

    Args:
        origin: where they came from, for the RUN.
    """

    job: AnyTask
    examples: list[Any]
    held_out: list[Any]
    labelled: list[Any]
    origin: RunOrigin


def read_training_examples(
    chosen: type[AnyTask],
    train: Any,
    dev: Any,
    options: TaskOptions,
    read: ReadOptions,
    *,
    dev_fraction: float,
    seed: int,
    corrections: str | Path | None = None,
    skip_bad_rows: bool = False,
    names: tuple[str, str] = ("train", "dev"),
    tell: Tell = lambda _line: None,
    warns: bool = False,
) -> TrainingExamples:
    """Read both parts; without ``dev`` a share of ``train`` is held out.

    Args:
        train, dev: paths, or rows in memory.
        dev_fraction: the share; with 0 nothing is measured.
        corrections: path of a CSV with right labels of ``train``.
        names: of the parameters that hold rows in memory, for messages.
        tell: gets lines about what was read.
        warns: make a Python warning of rows that are skipped.

    Raises DataError and UsageError.
    """
    report = ReadReport()
    labelled = read_all(
        chosen,
        train,
        read,
        name=names[0],
        skip_bad_rows=skip_bad_rows,
        report=report,
        tell=tell,
        warns=warns,
    )
    # What a finished model could not keep is refused before its training.
    stored_values([*report.label_values], report.label_values)
    if corrections is not None:
        labelled = _corrected(chosen, str(corrections), labelled, tell)
    files = {"train": train, "dev": dev, "corrections": corrections}
    origin = RunOrigin(
        files={part: _identity(data) for part, data in files.items() if data is not None},
        reading=Reading.of(read, report).to_dict() if report.format else None,
        label_values=report.label_values,
    )
    if dev is not None:
        job = chosen.from_examples(labelled, options)
        held_out = read_all(
            job,
            dev,
            read,
            name=names[1],
            skip_bad_rows=skip_bad_rows,
            tell=tell,
            warns=warns,
        )
        return TrainingExamples(job, labelled, held_out, labelled, origin)
    if dev_fraction == 0:
        return TrainingExamples(
            chosen.from_examples(labelled, options), labelled, [], labelled, origin
        )
    examples, held_out = chosen.hold_out(labelled, dev_fraction, seed)
    tell(
        f"no {param('dev')}: {len(held_out):,} of {len(labelled):,} examples are held out to "
        "measure on"
    )
    job = chosen.from_examples(examples, options)
    return TrainingExamples(job, examples, held_out, labelled, origin)


def _identity(data: Any) -> dict[str, Any]:
    return file_identity(data) if isinstance(data, str | Path) else {"file": "data in memory"}


def _corrected(chosen: type[AnyTask], path: str, examples: list[Any], tell: Tell) -> list[Any]:
    """The examples with the labels that a person corrected; tells how many these are."""
    if chosen.name != "classify":
        raise UsageError(f"{param('corrections')} is for classify, not for {chosen.name} yet")
    found = apply_corrections(path, examples)
    names = count_of(found.num_rows, "example")
    tell(f"{path}: {count_of(found.num_changed, 'label')} changed; it names {names}")
    return found.examples
