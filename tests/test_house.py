"""The house: imports go down only, one room writes, the core path is short, nothing is said twice.

tests/ledger.py counts what a thing costs: files, lines, helpers, fields, places that declare it.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Container
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tests.ledger import LEDGER, House, above

import tidybert

PACKAGE = Path(tidybert.__file__).parent
TESTS = Path(__file__).parent
FLOORS = (
    # The base: the only rooms of one floor that may import each other.
    {"system", "storage", "configuration", "errors", "catalog", "options"},
    {"modeling", "tokenization", "metrics"},
    {"checkpoints", "files"},
    {"data"},
    {"training", "corpus"},
    {"tasks"},
    {"inference", "reporting", "export"},
    {"finetuning", "pretraining", "explain", "search", "unlabelled"},
    {"page", "checking", "estimators", "cluster"},
    {"server"},
    {"cli"},
)
MOST_FLOORS = 12
# Every other module has a room.
ROOT = {"__init__.py", "__main__.py", "errors.py", "catalog.py", "options.py"}
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# These two only hand on names: __init__ looks them up when they are asked for.
DOORS = {"__init__", "__main__"}
# Neither a light command nor a tokenizer pays for these.
HEAVY = ("torch", "sklearn", "pyarrow", "scipy", "transformers")
# One forward pass, from ids to hidden states, is read in these four files.
CORE_PATH = ("embeddings", "attention", "encoder", "bert")
LONGEST_CORE_PATH = 500
# Folders of tests whose subject is outside the package.
SUBJECTS = {
    "gate",
    "benchmarks",
    "docs",
    "faults",
    "fuzz",
    "examples",
    "packaging",
    "resources",
    "device_counts",
}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def modules_imported(path: Path) -> tuple[str, ...]:
    """Absolute names of what a file imports, inside functions too."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they go"
            # "from tidybert import data" imports tidybert.data.
            found += (f"{node.module}.{name.name}" for name in node.names)
    return tuple(found)


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if room_of(path) not in DOORS)


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_every_room_is_known() -> None:
    unknown = {room_of(path) for path in files()} - FLOOR_OF.keys()

    assert not unknown, f"give {unknown} a floor in this test and in docs/architecture.md"


def test_the_house_is_low_and_its_root_is_empty() -> None:
    assert len(FLOORS) <= MOST_FLOORS
    assert {path.name for path in PACKAGE.glob("*.py")} == ROOT


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


def test_no_file_imports_itself_by_way_of_others() -> None:
    paths = {module_of(path): path for path in files()}
    imports = {
        module: {found for name in modules_imported(path) if (found := named_in(name, paths))}
        for module, path in paths.items()
    }

    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def named_in(name: str, modules: Container[str]) -> str | None:
    """The module that an import names: itself, or the one that has a name of this kind."""
    return next((one for one in (name, name.rpartition(".")[0]) if one in modules), None)


# Only storage/ writes, renames and removes.  cli/main.py opens the streams that the program was
# given.
WRITERS = {"storage"}
_WRITES = re.compile(
    r"os\.(replace|rename|remove|unlink|truncate|ftruncate|link|symlink)\("
    r"|\.(rename|unlink|write_text|write_bytes|touch|truncate|symlink_to|tofile)\("
    r"|shutil\.(rmtree|move|copy|copyfile|copytree)\b|\bnp\.save|\bremovedirs\b"
    r"|\.replace\([a-z_]*(path|target|partial|directory|file)\b"
    r"|open\((?:[^()]|\([^()]*\))*[\"'](?:[rwax]b?\+|[wax])[bt+]*[\"']"
    r"|O_(WRONLY|RDWR|CREAT)"
)


def test_one_module_writes() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in files()
        if room_of(path) not in WRITERS and path != PACKAGE / "cli/main.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if _WRITES.search(line) and "os.devnull" not in line
    }

    assert not found, "write through storage/"


# Rooms whose classes answer with a model, and what opens one for them.
ANSWERING = {"inference", "explain", "page", "server", "search", "checking", "estimators"}
OPENING = {
    "ModelDirectory",
    "read_sentence_form",
    "choose_precision",
    "use_bfloat16",
    "use_float32",
    "use_int8",
}


def test_one_class_opens_a_model_to_answer() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {module}"
        for path in files()
        if room_of(path) in ANSWERING and path != PACKAGE / "inference" / "loading.py"
        for module in modules_imported(path)
        if module.rpartition(".")[2] in OPENING
    }

    assert not found, "take an OpenedModel (inference/loading.py)"


def test_tests_mirror_the_house() -> None:
    """The folders of the tests are the rooms of the house."""
    for path in TESTS.rglob("test_*.py"):
        folder = path.relative_to(TESTS).parent
        if folder == Path() or folder.parts[0] in SUBJECTS:
            continue
        assert (PACKAGE / folder).is_dir(), f"{path}: src has no {folder}"


def test_nothing_is_declared_a_second_time() -> None:
    risen = above(
        House(TESTS.parent).declarations(), json.loads(LEDGER.read_text(encoding="utf-8"))
    )

    how = "use the declaration that is there, or say why not in the commit: tests/ledger.py --write"
    assert not risen, how


def test_the_core_path_is_short() -> None:
    lines = {name: lines_of(PACKAGE / "modeling" / f"{name}.py") for name in CORE_PATH}

    assert sum(lines.values()) < LONGEST_CORE_PATH, lines


@pytest.mark.parametrize("name", CORE_PATH)
def test_the_core_path_knows_no_device_precision_or_thread(name: str) -> None:
    text = (PACKAGE / "modeling" / f"{name}.py").read_text(encoding="utf-8")

    for branch in ("is_cuda", "device.type", ".dtype ==", "is_autocast", "get_num_threads"):
        assert branch not in text


@pytest.mark.parametrize(
    "room", ["configuration", "errors", "system", "catalog", "tokenization", "metrics"]
)
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
        ("tidybert.cli.main", (*HEAVY, "numpy")),
        ("tidybert.catalog", HEAVY),
        ("tidybert.tokenization", HEAVY),
        ("tidybert.metrics", HEAVY),
        ("tidybert.files.text_files", HEAVY),
        ("tidybert.data.splits", HEAVY),
        ("tidybert.data.features", HEAVY),
        ("tidybert.pretraining.batches.instances", HEAVY),
        ("tidybert.corpus.building", HEAVY),
        ("tidybert.finetuning.api", HEAVY),
    ],
)
def test_importing_a_module_loads_no_heavy_library(module: str, absent: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout.strip() == "[]"
