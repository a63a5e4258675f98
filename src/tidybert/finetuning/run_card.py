"""The model card of a fine-tuned RUN: data, metrics with intervals, settings, limits and use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import PRETRAINED
from tidybert.checkpoints.example_kinds import ExampleKind
from tidybert.checkpoints.model_card import write_card
from tidybert.errors import in_shell
from tidybert.finetuning.finetuning_job import FinetuningOptions
from tidybert.metrics.bootstrap import Interval
from tidybert.modeling.heads import ARCHITECTURES
from tidybert.options import named
from tidybert.storage.model_files import RECORD
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask

_MAX_SECONDS: Final = 1.0


def shown_metrics(answers: Answers[Any, Any]) -> tuple[dict[str, float], dict[str, Interval]]:
    """The metrics that the task's tables show, and their intervals."""
    found = answers.metrics()
    shown = {each: found.get(each) for each in answers.task.meanings}
    metrics = {each: float(one) for each, one in shown.items() if isinstance(one, int | float)}
    # A card must not cost a training's time.
    return metrics, answers.intervals(max_seconds=_MAX_SECONDS).by_name


def write_run_card(
    run: Path,
    task: AnyTask,
    arguments: Mapping[str, Any],
    answers: Answers[Any, Any] | None,
    inputs: ExampleKind | None,
    max_seq_length: int,
    name: str | None = None,
    *,
    in_transformers: bool = True,
) -> bool:
    """Write README.md, unless the RUN has one of the user's; returns whether it did."""
    record = arguments[RECORD]
    metrics, intervals = ({}, {}) if answers is None else shown_metrics(answers)
    # What model hubs call the work of the task's model.
    head = ARCHITECTURES.get(task.architecture)
    is_encoder = task.architecture == "BertModel"
    tag = "sentence-similarity" if is_encoder else head and head.pipeline_tag
    unused = () if arguments.get("teacher") else named(FinetuningOptions, needs="teacher")
    data = record["files"].get("dev") or record["files"].get("train")
    return write_card(
        run,
        "run.md.j2",
        name=name or run.name,
        task=task,
        arguments=arguments,
        record=record,
        left_out=(RECORD, "task", "model", "train", "dev", *unused),
        data=data and Path(data["file"]).name,
        count=answers and len(answers.examples),
        metrics=metrics,
        intervals=intervals,
        tag=tag,
        tags=["tidybert", "bert"],
        library="transformers" if tag and in_transformers else None,
        package=PRETRAINED.get(str(arguments["model"])),
        teacher=record.get("teacher"),
        inputs=inputs,
        max_seq_length=max_seq_length,
        truncation=in_shell(task.truncation),
        temperature=task.settings().get("temperature", 1.0),
    )
