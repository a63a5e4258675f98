"""Flags made from the dataclasses that hold them: names, types, defaults and help stand once.

``@takes(read=ReadOptions)`` gives a command one flag for each field of ReadOptions, with the text
below the field as its help, and hands the command the built object as ``read``.
"""

import ast
import inspect
import re
import sys
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache, wraps
from typing import Annotated, Any

import typer


def takes(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each keyword parameter named in ``groups`` by the fields of its dataclass."""

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
        option = typer.Option(*names, help=helps[each.name], show_default=each.default is not None)
        parameters.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=Annotated[kind, option],
            )
        )
    return parameters


@cache
def field_helps(group: type) -> dict[str, str]:
    """The text below each field of a dataclass; the field before lends it to one without."""
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
