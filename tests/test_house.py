"""The house: imports go down only, names mean one thing, and the core path stays short."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidybert

PACKAGE = Path(tidybert.__file__).parent
TESTS = Path(__file__).parent
FLOORS = (
    {"configuration", "errors", "catalog", "storage", "system"},
    {"modeling", "tokenization", "metrics"},
    {"checkpoints", "files"},
    {"data"},
    {"training", "corpus"},
    {"tasks"},
    {"inference"},
    {"reporting"},
    {"finetuning", "pretraining", "checking", "explain"},
    {"page"},
    {"estimators", "timing", "server"},
    {"cli"},
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# These two only hand on names: __init__ looks them up when they are asked for.
DOORS = {"__init__", "__main__"}
# Neither a light command nor a tokenizer pays for these.
HEAVY = ("torch", "sklearn", "pyarrow", "scipy", "transformers")
# One forward pass, from ids to hidden states, is read in these four files.
CORE_PATH = ("embeddings", "attention", "encoder", "bert")
LONGEST_CORE_PATH = 500
LONGEST_FUNCTION = 100
# Folders of tests whose subject is outside the package.
SUBJECTS = {
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


# Modules that write, rename and remove; all others ask them.  standard_streams.py opens the streams
# that the program was given, and timing/ has temporary folders alone.
WRITERS = {"atomic_files.py", "output_lock.py", "standard_streams.py"}
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
        if path.name not in WRITERS and room_of(path) != "timing"
        for line in path.read_text(encoding="utf-8").splitlines()
        if _WRITES.search(line) and "os.devnull" not in line
    }

    assert not found, "write through atomic_files"


def test_a_name_means_one_thing() -> None:
    """No two modules share a name, nor a module and a folder; a command has its module's name."""
    names = Counter(
        path.stem for path in files() if path.stem != "__init__" and not is_command(path)
    )
    folders = {path.name for path in PACKAGE.rglob("*") if (path / "__init__.py").is_file()}

    assert not [name for name, count in names.items() if count > 1]
    assert not names.keys() & folders


def is_command(path: Path) -> bool:
    return room_of(path) == "cli"


def test_tests_mirror_the_house() -> None:
    """The folders of the tests are the rooms of the house."""
    for path in TESTS.rglob("test_*.py"):
        folder = path.relative_to(TESTS).parent
        if folder == Path() or folder.parts[0] in SUBJECTS:
            continue
        assert (PACKAGE / folder).is_dir(), f"{path}: src has no {folder}"


def test_the_core_path_is_short() -> None:
    lines = {
        name: len((PACKAGE / "modeling" / f"{name}.py").read_text(encoding="utf-8").splitlines())
        for name in CORE_PATH
    }

    assert sum(lines.values()) < LONGEST_CORE_PATH, lines


@pytest.mark.parametrize("name", CORE_PATH)
def test_the_core_path_knows_no_device_precision_or_thread(name: str) -> None:
    text = (PACKAGE / "modeling" / f"{name}.py").read_text(encoding="utf-8")

    for branch in ("is_cuda", "device.type", ".dtype ==", "is_autocast", "get_num_threads"):
        assert branch not in text


def test_no_function_is_long() -> None:
    for path in files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= LONGEST_FUNCTION, f"{path}: {node.name} has {length} lines"


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
        ("tidybert.cli.main", HEAVY),
        ("tidybert.catalog", HEAVY),
        ("tidybert.tokenization", HEAVY),
        ("tidybert.metrics", HEAVY),
        ("tidybert.files.text_files", HEAVY),
        ("tidybert.data.splits", HEAVY),
        ("tidybert.data.features", HEAVY),
        ("tidybert.pretraining.instances", HEAVY),
        ("tidybert.corpus.building", HEAVY),
        ("tidybert.finetuning.entrance", ("sklearn", "pyarrow", "transformers")),
    ],
)
def test_importing_a_module_loads_no_heavy_library(module: str, absent: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout.strip() == "[]"
