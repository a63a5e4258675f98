"""The script that mutates the source counts rightly, on a module whose tests are known."""

from pathlib import Path

import pytest
from tests.mutations import mutations, seconds_of, survives

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
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text(SOURCE)
    (tmp_path / "test_toy.py").write_text(TEST)

    found = {
        (one.line, one.was, one.became): survives(
            tmp_path, "toy", "module.py", changed, "test_toy.py", 60
        )
        for one, changed in mutations("module.py", SOURCE)
    }

    assert found == {
        (8, "0", "1"): False,
        # The greatest of equal numbers is the same number.
        (11, "each > found", "each >= found"): True,
        (17, "number * 3", "number / 3"): True,
        (17, "3", "4"): True,
    }
    assert (package / "module.py").read_text() == SOURCE


def test_tests_that_fail_by_themselves_notice_nothing(tmp_path: Path) -> None:
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text(SOURCE.replace(">", "<"))
    (tmp_path / "test_toy.py").write_text(TEST)
    with pytest.raises(SystemExit, match=r"test_toy\.py: these tests fail without a mutation"):
        seconds_of(tmp_path, "toy", "module.py", "test_toy.py")
