"""Text from other machines and from standard input: the same bytes, resuming, faults of stores."""

import errno
import io
import lzma
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidybert.cli.main import run as shell
from tidybert.corpus import building
from tidybert.corpus.building import build_corpus
from tidybert.corpus.documents import Source, corpus_files, read_documents
from tidybert.errors import DataError, UsageError
from tidybert.storage import remote_files
from tidybert.tokenization import BertTokenizer

fsspec = pytest.importorskip("fsspec")

TEXT = "\n\n".join(f"the red cat {n}\nwas near the {n} dog" for n in range(40)) + "\n"
MORE = "\n\n".join(f"a blue hen {n}\nwe saw a cow" for n in range(30)) + "\n"


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's file system in memory, empty."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A folder with a text, a packed text and a Parquet file."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT)
    (folder / "b.txt.xz").write_bytes(lzma.compress(MORE.encode()))
    pq.write_table(pa.table({"text": ["a red dog", "we saw\na hen"]}), folder / "c.parquet")
    return folder


def shards_of(directory: Path) -> dict[str, bytes]:
    names = sorted(each.name for each in directory.iterdir() if "-0" in each.name)
    return {name: (directory / name).read_bytes() for name in names}


def put_all(store: Any, folder: Path, where: str) -> None:
    for file in folder.iterdir():
        store.pipe(f"{where}/{file.name}", file.read_bytes())


def test_a_store_gives_the_bytes_of_a_folder(
    memory: Any, local: Path, tmp_path: Path, tiny_model: Path
) -> None:
    put_all(memory, local, "/bucket/texts")
    memory.pipe("/bucket/texts/.hidden/x.bin", b"x")
    tokenizer = BertTokenizer.from_pretrained(tiny_model)

    build_corpus([local], tokenizer, tmp_path / "local", held_out=0.2)
    for number, urls in enumerate(
        (["memory:///bucket/texts"], ["memory:///bucket/texts/*"], [f"file://{local}"])
    ):
        directory = tmp_path / f"remote-{number}"
        manifest = build_corpus(urls, tokenizer, directory, held_out=0.2)
        assert shards_of(directory) == shards_of(tmp_path / "local")
        assert len(manifest.sources) == 3
        assert "://" in manifest.sources[0]["file"] or urls[0].startswith("file")
        # Again: the finished corpus is this one.
        assert build_corpus(urls, tokenizer, directory, held_out=0.2) == manifest


def test_a_stopped_build_of_a_store_goes_on_and_notices_a_change(
    memory: Any, local: Path, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all(memory, local, "/b")
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([local], tokenizer, tmp_path / "local", held_out=0.2)
    monkeypatch.setattr(building, "SYNC_SECONDS", -1.0)
    monkeypatch.setattr("tidybert.corpus.building.BLOCK_DOCUMENTS", 7)

    def stop(built: building.Built) -> None:
        if built.num_documents > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_corpus(["memory:///b"], tokenizer, tmp_path / "out", held_out=0.2, progress=stop)
    # Other content of the same size.
    memory.pipe("/b/a.txt", TEXT.replace("red", "the").encode())
    with pytest.raises(UsageError, match=r"file memory:///b/a.txt: changed"):
        build_corpus(["memory:///b"], tokenizer, tmp_path / "out", held_out=0.2)
    memory.pipe("/b/a.txt", TEXT.encode())
    build_corpus(["memory:///b"], tokenizer, tmp_path / "out", held_out=0.2)

    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "local")


@pytest.mark.parametrize("where", ["local", "store"])
def test_a_source_that_changes_while_it_is_read_is_named(
    memory: Any, tmp_path: Path, where: str
) -> None:
    file = tmp_path / "a.txt"
    file.write_text(TEXT)
    memory.pipe("/b/a.txt", TEXT.encode())
    (source,) = corpus_files([file if where == "local" else "memory:///b/a.txt"])
    source.check_unchanged()

    file.write_text(TEXT + MORE)
    memory.pipe("/b/a.txt", (TEXT + MORE).encode())

    with pytest.raises(DataError, match=r"a.txt changed while it was read"):
        source.check_unchanged()


@pytest.mark.parametrize("content", [TEXT.encode(), lzma.compress(TEXT.encode())])
def test_standard_input_is_a_source_and_resumes(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, capsys: Any
) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    command = ["build-corpus", "-", "--vocab", str(tiny_model), "--held-out", "0.3"]

    def piped(text: bytes, out: Path) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return shell([*command, "--out", str(out), "--workers", "0"])

    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "file", held_out=0.3)

    assert piped(content, tmp_path / "out") == 0
    assert shards_of(tmp_path / "out") == shards_of(tmp_path / "file")
    assert piped(content, tmp_path / "out") == 0
    assert "is finished" in capsys.readouterr().err
    assert piped(MORE.encode(), tmp_path / "out") == 2
    assert "file -: changed" in capsys.readouterr().err


class Slow(io.RawIOBase):
    """A pipe that gives a few bytes at a time, and then perhaps fails."""

    def __init__(self, content: bytes, error: OSError | None = None) -> None:
        self.content, self.error = io.BytesIO(content), error

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        part = self.content.read(min(len(target), 7))
        if not part and self.error:
            raise self.error
        target[: len(part)] = part
        return len(part)


