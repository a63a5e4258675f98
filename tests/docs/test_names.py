"""No guide names a command that is gone, or a flag that no command has."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.docs.test_commands import (
    PAGES,
    ROOT,
    check_requirements,
    flags_of_benchmarks,
)

from tidybert.cli import main as shell

# Of other programs, which a guide says how to call.
FOREIGN_FLAGS = {
    "--no-deps", "--index-url", "--editable", "--nproc-per-node", "--model-id", "--runner",
    "--check", "--strict", "--torch-backend",
}  # fmt: skip
_FLAG = re.compile(r"(?<![\w/.=-])--[a-z][\w-]*")
# A call in code: up to the end of the code, a pipe or a comment.
_CALL = re.compile(r"(?<![\w./-])tidybert ([a-z][\w-]*)([^`|#\n]*)")


@cache
def flags_of_commands() -> dict[str, set[str]]:
    """By command its flags; by "" those of the program."""
    program = shell.program()
    return {
        name: {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
        | {"--help", "--debug"}
        for name, command in [("", program), *program.commands.items()]
    }


def code_of(text: str) -> Iterator[str]:
    """The code of a page: blocks but those of other languages, and code in running text."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language in ("sh", "text"):
            yield block.replace("\\\n", " ")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    # Code may go over the end of a line.
    yield from (each.replace("\n", " ") for each in re.findall(r"`([^`]+)`", prose))


def gone(text: str) -> list[str]:
    """What a page's code names that is not there."""
    known = flags_of_commands()
    anywhere = set.union(*known.values()) | FOREIGN_FLAGS | flags_of_benchmarks()
    found = []
    for code in code_of(text):
        for command, rest in _CALL.findall(code):
            if command not in known:
                found.append(f"tidybert {command}")
                continue
            found += [
                f"tidybert {command} {flag}"
                for flag in _FLAG.findall(rest)
                if flag not in known[command]
            ]
        found += [flag for flag in _FLAG.findall(code) if flag not in anywhere]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_and_flags_of_a_page_are_there(page: Path) -> None:
    assert gone(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `tidybert predict RUN --top-k 3 --json`, or `--top-k`", []),
        ("run `tidybert predict RUN --num-train-epochs 3`", ["predict --num-train-epochs"]),
        ("`tidybert train RUN`", ["train"]),
        ("`--no-such-flag 3`", ["--no-such-flag"]),
        (
            "```sh\necho a | tidybert embed minilm \\\n  --gone | tidybert search I\n```\n",
            ["--gone"],
        ),
        ("```text\ntidybert infer RUN\n```\n", ["infer"]),
        ("```python\nfrom tidybert import gone  # tidybert gone --gone\n```\n", []),
        ("tidybert reads files", []),
    ],
)
def test_a_name_that_is_gone_is_found(text: str, expected: list[str]) -> None:
    found = gone(text)
    assert len(expected) <= len(found)
    assert all(any(each in one for one in found) for each in expected)
    assert bool(found) == bool(expected)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_and_pip_are_called_with_what_there_is(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for code in code_of(page.read_text(encoding="utf-8")):
        words = code.split()
        if words[0] == "make" and len(words) == 2:
            assert f"{words[1]}:" in makefile, code
        if code.startswith("pip install "):
            check_requirements(shlex.split(code, comments=True)[2:])
