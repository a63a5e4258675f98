"""The wheel and the sdist: the same bytes each time, all that the package needs, and it runs."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = """
import sys
from setuptools import build_meta
out = sys.argv.pop(1)
for kind in sys.argv[1:]:
    getattr(build_meta, f"build_{kind}")(out)
"""


def build(folder: Path, *kinds: str) -> list[Path]:
    """Of a copy of the sources a wheel, an sdist, or both."""
    source, out = folder / "source", folder / "out"
    out.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source / name)
    found = subprocess.run(
        [sys.executable, "-c", BUILD, out, *kinds],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    # The sdist's suffix comes first.
    return sorted(out.iterdir(), key=lambda path: path.suffix)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = build(tmp_path_factory.mktemp("built"), "wheel")
    return built


def test_the_wheel_has_the_same_bytes_each_time(wheel: Path, tmp_path: Path) -> None:
    sdist, again = build(tmp_path, "wheel", "sdist")

    assert again.read_bytes() == wheel.read_bytes()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/tidybert/cli/main.py"} <= names


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src"
    ours = {
        path.relative_to(package).as_posix()
        for path in (package / "tidybert").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("tidybert/")}
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "tidybert = tidybert.__main__:main" in archive.read(entry).decode()

    assert names == ours


def test_the_unpacked_wheel_trains_and_answers_outside_the_repository(
    wheel: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def tidybert(*words: str) -> str:
        found = subprocess.run(
            [sys.executable, "-m", "tidybert", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"good {n},yes\nbad {n},no\n" for n in range(20))
    )
    tidybert("finetune", "classify", "tidybert-small", "--train", "t.csv", "--out", "run",
             "--max-steps", "2")  # fmt: skip
    answer = tidybert("predict", "run", "--input", "good 3")

    assert '"label"' in answer
    code = "import tidybert; print(tidybert.__file__)"
    where = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                           text=True, check=True, cwd=tmp_path).stdout  # fmt: skip
    assert where.startswith(str(tmp_path / "site"))
