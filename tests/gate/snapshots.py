"""What a user can see, as text: python tests/gate/snapshots.py [--write].

``help.txt`` has ``--help`` of every command, with what is said of a flag in one place,
``openapi.json`` the document of the server, and ``signatures.txt`` the public names with what they
take and return.  Without ``--write`` it shows what differs from these files, and ends with 1 if
anything does.  A change that is meant is written together with the commit that makes it, and named
in CHANGELOG.md.
"""

import ast
import dataclasses
import difflib
import inspect
import json
import re
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

import tidybert

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
VERSIONS = FOLDER / "versions.json"
WIDTH = 80
LONGEST_LINE = 100
# What writes a part of the snapshots: other versions of them write other texts.
LIBRARIES = ("typer", "fastapi", "pydantic", "scikit-learn")
# Of the names with underscores those that people use, by an operator or a statement.
PROTOCOL = {
    f"__{name}__" for name in ("call", "contains", "enter", "exit", "getitem", "iter", "len")
}


def help_text() -> str:
    """``--help`` of the program, of each command, and of finetune with each task.

    Each page has its words, and the names in its sections.  Below the pages is what they say of
    each argument and flag, once; beside a text that is not that of all pages are those that have
    it.
    """
    from tidybert.cli.main import program
    from tidybert.tasks.registry import task_class, task_names

    command = program()
    pages, said = [], defaultdict[str, dict[str, list[str]]](dict)
    # Another test may have registered a task of its own.
    own = [task for task in task_names() if task_class(task).__module__.startswith("tidybert.")]
    tasks = (["finetune", task] for task in own)
    for words in ([], *([name] for name in command.commands), *tasks):
        with command.make_context("tidybert", [], terminal_width=WIDTH) as context:
            shown = command
            for word in words[:1]:
                shown = command.commands[word]
                context = shown.context_class(shown, context, word)
            if words[1:]:
                context.meta["task"] = words[1]
            # click keeps the help option of whoever asked first, perhaps without the program's -h.
            vars(shown)["_help_option"] = None
            told: dict[str, str] = {}
            formatter = names_only(context.make_formatter(), told)
            shown.format_help(context, formatter)
        pages.append(f"$ tidybert {' '.join([*words, '--help'])}\n{formatter.getvalue()}")
        for name, text in told.items():
            said[name].setdefault(text, []).append(" ".join(words) or "tidybert")
    parts = []
    for name, texts in sorted(said.items()):
        parts.append(name)
        for text, where in texts.items():
            parts.append(indented(text, "    "))
            if len(texts) > 1:
                parts.append(indented(", ".join(where), "      in ", " " * 9))
    return "\n".join([*pages, "What they say:\n", *parts, ""])


def names_only(formatter: Any, said: dict[str, str]) -> Any:
    """A formatter that writes of a list of flags their names alone; ``said`` gets their texts."""
    write_dl = formatter.write_dl

    def names(rows: Sequence[tuple[str, str]], *given: Any, **named: Any) -> None:
        if rows[0][0].islower() and not rows[0][0].startswith("-"):
            # The commands of the program.
            write_dl(rows, *given, **named)
            return
        said.update((name, " ".join(text.split())) for name, text in rows)
        formatter.write(indented(", ".join(name for name, _ in rows), "  ") + "\n")

    formatter.write_dl = names
    return formatter


