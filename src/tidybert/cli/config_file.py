"""``--config FILE``: a RUN's arguments.json in the place of flags."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import typer

from tidybert.catalog import find_model
from tidybert.cli.output import note
from tidybert.errors import UsageError, suggestion
from tidybert.pretraining.pretraining_arguments import is_what_it_was
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE, RECORD
from tidybert.training.runs.run_origin import recorded_files

NOT_RECORDED: Final = ("out", "config", "branch", "resume", "change", "force", "json")
"""Flags that arguments.json leaves out: they name the run, or how it is begun and shown."""

# Tasks that are commands themselves; finetune has all others.
_COMMANDS: Final = ("pretrain", "train-lm")


def take_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the arguments in a file the defaults of a command's flags and arguments.

    Raises ConfigError for a file that is not a JSON object, and UsageError for an argument that the
    command does not have.
    """
    if path is None:
        return None
    values = read_json_object(path)
    values.pop(RECORD, None)
    command = context.command.name
    # What --log-to was in earlier versions.
    if values.pop("tensorboard", False):
        values["log_to"] = ["tensorboard"]
    task = values.get("task")
    if "task" not in values or (task if task in _COMMANDS else "finetune") != command:
        other = task if task in _COMMANDS else "another program"
        if "hidden_size" in values and command == "pretrain":
            raise UsageError(
                f"--config {path}: this is a model's config.json; name it as SIZE_OR_MODEL: "
                f"tidybert pretrain {path} …"
            )
        raise UsageError(f"--config {path}: these are the arguments of {other}, not of {command}")
    if command in _COMMANDS:
        schedule = str(values.get("schedule"))
        values = {
            name: each for name, each in values.items() if not is_what_it_was(name, each, schedule)
        }
    known = {each.name for each in context.command.params if each.name} | {"task"}
    for name in values:
        if name not in known - {*NOT_RECORDED}:
            raise UsageError(
                f"--config {path}: {command} has no argument {name!r}{suggestion(name, known)}"
            )
    repeated = {each.name for each in context.command.params if getattr(each, "multiple", False)}
    context.default_map = {
        name: [each] if name in repeated and isinstance(each, str) else each
        for name, each in values.items()
        if each is not None
    }
    return path


def take_branch(context: typer.Context, checkpoint: str | None) -> str | None:
    """Make the arguments of the RUN whose checkpoint it is the defaults; raises as take_config."""
    if checkpoint is not None:
        run, sign, _ = checkpoint.rpartition("@")
        if not sign:
            raise UsageError(f"--branch {checkpoint}: expected RUN@STEP, a checkpoint of a RUN")
        find_model(checkpoint)
        take_config(context, Path(run) / ARGUMENTS_FILE)
    return checkpoint


def note_changed(path: Path | None, files: Mapping[str, Any]) -> None:
    """Warn of data that are not those of the run which ``--config`` repeats."""
    if path is None:
        return
    recorded = recorded_files(path)
    for part, now in files.items():
        before = recorded.get(part)
        if before is not None and before.get("sha256") != now.get("sha256"):
            note(
                f"warning: {now['file']} is not the --{part} data of the run in {path.parent}: its "
                "content differs, so this run will differ too"
            )
