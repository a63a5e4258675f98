from collections.abc import Iterator
from pathlib import Path

import pytest

from tidybert.cluster.input_files import input_files
from tidybert.errors import DataError, UsageError
from tidybert.files.text_files import SUFFIXES
from tidybert.storage.remote_files import RemoteFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.jsonl", "2026/c.parquet", "2026/d.txt.gz", ".hidden/e.csv", ".f.csv"):
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path / "texts"


def names(given: Path | str) -> list[str]:
    return [file.name for file in input_files(str(given), SUFFIXES)]


def test_a_folder_is_its_files_by_name_without_the_hidden_ones(folder: Path) -> None:
    assert names(folder) == ["2026/c.parquet", "2026/d.txt.gz", "a.jsonl", "b.csv"]


def test_a_pattern_keeps_the_folders_after_its_first_wildcard(folder: Path) -> None:
    assert names(folder / "**" / "*.parquet") == ["2026/c.parquet"]
    assert names(folder / "2026" / "*") == ["c.parquet", "d.txt.gz"]


def test_a_file_is_itself(folder: Path) -> None:
    (found,) = input_files(str(folder / "b.csv"), SUFFIXES)

    assert (found.name, found.num_bytes) == ("b.csv", 1)
    assert Path(found.path).is_absolute()


def test_another_file_in_a_folder_is_refused_by_name(folder: Path) -> None:
    (folder / "notes.docx").write_text("x")

    with pytest.raises(UsageError, match=r"1 file with an unknown suffix, first .*notes\.docx"):
        input_files(str(folder), SUFFIXES)


@pytest.mark.parametrize("given", ["missing", "*.nothing", "empty"])
def test_nothing_to_read_is_an_error(tmp_path: Path, given: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(DataError, match="no"):
        input_files(str(tmp_path / given), SUFFIXES)


@pytest.fixture
def store() -> Iterator[str]:
    """A folder of a store, with a file whose name is hidden among its files."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("b.txt", "2026/c.txt", ".d.txt"):
        memory.pipe(f"/texts/{name}", f"of {name}\n".encode())
    yield "memory://texts"
    memory.rm("/texts", recursive=True)


def test_a_url_is_read_like_a_folder_a_pattern_or_a_file(store: str) -> None:
    assert names(store) == ["2026/c.txt", "b.txt"]
    assert names(f"{store}/*/*.txt") == ["2026/c.txt"]
    (found,) = input_files(f"{store}/b.txt", SUFFIXES)
    assert found.name == "b.txt"
    with found.here() as source:
        assert source.read_text() == "of b.txt\n"
    assert not source.exists()


def test_a_name_of_a_store_that_leads_out_of_its_folder_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = RemoteFile("memory://texts/a/../../b.txt", 1, "", "")
    monkeypatch.setattr("tidybert.cluster.input_files.remote_files", lambda _: [file])

    with pytest.raises(DataError, match="is no plain one"):
        input_files("memory://texts/*/*", SUFFIXES)


def test_a_link_out_of_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("mine")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")

    with pytest.raises(UsageError, match=r"1 link out of the folder, first .*link\.txt"):
        input_files(str(folder), SUFFIXES)
    assert "link.txt" in names(folder / "*.txt")
