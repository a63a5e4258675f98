"""Commands made from classes: a field is an argument or a flag, and the text below it is its help.

    @command("count", "top_k")
    class Count(ThreadsFlag, JsonFlag):
        \"\"\"Count the tokens of texts.\"\"\"

        file: str = "-"
        \"\"\"``FILE``: Texts; - reads standard input.\"\"\"
        top_k: int = option(10, at_least=1)
        \"\"\"``--top-k K``: Tokens to show.\"\"\"
        read: ReadOptions

        def run(self) -> None: ...

A text begins with an argument's name in capitals, or with a flag and its metavar; without one, a
flag has its field's name.  A field whose type is a dataclass stands for the flags of its fields.
A class names the panel of its flags in ``PANEL``, and ``option`` that of a single one.
"""

import inspect
import os
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar, dataclass_transform

import typer
from typer.core import TyperCommand, TyperOption

from tidybert.catalog import is_model
from tidybert.cli.output import SHELL, choose_notes
from tidybert.errors import UsageError
from tidybert.inference.options import AnswerOptions
from tidybert.options import Options, choices_of, declared, named, option, plain_help, texts
from tidybert.storage.output_lock import output_lock
from tidybert.system.cores import use_threads
from tidybert.tasks.registry import task_names
from tidybert.training.training_arguments import DeviceOption, PickleOption, RowsOption

# Rich help would take a third of a second longer.
app: Final = typer.Typer(
    rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)
PANELS: Final = (
    "Arguments", "Most used", "Data", "Task", "Training", "Checkpoints", "Device", "Cluster",
    "Other options",
)  # fmt: skip
"""The sections of a command's help, in their order."""
_PATH_FLAGS: Final[set[str]] = set()
_declared: Final[dict[str, Callable[[], None]]] = {}
T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def flags(kind: type[T]) -> type[T]:
    """Make a dataclass of flags; its ``prepare``, if it has one, is called before the command."""
    return dataclass(frozen=True, kw_only=True)(kind)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def command(
    name: str, *first: str, panels: bool = False, cls: "type[ModelCommand] | None" = None
) -> Callable[[type[T]], type[T]]:
    """Make a class of flags a command, done by its ``run``; the help shows ``first`` in panels."""

    def decorate(kind: type[T]) -> type[T]:
        kind = flags(kind)
        _declared[name] = lambda: made_of(kind)
        return kind

    def made_of(kind: Any) -> None:
        groups = {"notes": NotesFlags, **_groups(kind), "": kind}
        made = {each: _parameters(group) for each, group in groups.items()}

        def run(**given: Any) -> None:
            built: dict[str, Any] = {}
            for each, group in groups.items():
                values = {one.name: given[one.name] for one in made[each]}
                built[each] = group(**values, **(built if group is kind else {}))
                if prepare := getattr(built[each], "prepare", None):
                    prepare()
                built.pop("notes", None)
            built[""].run()

        notes, *parts, own = made.values()
        found = [one for each in (own, *parts, notes) for one in each]
        run.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in found}
        run.first_flags = first  # type: ignore[attr-defined]
        run.groups = groups  # type: ignore[attr-defined]
        run.not_shown = {  # type: ignore[attr-defined]
            each.name
            for group in groups.values()
            for each in fields(group)
            if (shown_by := declared(each).commands) and name not in shown_by
        }
        run.unrecorded = {  # type: ignore[attr-defined]
            name for group in groups.values() for name in named(group, recorded=False)
        }
        shown = cls or (PanelCommand if first or panels else ModelCommand)
        app.command(name, cls=shown, help=kind.__doc__)(run)

    return decorate


def register(only: str | None = None) -> None:
    """Add the declared commands to the app, or only one, because reading flags takes time."""
    for name in [only] if only in _declared else [] if only else [*_declared]:
        _declared.pop(name)()


def _groups(kind: Any) -> dict[str, Any]:
    """The fields that stand for a dataclass: their type, or what Annotated adds to it."""
    hints = typing.get_type_hints(kind, include_extras=True)
    last = {name: (hint, *typing.get_args(hint))[-1] for name, hint in hints.items()}
    return {each.name: last[each.name] for each in fields(kind) if is_dataclass(last[each.name])}


