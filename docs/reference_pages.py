"""The reference of the site, made from the declarations when it is built: for site_pages.py.

Each page is Markdown by its name on the site.  Commands and flags come from the program, Python's
names from the public modules, metrics and answers from the tasks, limits and keys of files from the
classes that have them, routes from the server's OpenAPI document.  Nothing of it is committed.
"""

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final

from reference_commands import command_page, commands, flags, flags_page, program_page
from reference_tables import answers_page, files_page, metrics_page, routes_page
from reference_text import ROOT, paragraphs, plain

FOLDER: Final = "reference"
PUBLIC_MODULES: Final = (
    "tidybert",
    "tidybert.modeling",
    "tidybert.inference",
    "tidybert.estimators",
    "tidybert.metrics",
    "tidybert.explain",
)
"""Modules whose names are public; what a guide or an example imports is public too."""


def pages() -> dict[str, str]:
    """The Markdown of each page by its name, such as reference/commands/predict.md."""
    made = {
        "index": index_page(),
        "flags": flags_page(),
        "metrics": metrics_page(),
        "answers": answers_page(),
        "files": files_page(),
        "routes": routes_page(),
        "commands/tidybert": program_page(),
        **{f"commands/{name}": command_page(name) for name in commands()},
        **{f"python/{room}": python_page(room) for room in python_names()},
    }
    return {f"{FOLDER}/{name}.md": text for name, text in made.items()}


def nav() -> list[Any]:
    """The part of the site's navigation that leads to these pages."""
    python = [{room: f"{FOLDER}/python/{room}.md"} for room in python_names()]
    shell = [{name: f"{FOLDER}/commands/{name}.md"} for name in ("tidybert", *commands())]
    return [
        f"{FOLDER}/index.md",
        {"Commands": shell},
        {"Flags, A to Z": f"{FOLDER}/flags.md"},
        {"Python": python},
        {"Answers": f"{FOLDER}/answers.md"},
        {"Metrics": f"{FOLDER}/metrics.md"},
        {"Files": f"{FOLDER}/files.md"},
        {"HTTP routes": f"{FOLDER}/routes.md"},
    ]


def index_page() -> str:
    """What is where."""
    rooms = ", ".join(f"[{room}](python/{room}.md)" for room in python_names())
    text = """
        # Reference

        These pages are made from the code when the site is built, so they have every flag and every
        public name. The guides say what to do with them.

        - [Commands](commands/tidybert.md), each with its flags, and all [flags from A to
          Z](flags.md). `tidybert COMMAND --help` shows the same in a terminal.
        - Names that Python programs import, by subject: ROOMS.
        - What an [answer](answers.md) contains, and what each [metric](metrics.md) means.
        - [Files](files.md): formats that tidybert reads, keys of what it writes, and limits.
        - [Routes](routes.md) of `tidybert serve`.
        """
    return inspect.cleandoc(text).replace("ROOMS", rooms)


def page_of(shown: str) -> str | None:
    """The page's address for code in a guide: `--text`, `tidybert predict`, `tidybert.finetune`."""
    if found := re.fullmatch(r"(--[a-z][\w-]*)( \S+)?", shown):
        return f"flags.html#{found[1]}" if found[1] in flags() else None
    if (found := re.match(r"tidybert ([a-z-]+)(?: |$)", shown)) and found[1] in commands():
        return f"commands/{found[1]}.html"
    name = shown.removesuffix("(…)")
    for room, paths in python_names().items():
        for path in paths:
            # A class may stand without its module; `predict` is a command too.
            if name == path or (name[:1].isupper() and name == path.rpartition(".")[2]):
                return f"python/{room}.html#{path}"
    return None


# Python


@cache
def python_names() -> dict[str, list[str]]:
    """The public names by the room that they are from, each under the path to import it by."""
    found: dict[str, list[str]] = {}
    known: set[int] = set()
    paths = [(module, name) for module in PUBLIC_MODULES for name in names_of(module)]
    for module, name in [*paths, *imported_by_guides()]:
        value = getattr(import_module(module), name)
        if name == "__version__" or id(value) in known or inspect.ismodule(value):
            continue
        known.add(id(value))
        room = value.__module__.split(".")[1] if hasattr(value, "__module__") else module
        found.setdefault(room, []).append(f"{module}.{name}")
    return dict(sorted(found.items()))


def names_of(module: str) -> list[str]:
    """A module's public names: ``__all__``, or else what it imports under its name."""
    found = import_module(module)
    names = (each for each in vars(found) if each[0] != "_")
    shown = [each for each in names if not inspect.ismodule(getattr(found, each))]
    return getattr(found, "__all__", shown)


def imported_by_guides() -> Iterator[tuple[str, str]]:
    """Module and name of what the guides and the examples import from tidybert's rooms."""
    guides, examples = (ROOT / "docs").glob("*.md"), (ROOT / "examples").glob("*.py")
    for path in sorted([ROOT / "README.md", *guides, *examples]):
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"^from (tidybert\.[\w.]+) import ([\w, ]+)$", text, re.MULTILINE):
            for name in found[2].split(","):
                yield found[1], name.strip()


def python_page(room: str) -> str:
    """The names of a room, in full."""
    text = paragraphs(import_module(f"tidybert.{room}").__doc__ or "")[0]
    lines = [f"# Python: {room}", "", plain(text), ""]
    for path in python_names()[room]:
        module, _, name = path.rpartition(".")
        value = getattr(import_module(module), name)
        # Where the name is defined: some rooms import theirs when they are asked for.
        where = f"{value.__module__}.{name}"
        lines += [f'<a id="{path}"></a>', "", f"::: {where}", "    options:"]
        lines += [f"      heading: {path}", f"      toc_label: {name}", ""]
    return "\n".join(lines)
