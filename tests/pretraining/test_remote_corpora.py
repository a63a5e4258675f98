"""Token shards on another machine: copied once, checked, in a cache of bounded size."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidybert.corpus.corpora import cache_folder, copied_corpus
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import DataError, DiskError, UsageError
from tidybert.storage import own_files as disk_errors
from tidybert.storage import remote_files
from tidybert.system.reporter import SILENT, Reporter

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "PAUSES", ())


@pytest.fixture
def memory(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A store with a corpus, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = fsspec.filesystem("memory")
    store.store.clear()
    for file in corpus.iterdir():
        store.pipe(f"/b/wiki/{file.name}", file.read_bytes())
    yield store
    store.store.clear()


def test_a_run_on_a_url_is_one_on_its_copy(
    small: Callable[..., Any], memory: Any, corpus: Path, tmp_path: Path
) -> None:
    small(tmp_path / "local", max_steps=2)
    result = small(tmp_path / "remote", max_steps=2, data=["memory://b/wiki:2"])

    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("local", "remote")]
    assert weights[0] == weights[1]
    assert result.num_steps == 2
    assert not list(cache_folder().rglob("*.part"))


def test_a_copy_is_made_once_and_goes_on_where_it_stopped(
    memory: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    fetched: list[str] = []
    fetch = remote_files.fetch

    def one_more(url: str, take: Callable[[bytes], None]) -> None:
        if len(fetched) == 5:
            raise DataError(f"{url}: cannot be read: the line is down")
        fetched.append(url)
        fetch(url, take)

    monkeypatch.setattr("tidybert.corpus.corpora.fetch", one_more)
    with pytest.raises(DataError, match="the line is down"):
        copied_corpus("memory://b/wiki/", 1.0, Reporter(note=notes.append))
    first = [*fetched]
    monkeypatch.setattr("tidybert.corpus.corpora.fetch", fetch)
    monkeypatch.setattr(memory, "open", memory.open)
    directory = copied_corpus("memory://b/wiki", 1.0, Reporter(note=notes.append))

    assert len(first) == 5
    assert directory.name == "wiki"
    for file in corpus.glob("*-0*"):
        assert (directory / file.name).read_bytes() == file.read_bytes()
    TokenCorpus(directory).verify()
    TokenCorpus(directory, "held-out").verify()
    notes.clear()
    assert copied_corpus("memory://b/wiki", 1.0, Reporter(note=notes.append)) == directory
    assert notes == []


def test_another_corpus_in_its_place_is_copied_again(memory: Any, corpus: Path) -> None:
    directory = copied_corpus("memory://b/wiki", 1.0, SILENT)
    text = (corpus / "corpus.json").read_text()
    memory.pipe("/b/wiki/corpus.json", text.replace('"duplicates": 0', '"duplicates": 1').encode())

    notes: list[str] = []
    assert copied_corpus("memory://b/wiki", 1.0, Reporter(note=notes.append)) == directory
    assert any("copying memory://b/wiki" in line for line in notes)


def test_the_copies_used_longest_ago_make_room(memory: Any, corpus: Path) -> None:
    for file in corpus.iterdir():
        memory.pipe(f"/b/books/{file.name}", file.read_bytes())
    old = copied_corpus("memory://b/wiki", 1.0, SILENT)
    size = sum(file.stat().st_size for file in corpus.iterdir())

    new = copied_corpus("memory://b/books", 1.5 * size / 1e9, SILENT)

    assert new.is_dir()
    assert not old.exists()
    with pytest.raises(UsageError, match="cache_gb=1"):
        copied_corpus("memory://b/wiki", 1e-9, SILENT)


def test_faults_are_said_before_the_first_step(
    memory: Any, small: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        DataError, match=r"none/corpus.json: no such file, .*once build-corpus is done"
    ):
        small(tmp_path / "run", data="memory://b/none")
    monkeypatch.setattr(disk_errors, "free_bytes", lambda _path: 10)
    with pytest.raises(DiskError, match="the copy of the corpus"):
        copied_corpus("memory://b/wiki", 1.0, SILENT)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    content = memory.cat("/b/wiki/train-00000.tokens")
    memory.pipe("/b/wiki/train-00000.tokens", content[:-2] + b"\0\0")
    with pytest.raises(DataError, match=r"train-00000.tokens: its sha256 is"):
        copied_corpus("memory://b/wiki", 1.0, SILENT)
    # A damaged copy is not kept for the next time.
    memory.pipe("/b/wiki/train-00000.tokens", content)
    TokenCorpus(copied_corpus("memory://b/wiki", 1.0, SILENT)).verify()