def _parameters(group: Any) -> list[inspect.Parameter]:
    """Arguments, then flags: a class's own first, then those that it shares with other commands."""
    types = typing.get_type_hints(group)
    of_name = {each.name: each for each in fields(group) if not is_dataclass(types[each.name])}
    arguments: list[inspect.Parameter] = []
    options: list[inspect.Parameter] = []
    for owner in group.__mro__:
        for name, text in texts(owner).items():
            if (each := of_name.pop(name, None)) is None:
                continue
            kind = _in_shell(types[name])
            required = each.default is MISSING and each.default_factory is MISSING
            told, default = declared(each), inspect.Parameter.empty if required else each.default
            found = re.match(r"``(--[^ `]+|[A-Z_]+) ?([^`]*)``: ", text)
            flag, metavar = found.groups() if found else (_default_flag(name, kind), None)
            help_text = plain_help(text).replace("{tasks}", ", ".join(task_names()))
            if not flag.startswith("-"):
                made: Any = typer.Argument(metavar=flag, help=help_text)
            else:
                if kind in (Path, Path | None):
                    _PATH_FLAGS.add(flag)
                # The help shows the range of a number that includes its ends.
                is_shown = (
                    kind in (int, float, int | None, float | None)
                    and getattr(owner, "SHOWS_RANGES", True)
                    and told.above is told.below is None
                )
                made = typer.Option(
                    flag,
                    help=help_text,
                    metavar=metavar or None,
                    min=told.at_least if is_shown else None,
                    max=told.at_most if is_shown else None,
                    show_default=each.default is not None,
                    rich_help_panel=told.panel or getattr(owner, "PANEL", None),
                    callback=told.callback,
                    is_eager=told.callback is not None,
                )
            (options if flag.startswith("-") else arguments).append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=Annotated[kind, made],
                )
            )
    return [*arguments, *options]


def _in_shell(kind: Any) -> Any:
    """The type of a flag: a column's name or number, a path and a choice are texts in the shell."""
    inside = typing.get_args(kind)
    if kind is Any or choices_of(kind) or (str in inside and kind != list[str]):
        return str | None if kind is Any or type(None) in inside else str
    return kind


def _default_flag(name: str, kind: Any) -> str:
    flag = name.replace("_", "-")
    return f"--{flag}/--no-{flag}" if kind in (bool, bool | None) else f"--{flag}"


def check_paths(words: Sequence[str]) -> None:
    """Raise UsageError for a flag with no text for a path: Path reads that as this folder."""
    for before, word in pairwise(["", *words]):
        flag, sign, value = word.partition("=")
        if not word:
            flag = before
        if flag in _PATH_FLAGS and (sign or not word) and not value:
            raise UsageError(f"{flag}: expected a path, not an empty text")


