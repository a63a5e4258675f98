"""The script that mutates the source counts rightly, on a module whose tests are known."""

import subprocess
import sys
from ast import literal_eval
from pathlib import Path

from tests.mutations import ROOT, Coverage, Mutation, passes

SOURCE = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def largest(numbers: "Sequence[int]", at_least: int = 0) -> int:
    found = at_least
    for each in numbers:
        if each > found:
            found = each
    return found


def untested(number: int) -> int:
    return number * 3
"""
TEST = """
from toy import module

def test_it():
    assert module.largest([1, 3, 2]) == 3
    assert module.largest([]) == 0
"""


def test_mutations_that_a_test_notices_and_others(tmp_path: Path) -> None:
    module = tmp_path / "src/toy/module.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").write_text("")
    module.write_text(SOURCE)
    (tmp_path / "test_toy.py").write_text(TEST)

    assert dict(tried(tmp_path, module)) == {
        (8, "0", "1"): False,
        # The greatest of equal numbers is the same number.
        (11, "each > found", "each >= found"): True,
        (17, "number * 3", "number / 3"): True,
        (17, "3", "4"): True,
    }
    assert module.read_text() == SOURCE


def tried(checkout: Path, module: Path) -> list[tuple[tuple[int, str, str], bool]]:
    """Each mutation, and whether it survives; a process of its own forks best."""
    code = (
        "import sys; from pathlib import Path; from tests.mutations import mutations, survives\n"
        "folder, module = map(Path, sys.argv[1:])\n"
        "print([((one.line, one.was, one.became),"
        " survives(folder, module, changed, ['test_toy.py'], 60))"
        " for one, changed in mutations('module.py', module.read_text())])"
    )
    command = [sys.executable, "-c", code, str(checkout), str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: list[tuple[tuple[int, str, str], bool]] = literal_eval(done.stdout)
    return found


def test_tests_that_hang_notice(tmp_path: Path) -> None:
    (tmp_path / "test_toy.py").write_text("import time\ndef test_it(): time.sleep(60)\n")
    assert not passes(tmp_path, ["test_toy.py"], 1.0)


def test_the_tests_of_a_mutation_are_its_own_first_and_those_of_its_line() -> None:
    own, line, other = (
        "tests/data/test_module.py::a",
        "tests/cli/test_b.py::b",
        "tests/data/c.py::c",
    )
    coverage = Coverage({"data/module.py:3": [line]}, {own: 5.0, line: 0.1, other: 0.1})

    assert coverage.chosen(Mutation("data/module.py", 3, "", "")) == ([own, line], 5.1)
    assert coverage.chosen(Mutation("data/else.py", 1, "", "")) == ([other, own], 5.1)
