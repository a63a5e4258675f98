"""The two distributions: each file is in one of them, and either can come and go."""

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEIGHTS = "tidybert/resources/tidybert-small/"
BUILD = """
import importlib, sys
backend, out, *kinds = sys.argv[1:]
sys.path.insert(0, "packaging")
for kind in kinds:
    getattr(importlib.import_module(backend), f"build_{kind}")(out)
"""
WHOLE, LIGHT = "whole", "setuptools.build_meta"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def run(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(each) for each in words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def build(source: Path, out: Path, backend: str, *kinds: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    words = (sys.executable, "-c", BUILD, backend, out, *kinds)
    run(*words, cwd=source, SOURCE_DATE_EPOCH="1700000000")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built."""
    source = tmp_path_factory.mktemp("built") / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("src", "packaging"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE"):
        shutil.copy2(ROOT / name, source / name)
    return source


@pytest.fixture(scope="module")
def wheels(source: Path) -> dict[str, Path]:
    """The wheel of each distribution."""
    out = source.parent / "out"
    build(source / "packaging" / "light", out, LIGHT, "wheel")
    build(source, out, WHOLE, "wheel")
    return {path.name.partition("-")[0]: path for path in out.glob("*.whl")}


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def about(wheel: Path, file: str = "METADATA") -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(f".dist-info/{file}"))
        return archive.read(name).decode()


def requirements(wheel: Path) -> list[str]:
    return email.message_from_string(about(wheel)).get_all("Requires-Dist", [])


def test_each_file_is_in_one_distribution(wheels: dict[str, Path]) -> None:
    package = ROOT / "src"
    ours = {
        path.relative_to(package).as_posix()
        for path in (package / "tidybert").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    light, whole = (names_in(wheels[name]) for name in ("tidybert_light", "tidybert"))

    assert len(ours) == len([*light, *whole])
    assert {*light, *whole} == ours
    assert {name for name in ours if name.startswith(WEIGHTS)} == {*whole}
    assert "tidybert = tidybert.__main__:main" in about(
        wheels["tidybert_light"], "entry_points.txt"
    )
    with pytest.raises(ValueError, match="not enough values"):
        about(wheels["tidybert"], "entry_points.txt")


def test_what_each_requires(wheels: dict[str, Path], source: Path) -> None:
    light, whole = (requirements(wheels[name]) for name in ("tidybert_light", "tidybert"))

    # Of a checkout: the folder, so no index needs to have it.
    assert f"tidybert-light @ {(source / 'packaging' / 'light').as_uri()}" in whole
    assert 'tidybert-light[server]; extra == "server"' in whole
    assert not any(each.startswith("torch") for each in light)
    assert any(each.startswith("torch") for each in whole)
    (own,) = (email.message_from_string(about(each))["Version"] for each in [wheels["tidybert"]])
    assert own == email.message_from_string(about(wheels["tidybert_light"]))["Version"] == VERSION


def test_a_release_requires_its_own_version(source: Path, tmp_path: Path) -> None:
    """The sdist has the weights and no modules; its wheel asks an index for tidybert-light."""
    build(source, tmp_path / "out", WHOLE, "sdist")
    (archive,) = (tmp_path / "out").glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("tidybert-*")

    build(unpacked, tmp_path / "wheel", WHOLE, "wheel")

    (wheel,) = (tmp_path / "wheel").iterdir()
    assert f"tidybert-light=={VERSION}" in requirements(wheel)
    assert all(name.startswith(WEIGHTS) for name in names_in(wheel))


def test_the_wheel_has_the_same_bytes_each_time(
    wheels: dict[str, Path], source: Path, tmp_path: Path
) -> None:
    build(source / "packaging" / "light", tmp_path, LIGHT, "wheel")

    (again,) = tmp_path.iterdir()
    assert again.read_bytes() == wheels["tidybert_light"].read_bytes()


Pip = Callable[..., str]


@pytest.fixture
def pip(tmp_path: Path) -> Pip:
    """pip in a new environment, which finds the packages of this one after its own."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    own = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
    others = Path(own) / "others.pth"

    def call(*words: object) -> str:
        # pip must not take what lies there for installed.
        others.unlink(missing_ok=True)
        python = ("--python", place / "bin" / "python")
        offline = ("--disable-pip-version-check", "--no-input")
        done = run(sys.executable, "-m", "pip", *python, *offline, *words, cwd=tmp_path)
        others.write_text(sysconfig.get_path("purelib") + "\n")
        return done.stdout

    return call


def command(tmp_path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return run(tmp_path / "venv" / "bin" / "tidybert", *words, cwd=tmp_path, PYTHONPATH="")


def test_the_whole_comes_and_goes_over_the_light_one(
    wheels: dict[str, Path], pip: Pip, tmp_path: Path
) -> None:
    own = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))
    pip("install", "--no-index", "--no-deps", wheels["tidybert_light"])
    assert not (own / WEIGHTS).exists()
    assert command(tmp_path, "--version").stdout == f"tidybert {VERSION}\n"

    pip("install", "--no-index", "--no-deps", wheels["tidybert"])
    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"good {n},yes\nbad {n},no\n" for n in range(20))
    )
    command(
        tmp_path, "finetune", "classify", "tidybert-small", "--train", "t.csv", "--out", "run",
        "--max-steps", "2",
    )  # fmt: skip
    assert '"label"' in command(tmp_path, "predict", "run", "--input", "good 3").stdout

    pip("uninstall", "--yes", "tidybert")
    assert not (own / WEIGHTS).exists()
    assert '"label"' in command(tmp_path, "predict", "run", "--input", "good 3").stdout


def test_versions_that_differ_say_so(wheels: dict[str, Path], pip: Pip, tmp_path: Path) -> None:
    other = tmp_path / wheels["tidybert"].name.replace(VERSION, "9.9.9")
    with zipfile.ZipFile(wheels["tidybert"]) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            if not name.startswith(WEIGHTS):
                content = old.read(name).replace(f"Version: {VERSION}".encode(), b"Version: 9.9.9")
                new.writestr(name.replace(f"-{VERSION}.", "-9.9.9."), content)
    # The other order.
    for wheel in (other, wheels["tidybert_light"]):
        pip("install", "--no-index", "--no-deps", wheel)

    done = command(tmp_path, "--version")

    assert done.stdout == f"tidybert {VERSION}\n"
    assert f"tidybert 9.9.9 is installed with tidybert-light {VERSION}" in done.stderr
