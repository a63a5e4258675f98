"""The ledger counts as its text says, in a house of two files."""

from pathlib import Path

import pytest
from tests.ledger import House, above

BASE = '''"""A docstring
of two lines."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass
class Options:
    # A comment.
    size: int = 3
    """Its help."""
    PANEL: ClassVar = ""


def grown(size: int, by: int) -> int:
    """Once used."""
    text = """a
    """
    return size + by + len(text)
'''
USE = """from collections.abc import Callable

from tidybert.base import Options, grown

Advance = Callable[[int], None]


def made(size: int, by: int, tell: Callable[[str], None], advance: Advance) -> Options:
    if size < 0:
        raise ValueError(f"this was begun with other {size}")
    return Options(grown(size, by))


def made_of(size: int, by: int, tell: Callable[[str], None]) -> Options:
    return made(size, by=by, tell=tell, advance=print)
"""


@pytest.fixture
def house(tmp_path: Path) -> House:
    package = tmp_path / "src" / "tidybert"
    package.mkdir(parents=True)
    (package / "base.py").write_text(BASE)
    (package / "use.py").write_text(USE)
    return House(tmp_path)


def test_each_line_is_of_one_kind(house: House) -> None:
    kinds = house.sources[0].kinds_of_lines()

    assert dict(kinds) == {
        "docstrings": 4,
        "imports": 2,
        "blanks": 5,
        "comments": 1,
        "declarations": 5,
        "bodies": 3,
    }


def test_helpers_fields_and_parameters(house: House) -> None:
    # made_of is called by nobody, made and grown in one place.
    assert house.single_callers() == 2
    assert house.handed_on() == (4, 9)
    assert house.callbacks() == 3
    assert house.declared("size") == 4


def test_only_a_second_declaration_fails_a_build() -> None:
    before = {"lines": 10, "metric": 4, "head": 6}

    assert above({"lines": 11, "metric": 5, "head": 5, "protocol": 9}, before) == [
        "metric: 5 (the ledger has 4)"
    ]


def test_an_example_that_is_gone_is_named(house: House) -> None:
    with pytest.raises(LookupError, match="src names freeze_embeddings no more"):
        house.mean(house.declared, ("size", "freeze_embeddings"))
    assert house.mean(house.declared, ("size", "by")) == 4