def indented(text: str, first: str, rest: str | None = None) -> str:
    """A text in lines, which breaks no name."""
    rest = first if rest is None else rest
    return fill(
        text, LONGEST_LINE, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def openapi_text() -> str:
    """The OpenAPI document, without the version of tidybert."""
    from tidybert.server.app import make_app
    from tidybert.server.engine import Engine
    from tidybert.server.settings import ServerSettings

    document = make_app(Engine(ServerSettings(models={}, device="cpu"))).openapi()
    document["info"].pop("version")
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def signatures_text() -> str:
    """The public names with their signatures, and the names that guides and examples import."""
    lines = []
    for module in ("tidybert", "tidybert.modeling", "tidybert.estimators"):
        opened = __import__(module, fromlist=["__all__"])
        # Without a list of its names, a door hands on the classes that it imports.
        classes = [name for name, value in vars(opened).items() if inspect.isclass(value)]
        for name in sorted(getattr(opened, "__all__", classes), key=str.lower):
            value = getattr(opened, name)
            if module != "tidybert" and value is getattr(tidybert, name, None):
                lines.append(f"{module}.{name} is tidybert.{name}")
            elif name != "__version__":
                lines += [*described(f"{module}.{name}", value), ""]
    return "\n".join([*lines, "", "Imported by guides and examples:", *imported_by_guides(), ""])


def described(name: str, value: Any) -> Iterator[str]:
    """A name's signature; below that of a class those of its public members."""
    if not inspect.isclass(value):
        yield folded(f"{name}", value)
        for each in typing.get_overloads(value):
            yield folded("    overload ", each, keys=False)
        return
    theirs = [base.__name__ for base in value.__mro__[1:-1] if not is_ours(base)]
    public = [base for base in theirs if base not in ("ABC", "Generic") and base[0] != "_"]
    yield folded(f"class {name}({', '.join(public)})", value, returns=False)
    for member in sorted(members(value)):
        found = inspect.getattr_static(value, member)
        inside = getattr(found, "__func__", found)
        if isinstance(found, property):
            yield f"    {member}: {returned(found.fget)}"
        elif hasattr(inside, "func") and hasattr(inside, "attrname"):
            yield f"    {member}: {returned(inside.func)}"
        elif callable(inside):
            kind = "def" if inside is found else type(found).__name__
            yield folded(f"    {kind} {member}", inside)
        else:
            yield f"    {member}"
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if not field.init and not field.name.startswith("_"):
                yield f"    {field.name}: {plain(field.type)}"


def is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "tidybert"


def members(value: type) -> set[str]:
    """Public members that classes of tidybert give, not those of torch and scikit-learn."""
    names = {name for base in value.__mro__ if is_ours(base) for name in vars(base)}
    if dataclasses.is_dataclass(value):
        names -= {field.name for field in dataclasses.fields(value)}
    return {name for name in names if name in PROTOCOL or not name.startswith("_")}


def folded(head: str, value: Callable[..., Any], *, returns: bool = True, keys: bool = True) -> str:
    """A signature in a line, or a parameter a line where that would be too long."""
    try:
        found = resolved(inspect.signature(value), value.__module__)
    except ValueError:
        return f"{head}(...)"
    shown = list(parameters(found, keys))
    arrow = returns and found.return_annotation is not found.empty
    tail = f") -> {plain(found.return_annotation)}" if arrow else ")"
    line = f"{head}({', '.join(shown)}{tail}"
    if len(line) <= LONGEST_LINE:
        return line
    indent = " " * (len(head) - len(head.lstrip()))
    between = f"\n{indent}    "
    return f"{head}({between}{between.join(f'{one},' for one in shown)}\n{indent}{tail}"


def resolved(found: inspect.Signature, module: str) -> inspect.Signature:
    """The signature with types in place of their names as strings."""

    def of(kind: Any) -> Any:
        try:
            return eval(kind, names_of(module)) if isinstance(kind, str) else kind
        except NameError:
            # Another library's, which names what it imports in a function.
            return kind

    given = [each.replace(annotation=of(each.annotation)) for each in found.parameters.values()]
    return found.replace(parameters=given, return_annotation=of(found.return_annotation))


@cache
def names_of(module: str) -> dict[str, Any]:
    """What annotations of a module can name: also what it imports for types alone."""
    found = dict(vars(sys.modules[module]))
    for each in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(each.body, []), module, "exec"), found)
    return found


