"""The house: imports go downward only, and the lower floors do without heavy libraries."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidybert

PACKAGE = Path(tidybert.__file__).parent
FLOORS = (
    {"configuration", "errors", "catalog", "atomic_files", "model_files", "json_objects"},
    {"modeling", "tokenization", "metrics"},
    {"checkpoints", "files"},
    {"data"},
    {"training", "corpus"},
    {"tasks"},
    {"inference"},
    {"finetuning", "pretraining"},
    {"estimators", "timing", "reporting", "server"},
    {"cli"},
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# These two only hand on names: __init__ looks them up when they are asked for.
DOORS = {"__init__", "__main__"}
# Neither a light command nor a tokenizer pays for these.
HEAVY = ("torch", "sklearn", "pyarrow", "scipy", "transformers")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules_imported(path: Path) -> Iterator[str]:
    """Absolute names of what a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they go"
            # "from tidybert import data" imports tidybert.data.
            yield from (f"{node.module}.{name.name}" for name in node.names)


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if room_of(path) not in DOORS)


def test_every_room_is_known() -> None:
    unknown = {room_of(path) for path in files()} - FLOOR_OF.keys()

    assert not unknown, f"give {unknown} a floor in this test and in docs/architecture.md"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    room = room_of(path)
    for module in modules_imported(path):
        package, _, rest = module.partition(".")
        if package != "tidybert" or rest == "__version__":
            continue
        other = rest.partition(".")[0]
        assert other in FLOOR_OF, f"{path}: imports {module}"
        down = FLOOR_OF[other] < FLOOR_OF[room] or FLOOR_OF[other] == FLOOR_OF[room] == 0
        assert other == room or down, f"{path}: {room} must not import {module}"


@pytest.mark.parametrize("room", ["configuration", "errors", "catalog", "tokenization", "metrics"])
def test_the_light_rooms_name_no_heavy_library(room: str) -> None:
    paths = [path for path in files() if room_of(path) == room]
    assert paths
    for path in paths:
        for module in modules_imported(path):
            assert module.partition(".")[0] not in HEAVY, f"{path}: imports {module}"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tidybert", HEAVY),
        ("tidybert.cli.main", HEAVY),
        ("tidybert.catalog", HEAVY),
        ("tidybert.tokenization", HEAVY),
        ("tidybert.metrics", HEAVY),
        ("tidybert.files.text_files", HEAVY),
        ("tidybert.data.checks", HEAVY),
        ("tidybert.data.splits", HEAVY),
        ("tidybert.data.features", HEAVY),
        ("tidybert.pretraining.instances", HEAVY),
        ("tidybert.corpus.building", HEAVY),
        ("tidybert.finetuning", ("sklearn", "pyarrow", "transformers")),
    ],
)
def test_importing_a_module_loads_no_heavy_library(module: str, absent: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout.strip() == "[]"
