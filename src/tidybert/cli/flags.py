"""Flags made from the dataclasses that hold them, and ``--help`` that shows them in panels.

``@takes(read=ReadOptions)`` gives a command one flag for each field of ReadOptions, with the text
below the field as its help, and hands the command the built object as ``read``.

A dataclass names the panel of its flags in ``PANEL``, and fields of other panels in ``PANELS``.
"""

import ast
import inspect
import re
import sys
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache, wraps
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

PANELS: Final = (
    "Arguments",
    "Most used",
    "Data",
    "Task",
    "Training",
    "Checkpoints",
    "Device",
    "Other options",
)
"""The sections of a command's help, in their order."""


class PanelCommand(TyperCommand):
    """A command whose help lists its flags in PANELS, as plain text: rich would make it slow."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel that has a flag."""
        first = getattr(self.callback, "first_flags", ())
        panels: dict[str, dict[str, tuple[str, str]]] = {title: {} for title in PANELS}
        for each in self.get_params(ctx):
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
        panels["Most used"] = {name: used[name] for name in first}
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(list(records.values()))


def takes(*first: str, **groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each keyword parameter named in ``groups`` by the fields of its dataclass.

    ``first`` are the parameters that most people need: PanelCommand shows them first.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [each for name, each in signature.parameters.items() if name not in groups]
        flags = {name: _parameters(group) for name, group in groups.items()}

        @wraps(command)
        def run(**given: Any) -> None:
            built = {
                name: group(**{each.name: given.pop(each.name) for each in flags[name]})
                for name, group in groups.items()
            }
            command(**given, **built)

        made = [each for parameters in flags.values() for each in parameters]
        run.__signature__ = signature.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in [*own, *made]}
        run.first_flags = first  # type: ignore[attr-defined]
        return run

    return decorate


def _parameters(group: type) -> list[inspect.Parameter]:
    types = typing.get_type_hints(group)
    helps = field_helps(group)
    parameters = []
    for each in fields(group):
        # A column's name or number comes from the shell as text either way.
        kind = str | None if types[each.name] == (str | int | None) else types[each.name]
        flag = "--" + each.name.replace("_", "-")
        names = [f"{flag}/--no-{flag[2:]}"] if kind in (bool, bool | None) else [flag]
        option = typer.Option(
            *names,
            help=helps[each.name],
            show_default=each.default is not None,
            rich_help_panel=panel_of(group, each.name),
        )
        parameters.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=Annotated[kind, option],
            )
        )
    return parameters


def panel_of(group: type, field: str) -> str | None:
    """The section of the help that shows a field's flag; None: the last one."""
    others: dict[str, tuple[str, ...]] = getattr(group, "PANELS", {})
    found = [title for title, names in others.items() if field in names]
    return found[0] if found else getattr(group, "PANEL", None)


@cache
def field_helps(group: type) -> dict[str, str]:
    """The text below each field of a dataclass; the field before lends it to one without."""
    helps: dict[str, str] = {}
    for base in reversed(group.__mro__):
        # A class without fields of its own may have been made by a program.
        if "__annotations__" in vars(base):
            helps |= _own_helps(base)
    return helps


def _own_helps(group: type) -> dict[str, str]:
    helps: dict[str, str] = {}
    waiting: list[str] = []
    for statement in _statements(group):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            waiting.append(statement.target.id)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            text = _plain(str(statement.value.value))
            helps.update(dict.fromkeys(waiting, text))
            waiting = []
    return helps


def _statements(group: type) -> list[ast.stmt]:
    """Those of the class, as its module has them."""
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


def _plain(text: str) -> str:
    """Without the flag's name and marks of code; code that begins it keeps its small letter."""
    text = re.sub(r"^``--[^`]*``: ", "", " ".join(text.split()))
    return (text[:1].upper() + text[1:]).replace("``", "")
