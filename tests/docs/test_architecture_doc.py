"""docs/architecture.md: its floors, the files of its journeys and its picture are up to date."""

import re
import runpy
from itertools import pairwise
from pathlib import Path

import pytest
from tests.test_house import FLOOR_OF, FLOORS

import tidybert

DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = Path(tidybert.__file__).parent
TEXT = (DOCS / "architecture.md").read_text(encoding="utf-8")
HOUSE = runpy.run_path(str(DOCS / "house.py"))
JOURNEYS = HOUSE["journeys"](TEXT)
# A page names files of the package without its folder.
ROOTS = (PACKAGE, DOCS.parent)


def test_the_floors_are_those_of_the_house() -> None:
    assert [set(rooms) for rooms in HOUSE["floors"](TEXT).values()] == list(reversed(FLOORS))


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_journey_is_short_and_seldom_climbs_back(journey: str) -> None:
    files = JOURNEYS[journey]
    floors = [FLOOR_OF[path.partition("/")[0]] for path in files]

    assert len(JOURNEYS) == 3
    assert [path for path in files if not (PACKAGE / path).is_file()] == []
    assert len(files) == len(set(files)) <= 12
    assert sum(up > down for down, up in pairwise(floors)) <= 2


def test_the_picture_is_drawn_from_the_page() -> None:
    drawn = (DOCS / "house.svg").read_text(encoding="utf-8")
    assert drawn == HOUSE["house"](TEXT), "python docs/house.py draws it"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    named = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", text)))

    assert len(named) > 5
    assert [path for path in named if not any((root / path).is_file() for root in ROOTS)] == []
