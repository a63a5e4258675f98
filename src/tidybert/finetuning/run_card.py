"""The model card of a fine-tuned RUN: data, metrics with intervals, settings, limits and use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import PRETRAINED
from tidybert.checkpoints.example_kinds import ExampleKind
from tidybert.checkpoints.model_card import write_card
from tidybert.errors import in_shell
from tidybert.finetuning.finetuning_job import FinetuningOptions
from tidybert.metrics.bootstrap import bootstrap, proportion_interval
from tidybert.modeling.heads import ARCHITECTURES
from tidybert.options import named
from tidybert.storage.model_files import RECORD
from tidybert.tasks.answers import Answers
from tidybert.tasks.task import AnyTask

# A card must not cost a training's time; the report draws more, for narrower ends.
_NUM_RESAMPLES: Final = 200
_MAX_SECONDS: Final = 1.0


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
    metrics, intervals = {}, {}
    if answers is not None:
        measured, count = answers.metrics(), len(answers.examples)
        metrics = {
            each: float(measured[each])
            for each in task.meanings
            if isinstance(measured.get(each), int | float)
        }
        drawn = bootstrap(
            answers.metrics, count, num_resamples=_NUM_RESAMPLES, max_seconds=_MAX_SECONDS
        )
        intervals = dict(drawn.by_name)
        if "accuracy" in metrics and task.unit != "token":
            intervals["accuracy"] = proportion_interval(metrics["accuracy"], count)
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
