"""The examples of a job: read from files or memory, or made already."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidybert.checkpoints.metadata import ModelMetadata, stored_values
from tidybert.data.checks import DataReport, TrainingData, count_tokens, lines_of
from tidybert.data.corrections import apply_corrections
from tidybert.data.features import Features
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.files.reading import Reading, ReadReport
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.inference.predictor import examples_of as inputs_of
from tidybert.inference.zero_shot import class_texts, read_descriptions
from tidybert.options import listed
from tidybert.system.reporter import Reporter
from tidybert.tasks.labelled_examples import read_all
from tidybert.tasks.task import AnyTask
from tidybert.training.runs.provenance import Provenance, file_identity
from tidybert.training.runs.run_checkpoints import step_directories


@dataclass(frozen=True)
class TrainingExamples:
    """A task, the examples to train on and to measure on, and where they came from.

    Args:
        held_out: None where nothing is measured.
        labelled: all that was read to train on, before a share was held out.
        unlabelled: those that a teacher answers.
    """

    task: AnyTask
    train: Sequence[Any]
    held_out: Sequence[Any] | None
    labelled: Sequence[Any] = ()
    provenance: Provenance = field(default_factory=Provenance)
    unlabelled: Sequence[Any] = ()


def examples_of(job: FinetuningJob, reporter: Reporter, *, warns: bool = False) -> TrainingExamples:
    """Read both parts of a job; without ``dev`` a share of ``train`` is held out."""
    if not isinstance(job.task, str):
        return TrainingExamples(
            job.task, job.train, job.dev, provenance=job.provenance, unlabelled=job.unlabelled or ()
        )
    chosen = job.task_class

    def read(
        task: AnyTask | type[AnyTask], data: Any, name: str, report: ReadReport, **how: Any
    ) -> list[Any]:
        examples = read_all(
            task,
            data,
            job.read,
            name=name,
            **how,
            skip_bad_rows=job.skip_bad_rows,
            report=report,
            reporter=reporter,
            warns=warns,
        )
        found["train" if name == "data" else name] = report.record()
        return examples

    found: dict[str, Any] = {}
    report = ReadReport()
    # A teacher's vectors are all that texts alone need.
    how: dict[str, Any] = {"known": _names_of_begun(job)}
    if chosen.name == "embed" and job.teacher is not None:
        how["need_label"] = False
    labelled = read(chosen, job.train, "data", report, **how)
    # What a finished model could not keep is refused before its training.
    stored_values([*report.label_values], report.label_values)
    if job.corrections is not None:
        corrected = apply_corrections(str(job.corrections), labelled)
        labelled, changed = corrected.examples, count_of(corrected.num_changed, "label")
        names = count_of(corrected.num_rows, "example")
        reporter.tell(f"{job.corrections}: {changed} changed; it names {names}")
    files = {
        "train": job.train,
        "dev": job.dev,
        "unlabelled": job.unlabelled,
        "corrections": job.corrections,
    }
    provenance = Provenance(
        name=None if job.out is None else job.out.resolve().name,
        files={
            part: file_identity(data)
            if isinstance(data, str | Path)
            else {"file": "data in memory"}
            for part, data in files.items()
            if data is not None
        },
        reading=Reading.of(job.read, report).to_dict() if report.format else None,
        label_values=report.label_values,
        read=found,
    )
    train, held_out = labelled, None
    share = share_of(job, labelled)
    if share:
        train, held_out = chosen.hold_out(labelled, share, job.arguments.seed)
        some = f"{len(held_out):,} of {len(labelled):,} examples"
        if chosen.drawn_of(labelled):
            some += ", all of them drawn at random,"
        reporter.tell(f"no {param('dev')}: {some} are held out to measure on")
    elif job.dev is None and job.dev_fraction is None and chosen.are_measured(labelled):
        reporter.tell(
            f"no {param('dev')}: all {len(labelled):,} examples train; {param('dev_fraction')} 0.1 "
            "holds a tenth out to measure on"
        )
    named = _named_alone(job, train, reporter)
    task = chosen.from_examples([*train, *named], job.task_options)
    if job.dev is not None:
        held_out = read(task, job.dev, "dev", ReadReport())
    unlabelled: list[Any] = []
    like = Reading.of(job.read, report) if report.format else None
    if isinstance(job.unlabelled, str | Path):
        unlabelled = read(
            task, job.unlabelled, "unlabelled", ReadReport(), need_label=False, like=like
        )
    elif job.unlabelled is not None:
        unlabelled = inputs_of(task, job.unlabelled, None, like)
    return TrainingExamples(task, train, held_out or None, labelled, provenance, unlabelled)


def share_of(job: FinetuningJob, labelled: Sequence[Any]) -> float:
    """The share of the labelled examples of a job that is held out.

    Raises UsageError where one is asked for of examples that say nothing to measure.
    """
    if not job.task_class.are_measured(labelled):
        if job.dev_fraction:
            raise UsageError(
                f"{param('dev_fraction', job.dev_fraction)}: texts alone say nothing to measure; "
                f"give pairs as {param('dev')}"
            )
        return 0.0
    return job.share_held_out(len(labelled), len(job.task_class.drawn_of(labelled)))


def described_classes(job: FinetuningJob) -> dict[str, str]:
    """By the name of each class that the job names, what describes it, or ""."""
    given, names = job.descriptions or {}, job.labels or ()
    if isinstance(given, str | Path):
        given = read_descriptions(given)
    return {**dict.fromkeys(listed(names) if isinstance(names, str) else names, ""), **given}


def _named_alone(job: FinetuningJob, train: Sequence[Any], reporter: Reporter) -> list[TextExample]:
    """An example without a text for each class that no text has, and that its name teaches."""
    described = described_classes(job)
    if not described:
        return []
    seen = {one.label for one in train}
    alone = [name for name in described if name not in seen]
    texts = class_texts([*described, *sorted(seen - described.keys())], described)
    are_pairs = any(one.text_pair is not None for one in train)
    learns = not are_pairs and job.arguments.head_start != "random"
    known = [name for name in alone if learns and texts[name]]
    if known:
        told = ", ".join(known)
        reporter.tell(f"classes that no text has, known by names and descriptions alone: {told}")
    if left_out := [name for name in alone if name not in known]:
        told = ", ".join(left_out)
        reporter.tell(f"classes left out, which no text has and no name can teach: {told}")
    return [TextExample("", None, name, 0) for name in known]


def _names_of_begun(job: FinetuningJob) -> Sequence[str]:
    """The labels of a run that goes on, which an earlier version may have spelt otherwise."""
    begun = step_directories(job.out) if job.resume and job.out is not None else []
    for directory in reversed(begun):
        # Damaged checkpoints are told of where they are read.
        with suppress(TidyBertError):
            if (found := ModelMetadata.read(directory)) is not None:
                return found.label_names or ()
    return ()


# What the checks find in examples without labels, which a teacher answers.


def examine_unlabelled(
    report: DataReport,
    task: AnyTask,
    data: TrainingData[Any],
    unlabelled: Sequence[Any],
    features: Sequence[Features],
) -> None:
    """Count them, those that lose a part, and those with a text that occurs twice."""
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