def parameters(found: inspect.Signature, keys: bool) -> Iterator[str]:
    """Each with type and default; ``**options`` of a TypedDict as its keys, if ``keys``."""
    star = False
    # Nobody can tell in which order the parameters are that only a keyword names.
    given = sorted(
        found.parameters.values(),
        key=lambda one: (one.kind, one.name if one.kind is one.KEYWORD_ONLY else ""),
    )
    for each in given:
        if each.kind is each.VAR_KEYWORD and typing.get_origin(each.annotation) is typing.Unpack:
            (options,) = typing.get_args(each.annotation)
            hints = typing.get_type_hints(options) if keys else {}
            yield from (f"{name}: {plain(kind)} = ..." for name, kind in sorted(hints.items()))
            if not keys:
                yield "**options"
            continue
        if each.kind is each.KEYWORD_ONLY and not star:
            yield "*"
        star |= each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {plain(each.annotation)}"
        yield f"{mark}{each.name}{kind}{default(each)}"


def default(each: inspect.Parameter) -> str:
    if each.default is each.empty:
        return ""
    # A function, or an object that holds some: its address is another in each process.
    is_plain = each.default is not ... and " at 0x" not in repr(each.default)
    return f" = {repr(each.default) if is_plain and not callable(each.default) else '...'}"


def returned(function: Any) -> str:
    return plain(inspect.signature(function).return_annotation)


def plain(kind: Any) -> str:
    """A type, spelt alike by all versions of Python, without the modules of its names."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is ... or kind is None or kind is type(None):
        return "..." if kind is ... else "None"
    if isinstance(kind, str) or origin is None:
        text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
        return re.sub(r"\b(?:[A-Za-z_]\w*\.)+", "", text)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(sorted(map(plain, inside), key=lambda one: (one == "None", one)))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, inside))}]"
    if origin is np.ndarray:
        return f"NDArray[{plain(typing.get_args(inside[1])[0])}]"
    named = [
        f"[{', '.join(map(plain, one))}]" if isinstance(one, list) else plain(one) for one in inside
    ]
    return f"{getattr(origin, '__name__', origin)}[{', '.join(named)}]"


def imported_by_guides() -> list[str]:
    """``module name`` of each name that README, docs/ and examples/ import from tidybert."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").iterdir()]
    pattern = re.compile(r"\bfrom (tidybert[\w.]*) import (\([^)]*\)|[\w, ]+)")
    found = set()
    # Python writes a folder of bytecode beside the examples that a test imports.
    for page in filter(Path.is_file, pages):
        # A notebook is JSON, whose lines end with \n as two signs.
        for module, names in pattern.findall(page.read_text(encoding="utf-8").replace("\\n", "\n")):
            found |= {f"{module} {name}" for name in re.findall(r"\w+", names)}
    return sorted(found)


SNAPSHOTS = {
    "help.txt": help_text,
    "openapi.json": openapi_text,
    "signatures.txt": signatures_text,
}


def difference(name: str) -> str:
    """How the code differs from a snapshot, as diff shows it; empty if it does not."""
    before, now = (FOLDER / name).read_text(encoding="utf-8"), SNAPSHOTS[name]()
    lines = (text.splitlines(keepends=True) for text in (before, now))
    return "".join(difflib.unified_diff(*lines, f"{name} in tests/gate", f"{name} of the code"))


def other_libraries() -> str:
    """The libraries of which another version wrote the snapshots, or nothing."""
    before = json.loads(VERSIONS.read_text(encoding="utf-8"))
    return ", ".join(
        f"{name} {before[name]} (here {here})"
        for name, here in versions().items()
        if before[name] != here
    )


def versions() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        for name, build in SNAPSHOTS.items():
            (FOLDER / name).write_text(build(), encoding="utf-8")
        VERSIONS.write_text(json.dumps(versions(), indent=1) + "\n", encoding="utf-8")
        return 0
    found = "".join(difference(name) for name in SNAPSHOTS)
    print(found, end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