def test_standard_input_that_comes_slowly_or_breaks(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def piped(content: bytes, out: str, error: OSError | None = None) -> int:
        stream = io.TextIOWrapper(io.BufferedReader(Slow(content, error)))
        monkeypatch.setattr(sys, "stdin", stream)
        flags = ["--vocab", str(tiny_model), "--held-out", "0.3", "--workers", "0"]
        return shell(["build-corpus", "-", *flags, "--out", str(tmp_path / out)])

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "a.txt").write_text(TEXT)
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "file", held_out=0.3)

    assert piped(TEXT.encode(), "slow") == 0
    assert shards_of(tmp_path / "slow") == shards_of(tmp_path / "file")
    capsys.readouterr()

    assert piped(TEXT.encode(), "broken", OSError(errno.EIO, "Input/output error")) == 1
    assert "standard input: cannot be read: Input/output error" in capsys.readouterr().err

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(TEXT) // 2, before[1]))
    try:
        status = piped(TEXT.encode(), "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 1
    assert "File too large" in capsys.readouterr().err
    assert not list((tmp_path / "temporary").iterdir())
    assert not (tmp_path / "full").exists()
    assert not (tmp_path / "broken").exists()


def test_standard_input_may_be_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b'{"text": "a cat"}\n{"text": "a dog\\nnear"}\n'
    for content in (lines, lzma.compress(lines)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert list(read_documents(["-"])) == [["a cat"], ["a dog", "near"]]


def test_train_vocab_reads_stores_and_standard_input(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/b/a.txt", TEXT.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    flags = ["--size", "1000", "--quiet"]

    for number, corpus in enumerate(["-", "memory:///b"]):
        assert shell(["train-vocab", corpus, *flags, "--out", str(tmp_path / str(number))]) == 0

    one, two = ((tmp_path / name / "vocab.txt").read_bytes() for name in "01")
    assert one == two


def test_what_a_store_lacks_is_said_at_once(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/b/a.pdf", b"x")
    with pytest.raises(DataError, match=r"memory:///b/none.txt: no such file or folder"):
        corpus_files(["memory:///b/none.txt"])
    with pytest.raises(UsageError, match=r"1 file with an unknown suffix, .*memory:///b/\*.txt"):
        corpus_files(["memory:///b"])
    with pytest.raises(UsageError, match="no such kind of store"):
        corpus_files(["nowhere://b"])
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match=r"pip install 'tidybert\[remote\]'"):
        corpus_files(["memory:///b"])


class Flaky(io.BytesIO):
    """Reading fails now and then."""

    failures = 0

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() >= 500 and Flaky.failures:
            Flaky.failures -= 1
            raise ConnectionError("the line is down")
        return super().read(min(size or 0, 500))


def test_reading_goes_on_after_a_broken_connection(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/b/a.txt", TEXT.encode())
    (source,) = corpus_files(["memory:///b/a.txt"])
    pauses: list[float] = []
    monkeypatch.setattr(remote_files.time, "sleep", pauses.append)
    monkeypatch.setattr(type(memory), "open", lambda *_args, **_named: Flaky(TEXT.encode()))

    Flaky.failures = 3
    with source.open() as file:
        assert file.read() == TEXT.encode()
    assert pauses == [1.0, 4.0, 16.0]

    Flaky.failures = 4
    with pytest.raises(DataError, match=r"a.txt: cannot be read: the line is down"):
        list(read_documents([source]))


def test_a_bucket_that_vanishes(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/b/a.txt", TEXT.encode())
    (source,) = corpus_files(["memory:///b"])
    memory.rm("/b", recursive=True)

    with pytest.raises(DataError, match=r"memory:///b/a.txt: no such file"):
        list(read_documents([source]))
    with pytest.raises(DataError, match=r"memory:///b/a.txt: no such file, folder or bucket"):
        source.check_unchanged()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of moto's S3 server on loopback."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "key",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        store = fsspec.filesystem("s3")
        store.mkdir("texts")
        yield "texts"
        server.stop()


def test_s3(bucket: str, local: Path, tmp_path: Path, tiny_model: Path) -> None:
    store = fsspec.filesystem("s3")
    put_all(store, local, bucket)
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    build_corpus([local], tokenizer, tmp_path / "local", held_out=0.2)

    build_corpus([f"s3://{bucket}"], tokenizer, tmp_path / "s3", held_out=0.2)

    assert shards_of(tmp_path / "s3") == shards_of(tmp_path / "local")
    source = next(each for each in corpus_files([f"s3://{bucket}"]) if "a.txt" in each.name)
    # S3 knows a hash of the content, which needs no reading.
    assert source.content_hash().startswith("ETag:")
    store.pipe(f"{bucket}/a.txt", TEXT.replace("red", "the").encode())
    with pytest.raises(UsageError, match=f"file s3://{bucket}/a.txt"):
        build_corpus([f"s3://{bucket}"], tokenizer, tmp_path / "s3", held_out=0.2)
    assert isinstance(source, Source)
    with pytest.raises(DataError, match="changed while"):
        source.check_unchanged()
    with pytest.raises(DataError, match="s3://no-such-bucket/x: "):
        corpus_files(["s3://no-such-bucket/x"])
