"""The classes that options make, for type checkers: python tests/stubs.py [--write].

A type checker reads no class that a program makes.  So each of MODULES has a .pyi file beside it,
which is written from the options: their types, their defaults and, for editors, their help.
"""

import dataclasses
import sys
import types
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import tidybert
from tidybert.options import python_helps

ROOT = Path(tidybert.__file__).parents[1]
MODULES = (
    "tidybert.estimators.keywords",
    "tidybert.finetuning.keywords",
    "tidybert.inference.keywords",
)
_HEAD = '''"""Written by python tests/stubs.py --write, from the options of {module}."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict
'''


def stub(module: str) -> str:
    """The text of the .pyi file beside a module."""
    made = [
        each
        for each in vars(import_module(module)).values()
        if isinstance(each, type) and "_option_groups" in vars(each)
    ]
    text = "\n".join(line for each in made for line in lines(each))
    used = [
        line
        for line in _HEAD.format(module=module).splitlines()
        if not line.startswith("from") or imported(line, text)
    ]
    return "\n".join([imported(line, text) or line for line in used]) + "\n" + text + "\n"


def imported(line: str, text: str) -> str:
    """An import of a head with the names that a text uses; empty without any."""
    if not line.startswith("from"):
        return ""
    head, _, names = line.partition(" import ")
    used = [name for name in names.split(", ") if name in text]
    return f"{head} import {', '.join(used)}" if used else ""


def lines(made: Any) -> Iterator[str]:
    """A class: each option with its type, its default where it is a field, and its help."""
    texts = python_helps(made)
    yield ""
    if dataclasses.is_dataclass(made):
        yield "@dataclass(eq=False, repr=False, kw_only=True)"
        yield f"class {made.__name__}:"
        found = {
            each.name: (each.type, f" = {each.default!r}") for each in dataclasses.fields(made)
        }
    else:
        yield f"class {made.__name__}(TypedDict, total=False):"
        found = {name: (kind, "") for name, kind in typing.get_type_hints(made).items()}
    for name, (kind, default) in found.items():
        yield f"    {name}: {spelled(kind)}{default}"
        if name in texts:
            yield f"    {texts[name]!r}"


def spelled(kind: Any) -> str:
    """A type in writing."""
    if kind is None or kind is types.NoneType:
        return "None"
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " | ".join(map(spelled, typing.get_args(kind)))
    if typing.get_origin(kind) is typing.Literal:
        return f"Literal[{', '.join(map(repr, typing.get_args(kind)))}]"
    if inside := typing.get_args(kind):
        return f"{typing.get_origin(kind).__name__}[{', '.join(map(spelled, inside))}]"
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")


def path_of(module: str) -> Path:
    return (ROOT / module.replace(".", "/")).with_suffix(".pyi")


def main() -> int:
    changed = [each for each in MODULES if path_of(each).read_text("utf-8") != stub(each)]
    for each in changed:
        if "--write" in sys.argv:
            path_of(each).write_text(stub(each), encoding="utf-8")
        print(f"{'wrote' if '--write' in sys.argv else 'not current:'} {path_of(each)}")
    return int(bool(changed) and "--write" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
