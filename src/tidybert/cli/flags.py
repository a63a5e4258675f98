"""Flags made from the dataclasses that hold them, and ``--help`` that shows them in panels.

``@takes(read=ReadOptions)`` gives a command one flag for each field of ReadOptions, with the text
below the field as its help, and hands the command the built object as ``read``.  A text may begin
with the flag and its metavar, as in ``--train FILE``; without them a flag has its field's name.

A dataclass names the panel of its flags in ``PANEL``, and ``option`` that of a single one.
"""

import inspect
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import TyperCommand

from tidybert.catalog import find_model
from tidybert.cli.output import SHELL, choose_notes, note
from tidybert.errors import UsageError, suggestion
from tidybert.inference.options import AnswerOptions
from tidybert.options import choices_of, declared, named, option, plain_help, texts
from tidybert.pretraining.pretraining_arguments import is_what_it_was
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE, RECORD
from tidybert.storage.output_lock import output_lock
from tidybert.system.cores import use_threads
from tidybert.training.runs.run_options import DeviceOption, PickleOption, RowsOption, RunOptions
from tidybert.training.runs.run_origin import recorded_files

# ``--config FILE``: a RUN's arguments.json in the place of flags.

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
    unrecorded = getattr(context.command.callback, "unrecorded", ())
    known = {each.name for each in context.command.params if each.name} | {"task"}
    for name in values:
        if name not in known or name in unrecorded:
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


# Flags and arguments that several commands share, each declared once.

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A name that tidybert models lists, or a directory.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A finished RUN.")]
TextsArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Texts; - reads standard input.")
]
CorpusArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS",
        help="Files, folders or globs: text with a blank line between documents, JSON lines, "
        "Parquet; plain, .gz, .xz or .zst.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class NotesFlags:
    """The flags of every command: ``takes`` adds them."""

    quiet: bool = False
    """``--quiet``: Show only results and errors."""
    verbose: bool = False
    """``--verbose``: Also show what tidybert decides by itself, and why."""

    def prepare(self) -> None:
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose contradict each other; give one of them")
        choose_notes(quiet=self.quiet, verbose=self.verbose)


@dataclass(frozen=True, kw_only=True)
class JsonFlag:
    json: bool = option(False, recorded=False)
    """``--json``: Print one JSON object."""


@dataclass(frozen=True, kw_only=True)
class HeldOutFlag:
    held_out: float = 0.005
    """Fraction of the documents kept apart to measure on."""


@dataclass(frozen=True, kw_only=True)
class NewDirectoryFlag:
    out: Path
    """``--out DIR``: New directory to write."""


@contextmanager
def new_directory(out: Path) -> Iterator[None]:
    """Within the block this process alone writes ``out``; UsageError if something is there."""
    with output_lock(out):
        if os.path.lexists(out):
            raise UsageError(f"--out {out} is there already; name a new directory")
        yield


@dataclass(frozen=True, kw_only=True)
class RunFlags(RunOptions):
    PANEL: ClassVar = "Checkpoints"

    config: Path | None = option(None, recorded=False, callback=take_config)
    """``--config FILE``: Repeat the run whose arguments.json this is; flags on the command line
    win."""
    log_to: list[str] | None = None
    """``--log-to TRACKER``: Also log figures to tensorboard, wandb, mlflow, or PACKAGE:function.
    Give it again for more."""
    # Its help is that of RunOptions; the shell needs one.
    out: Path = option(recorded=False)

    @property
    def is_done(self) -> bool:
        """Whether the run to resume is finished, which a note says."""
        from tidybert.training.runs.run_directory import is_resumed_in_vain

        if not (self.resume and is_resumed_in_vain(self.out, self.keep_checkpoints)):
            return False
        note(f"the run in {self.out} is finished: there is nothing to resume")
        return True


@dataclass(frozen=True, kw_only=True)
class ThreadsFlag:
    PANEL: ClassVar = "Device"

    threads: int | None = option(None, at_least=1)
    """``--threads N``: Threads that compute on a CPU. If not set: one for each core."""

    def prepare(self) -> None:
        if self.threads is not None:
            use_threads(self.threads)


@dataclass(frozen=True, kw_only=True)
class DeviceFlag(ThreadsFlag, DeviceOption):
    pass


PickleFlag = PickleOption


@dataclass(frozen=True, kw_only=True)
class ExamplesFlags(RowsOption, PickleOption, DeviceFlag):
    pass


@dataclass(frozen=True, kw_only=True)
class AnswerFlags(AnswerOptions, DeviceFlag):
    def prepare(self) -> None:
        super().prepare()
        if self.precision == "bfloat16":
            from tidybert.inference.loading import choose_device
            from tidybert.training.precision import note_slow_bfloat16

            note_slow_bfloat16(choose_device(self.device), True, SHELL)


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    PANEL: ClassVar = "Cluster"

    cluster: str | None = None
    """``--cluster ADDRESS``: Work on a Ray cluster; local starts one here. FILE may be a folder or
    a pattern, and --out is a folder."""
    cluster_workers: int | None = option(None, at_least=1)
    """``--cluster-workers N``: Processes that work on a cluster. If not set: one for each CPU, or
    each GPU with --device cuda."""
    on_error: str = "stop"
    """``--on-error stop|continue``: On a cluster, stop at a file that fails, or do the other files
    first."""