class ModelCommand(TyperCommand):
    """A command that takes its MODEL by place or by --model, whichever of them its help shows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Find the MODEL, and say so where a file is in its place and a flag for it is missing."""
        own = next((each for each in super().get_params(ctx) if each.name == "model"), None)
        end = args.index("--") if "--" in args else len(args)
        if own is not None and own.param_type_name == "argument":
            ctx.meta["model_by_flag"] = any(
                word.partition("=")[0] == "--model" for word in args[:end]
            )
        elif own is not None and len(args) > 1 and is_model(args[0]):
            args = ["--model", *args]
        elif any(each.name == "runs" for each in super().get_params(ctx)):
            words = [word.removeprefix("--model=") for word in args[:end] if word != "--model"]
            args = [*words, *args[end:]]
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            given = ctx.params.get("model")
            if error.param is None or not isinstance(given, str) or not Path(given).is_file():
                raise
            missing = next(iter(error.param.opts))
            raise UsageError(
                f"{given} is a file in the place of MODEL, and {missing} is missing: give the file "
                f"as {missing} {given}"
            ) from None

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; --model in the place of MODEL where the command line has that."""
        found = super().get_params(ctx)
        if not ctx.meta.get("model_by_flag"):
            return found
        own = next(each for each in found if each.name == "model")
        # Versions of typer differ in the name of what says the type.
        kind = next(name for name in ("type_descriptor", "type") if hasattr(own, name))
        given: Any = {kind: getattr(own, kind), "required": own.required, "default": own.default}
        option = TyperOption(param_decls=["model", "--model"], **given)
        return [option if each is own else each for each in found]


class PanelCommand(ModelCommand):
    """A command whose help lists its flags in PANELS, as plain text: rich would make it slow."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel that has a flag."""
        first = getattr(self.callback, "first_flags", ())
        panels: dict[str, dict[str, tuple[str, str]]] = {title: {} for title in PANELS}
        # In their order.
        panels["Most used"] = dict.fromkeys(first, ("", ""))
        for each in self.shown_params(ctx):
            title = "Arguments" if each.param_type_name == "argument" else each.rich_help_panel
            title = "Most used" if each.name in first else title or PANELS[-1]
            if record := each.get_help_record(ctx):
                panels[title][each.name] = record
        for title, records in panels.items():
            if shown := [each for each in records.values() if each[0]]:
                with formatter.section(title):
                    formatter.write_dl(shown)

    def shown_params(self, ctx: Any) -> list[Any]:
        """The arguments and flags that the help shows."""
        hidden = getattr(self.callback, "not_shown", ())
        return [each for each in self.get_params(ctx) if each.name not in hidden]


# Arguments and flags that several commands share.

PickleFlag = PickleOption


@flags
class NotesFlags:
    """The flags of every command."""

    quiet: bool = False
    """``--quiet``: Show only results and errors."""
    verbose: bool = False
    """``--verbose``: Also show what tidybert decides by itself, and why."""

    def prepare(self) -> None:
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose contradict each other; give one of them")
        choose_notes(quiet=self.quiet, verbose=self.verbose)


@flags
class ModelArgument:
    model: str
    """``MODEL``: A name that tidybert models lists, or a directory."""


@flags
class FileArgument:
    file: str = "-"
    """``FILE``: Texts; - reads standard input."""


@flags
class JsonFlag:
    json: bool = option(False, recorded=False)
    """``--json``: Print one JSON object."""


@flags
class ThreadsFlag:
    PANEL: ClassVar = "Device"

    threads: int | None = option(None, at_least=1)
    """``--threads N``: Threads that compute on a CPU. If not set: one for each core."""

    def prepare(self) -> None:
        if self.threads is not None:
            use_threads(self.threads)


@flags
class DeviceFlag(ThreadsFlag, DeviceOption):
    pass


@flags
class ExamplesFlags(RowsOption, PickleOption, DeviceFlag):
    pass


@flags
class AnswerFlags(AnswerOptions, DeviceFlag):
    def prepare(self) -> None:
        super().prepare()
        if self.precision == "bfloat16":
            from tidybert.inference.loading import choose_device
            from tidybert.training.precision import note_slow_bfloat16

            note_slow_bfloat16(choose_device(self.device), True, SHELL)


@flags
class ClusterFlags(Options):
    PANEL: ClassVar = "Cluster"

    cluster: str | None = None
    """``--cluster ADDRESS``: Work on a Ray cluster; local starts one here. FILE may be a folder or
    a pattern, and --out is a folder."""
    cluster_workers: int | None = option(None, at_least=1, needs="cluster")
    """``--cluster-workers N``: Processes that work on a cluster. If not set: one for each CPU, or
    each GPU where they use one."""
    on_error: str = option("stop", needs="cluster")
    """``--on-error stop|continue``: On a cluster, stop at a file that fails, or do the other files
    first."""


@contextmanager
def new_directory(out: Path) -> Iterator[None]:
    """Within the block this process alone writes ``out``; UsageError if something is there."""
    with output_lock(out):
        if os.path.lexists(out):
            raise UsageError(f"--out {out} is there already; name a new directory")
        yield
