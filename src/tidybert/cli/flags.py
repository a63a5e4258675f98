"""Flags made from the dataclasses that hold them, and ``--help`` that shows them in panels.

``@takes(read=ReadOptions)`` gives a command one flag for each field of ReadOptions, with the text
below the field as its help, and hands the command the built object as ``read``.  A text may begin
with the flag and its metavar, as in ``--train FILE``; without them a flag has its field's name.

A dataclass names the panel of its flags in ``PANEL``, and fields of other panels in ``PANELS``.
"""

import ast
import inspect
import re
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import cache, wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from tidybert.cli.shared_flags import NotesFlags
from tidybert.errors import UsageError

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
        return run

    return decorate


def _parameters(group: type) -> list[inspect.Parameter]:
    types = typing.get_type_hints(group)
    of_name = {each.name: each for each in fields(group)}
    parameters = []
    # A class's own flags first, then those that it shares with other commands.
    for owner in group.__mro__:
        for name, text in _texts(owner).items():
            if (each := of_name.pop(name, None)) is None:
                continue
            # A column's name or number, or a path, comes from the shell as text either way.
            is_text = types[name] in (str | int | None, str | Path | None)
            kind = str | None if is_text else types[name]
            flag, metavar = _declared(text) or (_default_flag(name, kind), None)
            if kind in (Path, Path | None):
                _PATH_FLAGS.add(flag)
            option = typer.Option(
                flag,
                help=_plain(text),
                metavar=metavar,
                min=each.metadata.get("min"),
                max=each.metadata.get("max"),
                show_default=each.default is not None,
                rich_help_panel=panel_of(owner, name),
                callback=each.metadata.get("callback"),
                is_eager="callback" in each.metadata,
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


def panel_of(owner: type, field: str) -> str | None:
    """The section of the help that shows the flag of a class's field; None: the last one."""
    others: dict[str, tuple[str, ...]] = getattr(owner, "PANELS", {})
    found = [title for title, names in others.items() if field in names]
    return found[0] if found else getattr(owner, "PANEL", None)


def field_helps(group: type) -> dict[str, str]:
    """The help of each field of a dataclass."""
    return {
        name: _plain(text)
        for base in reversed(group.__mro__)
        for name, text in _texts(base).items()
    }


@cache
def _texts(group: type) -> dict[str, str]:
    """The text below each field of a class; fields without one share that of the next field."""
    texts: dict[str, str] = {}
    waiting: list[str] = []
    if not inspect.get_annotations(group):
        # A class without fields of its own may have been made by a program.
        return texts
    for statement in _statements(group):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            waiting.append(statement.target.id)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            text = " ".join(str(statement.value.value).split())
            texts.update(dict.fromkeys(waiting, text))
            waiting = []
    return texts


def _statements(group: type) -> list[ast.stmt]:
    """The statements of a class's body."""
    found: list[ast.stmt] = _parsed(group.__module__).body
    for name in group.__qualname__.replace(".<locals>", "").split("."):
        found = next(
            each.body
            for each in found
            if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name
        )
    return found


@cache
def _parsed(module: str) -> ast.Module:
    # inspect.getsource of a class goes through the whole module each time, which is slow.
    return ast.parse(inspect.getsource(sys.modules[module]))


def _declared(text: str) -> tuple[str, str | None] | None:
    """The flag and the metavar that a text begins with: ``--train FILE``."""
    found = re.match(r"``(--[^ `]+) ?([^`]*)``: ", text)
    return (found[1], found[2] or None) if found else None


def _plain(text: str) -> str:
    """Without the flag's name and marks of code; code that begins it keeps its small letter."""
    text = re.sub(r"^``--[^`]*``: ", "", text)
    return (text[:1].upper() + text[1:]).replace("``", "")