@dataclass(frozen=True, kw_only=True)
class OutFlags(ClusterFlags):
    PANEL: ClassVar = "Other options"

    out: Path | None = None
    """``--out FILE``: New file to write. If not set: stdout."""
    resume: bool = False
    """``--resume``: Continue a stopped run of the same --out."""


PANELS: Final = (
    "Arguments",
    "Most used",
    "Data",
    "Task",
    "Training",
    "Checkpoints",
    "Device",
    "Cluster",
    "Other options",
)
"""The sections of a command's help, in their order."""
_PATH_FLAGS: Final[set[str]] = set()


class PanelCommand(TyperCommand):
    """A command whose help lists its flags in PANELS, as plain text: rich would make it slow."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel that has a flag."""
        first = getattr(self.callback, "first_flags", ())
        panels: dict[str, dict[str, tuple[str, str]]] = {title: {} for title in PANELS}
        for each in self.shown_params(ctx):
            record = each.get_help_record(ctx)
            if record is None or each.name is None:
                continue
            if each.param_type_name == "argument":
                title = "Arguments"
            elif each.name in first:
                title = "Most used"
            else:
                title = getattr(each, "rich_help_panel", None) or "Other options"
            panels[title][each.name] = record
        used = panels["Most used"]
        panels["Most used"] = {name: used[name] for name in first if name in used}
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(list(records.values()))

    def shown_params(self, ctx: Any) -> list[Any]:
        """The arguments and flags that the help shows."""
        return list(self.get_params(ctx))


def takes(*first: str, **groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each keyword parameter named in ``groups`` by the fields of its dataclass.

    A group with a method ``prepare`` has it called before the command, for what holds in the whole
    process.  Every command gets NotesFlags.  ``first`` are the parameters that most people need:
    PanelCommand shows them first.
    """
    common = {**groups, "notes": NotesFlags}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [each for name, each in signature.parameters.items() if name not in groups]
        flags = {name: _parameters(group) for name, group in common.items()}

        @wraps(command)
        def run(**given: Any) -> None:
            built = {
                name: group(**{each.name: given.pop(each.name) for each in flags[name]})
                for name, group in common.items()
            }
            for each in built.values():
                if prepare := getattr(each, "prepare", None):
                    prepare()
            built.pop("notes")
            command(**given, **built)

        made = [each for parameters in flags.values() for each in parameters]
        run.__signature__ = signature.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in [*own, *made]}
        run.first_flags = first  # type: ignore[attr-defined]
        run.groups = common  # type: ignore[attr-defined]
        run.unrecorded = {  # type: ignore[attr-defined]
            name for group in common.values() for name in named(group, recorded=False)
        }
        return run

    return decorate


def _parameters(group: type) -> list[inspect.Parameter]:
    types = typing.get_type_hints(group)
    of_name = {each.name: each for each in fields(group)}
    parameters = []
    # A class's own flags first, then those that it shares with other commands.
    for owner in group.__mro__:
        for name, text in texts(owner).items():
            if (each := of_name.pop(name, None)) is None:
                continue
            kind, told = _in_shell(types[name]), declared(each)
            # The help shows the range of a number that includes its ends.
            is_shown = (
                kind in (int, float, int | None, float | None)
                and getattr(owner, "SHOWS_RANGES", True)
                and told.above is told.below is None
            )
            flag, metavar = _declared(text) or (_default_flag(name, kind), None)
            if kind in (Path, Path | None):
                _PATH_FLAGS.add(flag)
            option = typer.Option(
                flag,
                help=plain_help(text),
                metavar=metavar,
                min=told.at_least if is_shown else None,
                max=told.at_most if is_shown else None,
                show_default=each.default is not None,
                rich_help_panel=told.panel or getattr(owner, "PANEL", None),
                callback=told.callback,
                is_eager=told.callback is not None,
            )
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if each.default is MISSING else each.default,
                    annotation=Annotated[kind, option],
                )
            )
    return parameters


def _in_shell(kind: Any) -> Any:
    """The type of a flag: a column's name or number, a path and a choice are texts in the shell."""
    inside = typing.get_args(kind)
    if kind is Any or choices_of(kind) or (str in inside and kind != list[str]):
        return str | None if kind is Any or type(None) in inside else str
    return kind


def check_paths(words: Sequence[str]) -> None:
    """Raise UsageError for a flag with no text for a path: Path reads that as this folder."""
    for before, word in pairwise(["", *words]):
        flag, sign, value = word.partition("=")
        if not word:
            flag = before
        if flag in _PATH_FLAGS and (sign or not word) and not value:
            raise UsageError(f"{flag}: expected a path, not an empty text")


def _default_flag(name: str, kind: Any) -> str:
    flag = name.replace("_", "-")
    return f"--{flag}/--no-{flag}" if kind in (bool, bool | None) else f"--{flag}"


def _declared(text: str) -> tuple[str, str | None] | None:
    """The flag and the metavar that a text begins with: ``--train FILE``."""
    found = re.match(r"``(--[^ `]+) ?([^`]*)``: ", text)
    return (found[1], found[2] or None) if found else None
