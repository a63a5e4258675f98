"""Parts of a corpus, without Ray: the shards of one process, byte for byte."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidybert.cluster import corpus_job
from tidybert.cluster.corpus_job import (
    CorpusFileJob,
    build_corpus_on_cluster,
    duplicates,
    read_part,
)
from tidybert.corpus.building import Reading, build_corpus
from tidybert.corpus.documents import CorpusOptions, CorpusReport
from tidybert.errors import DataError
from tidybert.files.reading import ReadReport
from tidybert.system.reporter import SILENT
from tidybert.tokenization import BertTokenizer


class Here:
    """An engine in this process."""

    def results(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> Iterator[Any]:
        return (function(*each) for each in arguments)


@pytest.fixture(params=[2**24, 3], ids=["one share", "many shares"])
def here(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, run_here: Callable[..., Any]
) -> None:
    @contextmanager
    def cluster(_address: str) -> Iterator[Here]:
        yield Here()

    monkeypatch.setattr(corpus_job, "ray_cluster", cluster)
    monkeypatch.setattr(corpus_job, "run_job", run_here)
    monkeypatch.setattr(corpus_job, "HASHES_AT_ONCE", request.param)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files that share documents, among them one without any and one with bad lines."""
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    words = ["the", "red", "fox", "saw", "a", "blue", "bird", "near", "the", "old", "sea"]
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(words, 12)) + "." for _ in range(40)]
    (folder / "a.txt").write_text("\n\n".join([*texts[:20], texts[3], texts[5]]) + "\n")
    (folder / "b.txt").write_text("\n\n")
    (folder / "more" / "c.txt").write_text("\n\n".join([texts[1], *texts[20:], texts[30]]) + "\n")
    return folder


def shards(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.usefixtures("here")
def test_the_bytes_are_those_of_one_process(corpus: Path, tiny_model: Path, tmp_path: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    ours, theirs = CorpusReport(), CorpusReport()
    build_corpus([corpus], tokenizer, tmp_path / "one", held_out=0.2, report=theirs)
    work = CorpusFileJob(model=str(tiny_model))

    manifest = build_corpus_on_cluster(
        [corpus], work, tmp_path / "many", cluster="here", held_out=0.2, report=ours
    )

    assert manifest.counts["duplicates"] == 4
    assert shards(tmp_path / "many") == shards(tmp_path / "one")
    assert ours.lines() == theirs.lines()
    assert not (tmp_path / "many.parts").exists()


@pytest.mark.usefixtures("here")
def test_a_build_that_was_stopped_goes_on_from_the_parts(
    corpus: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([corpus], tokenizer, tmp_path / "one", held_out=0.2)
    work = CorpusFileJob(model=str(tiny_model))
    # A block for each three documents, synced at once.
    monkeypatch.setattr("tidybert.corpus.building.BLOCK_DOCUMENTS", 3)
    monkeypatch.setattr("tidybert.corpus.building.SYNC_SECONDS", 0)
    for stop in (1, 4, 9):

        def progress(built: Any, stop: int = stop) -> None:
            if built.num_documents >= stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build_corpus_on_cluster(
                [corpus], work, tmp_path / "many", cluster="here", held_out=0.2, progress=progress
            )

    build_corpus_on_cluster([corpus], work, tmp_path / "many", cluster="here", held_out=0.2)

    assert shards(tmp_path / "many") == shards(tmp_path / "one")


def test_each_share_finds_its_own_duplicates(
    corpus: Path, tiny_model: Path, tmp_path: Path
) -> None:
    work = CorpusFileJob(model=str(tiny_model))
    parts = []
    for file in sorted(corpus.rglob("*.txt")):
        parts.append(tmp_path / f"{file.name}.part")
        work.write_file(work.load(), file, parts[-1], ReadReport(), SILENT)

    whole = duplicates(parts, 0, 1).tolist()
    shared = [place for each in range(5) for place in duplicates(parts, each, 5).tolist()]

    # In the first file two come again; in the last one the second of the first file, and its own.
    assert sorted(whole) == [[0, 20], [0, 21], [2, 0], [2, 21]]
    assert sorted(shared) == sorted(whole)


def test_bad_lines_are_reported_as_by_one_process(tiny_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "the red fox"}\n{"txt": 1}\n')
    work = CorpusFileJob(model=str(tiny_model), corpus=CorpusOptions(skip_bad_rows=True))
    report, reading = CorpusReport(), Reading()

    work.write_file(work.load(), file, tmp_path / "part", ReadReport(), SILENT)
    list(read_part(tmp_path / "part", str(file), reading, report))

    assert report.num_problems == 1
    assert f"{file}:2" in "\n".join(report.lines())


def test_a_damaged_part_is_an_error(corpus: Path, tiny_model: Path, tmp_path: Path) -> None:
    work = CorpusFileJob(model=str(tiny_model))
    part = tmp_path / "part"
    work.write_file(work.load(), corpus / "a.txt", part, ReadReport(), SILENT)
    part.write_bytes(part.read_bytes()[:-100])

    with pytest.raises(DataError, match="damaged"):
        list(read_part(part, "a.txt", Reading(), CorpusReport()))
