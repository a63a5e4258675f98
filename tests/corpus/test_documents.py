"""Corpora: the documents of text, JSON lines and Parquet, packed or not, and what is wrong."""

import gzip
import json
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.corpus import documents as corpus
from tidybert.corpus.documents import CorpusOptions, CorpusReport, corpus_files, read_documents
from tidybert.errors import DataError, LimitError, UsageError, in_python
from tidybert.files import text_lines

TEXT = "Rome\nRome is old.\n\n\n  Paris \r\nParis is large.\n \nBerlin"
DOCUMENTS = [["Rome", "Rome is old."], ["Paris", "Paris is large."], ["Berlin"]]


def zstandard(data: bytes) -> bytes:
    import pyarrow

    return pyarrow.Codec("zstd").compress(data, asbytes=True)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard,
}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def write_parquet(path: Path, **columns: list[object]) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def read(*paths: Path, report: CorpusReport | None = None, **options: Any) -> list[list[str]]:
    return list(read_documents(paths, CorpusOptions(**options), report=report))


# --- formats


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("named", [True, False], ids=["suffix", "bytes alone"])
def test_text_plain_and_packed(tmp_path: Path, suffix: str, named: bool) -> None:
    path = tmp_path / ("c.txt" + suffix if named else "c.txt")
    # Several packed files in one are read to the end.
    path.write_bytes(PACKERS[suffix](TEXT[:20].encode()) + PACKERS[suffix](TEXT[20:].encode()))
    report = CorpusReport()

    assert read(path, report=report) == DOCUMENTS
    assert (report.num_files, report.num_documents, report.num_paragraphs) == (1, 3, 5)
    assert report.num_characters == sum(len(line) for one in DOCUMENTS for line in one)
    assert report.bytes_read() == report.total_bytes == path.stat().st_size
    assert report.lines() == []


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    rows = [{"id": 1, "text": "Rome\n\nis old"}, {"text": " "}, {"text": "Paris"}]
    lines = write(tmp_path / "c.jsonl", "\n\n".join(map(json.dumps, rows)))
    table = write_parquet(tmp_path / "c.parquet", id=[1, 2], body=["Rome\nis old", "Paris"])
    report = CorpusReport()

    assert read(lines, report=report) == [["Rome", "is old"], ["Paris"]]
    assert report.lines() == ["1 row without text skipped"]
    assert read(write(tmp_path / "d.ndjson", '{"body": "Rome"}'), column="body") == [["Rome"]]
    assert read(table, column="body") == [["Rome", "is old"], ["Paris"]]


def test_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    for encoding in ("latin-1", "utf-16"):
        path.write_bytes("Störung\n\né".encode(encoding))
        assert read(path, encoding=encoding) == [["Störung"], ["é"]]
    with pytest.raises(UsageError, match="encoding 'latin1x'"):
        read(path, encoding="latin1x")


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.from_regex(r"\A[^\s\0\ufeff\x1c-\x1f\x85]+\Z"), min_size=1), min_size=1)
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]]) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    text = write(folder / "c.txt", "\n\n".join("\n".join(one) for one in documents))
    rows = write(
        folder / "c.jsonl", "\n".join(json.dumps({"text": "\n".join(d)}) for d in documents)
    )

    assert read(text) == read(rows) == documents


def test_a_document_too_long_for_memory_comes_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "MAX_DOCUMENT_CHARACTERS", 7)
    path = write(tmp_path / "c.txt", "four\nfour\nfour\nfour\nfour\n\nlast")
    report = CorpusReport()

    assert read(path, report=report) == [["four"] * 2, ["four"] * 2, ["four"], ["last"]]
    assert report.num_cut_documents == 1
    assert "1 document of more than 7 characters, read as several" in in_python(report.lines()[0])


# --- files


def found(*paths: str | Path) -> list[Path]:
    return [Path(source.name) for source in corpus_files(paths)]


def test_files_folders_and_globs_are_sorted_and_each_stands_once(tmp_path: Path) -> None:
    names = ["b.txt", "a/z.jsonl.xz", "a/wiki_00", "a.parquet", "a/b/c.txt.gz"]
    files = [write(tmp_path / name, "x") for name in names]
    write(tmp_path / "a/.hidden", "x")
    write(tmp_path / ".git/config.txt", "x")

    expected = [tmp_path / name for name in sorted(names, key=lambda name: name.split("/"))]
    assert found(tmp_path) == expected
    assert found(str(tmp_path), *reversed(files), tmp_path / "**/*.gz") == expected
    assert found(tmp_path / "*.txt") == [tmp_path / "b.txt"]
    assert found(tmp_path / "**/*.gz") == [tmp_path / "a/b/c.txt.gz"]
    # A name that is a glob too is that file.
    odd = write(tmp_path / "a[1].txt", "x")
    assert found(odd) == [odd]


@pytest.mark.parametrize(
    ("names", "asked", "error", "message"),
    [
        ([], "c.txt", DataError, "c.txt: no such file or folder"),
        ([], "*.txt", DataError, "*.txt: no file matches"),
        (["d/.hidden"], "d", DataError, "d: the folder holds no file"),
        (["d/a.txt", "d/x.pdf", "d/y.pdf"], "d", UsageError, "2 files with an unknown suffix"),
        (["c.csv"], "c.csv", UsageError, "c.csv: csv is not a format of a corpus"),
        (["c.json.gz"], "c.json.gz", UsageError, "json is not a format of a corpus"),
        (["c.parquet.gz"], "c.parquet.gz", UsageError, "Parquet compresses its own data"),
    ],
)
def test_paths_that_are_no_corpus(
    tmp_path: Path, names: list[str], asked: str, error: type[Exception], message: str
) -> None:
    for name in names:
        write(tmp_path / name, "x")

    with pytest.raises(error, match=re.escape(message)):
        corpus_files([tmp_path / asked])
    with pytest.raises(UsageError, match="no corpus is named"):
        corpus_files([])


# --- what is wrong with a file


def test_bad_lines_are_all_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    good = write(tmp_path / "a.txt", "good\n")
    path = tmp_path / "b.txt"
    path.write_bytes(b"one\n\nbad \xff\n\ntwo\nbad \xfe\n" + b"\0\n" * 7)
    documents = read_documents([path, good])

    assert [next(documents), next(documents)] == [["good"], ["one"]]
    with pytest.raises(DataError) as caught:
        next(documents)
    advice = "is not utf-8; save the file as UTF-8, or give its encoding, as in encoding='cp1252'"
    nul = "a NUL byte: this is not plain text, or it is UTF-16 (encoding='utf-16')"
    assert str(caught.value).splitlines() == [
        f"{path}: 9 lines cannot be read:",
        f"  {path}:3: byte 0xff at column 5 {advice}",
        f"  {path}:6: byte 0xfe at column 5 {advice}",
        *(f"  {path}:{row}: {nul}" for row in (7, 8, 9)),
        "  and 4 more",
        "Fix the file, or leave bad lines out with skip_bad_rows",
    ]


def test_skipped_lines_are_counted_over_all_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_bytes(b"one\nbad \xff\ntwo \xef\xbf\xbd\n")
    write(tmp_path / "c.txt", "\n \n")
    report = CorpusReport()

    assert read(tmp_path, report=report, skip_bad_rows=True) == [["one", "two \ufffd"]] * 2
    lines = report.lines()
    assert lines[0] == f"no document in {tmp_path / 'c.txt'}"
    assert lines[1].startswith("2 paragraphs with U+FFFD")
    assert lines[2] == "2 lines skipped:"
    assert [line.split(": ")[0] for line in lines[3:]] == [f"  {tmp_path}/{x}.txt:2" for x in "ab"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": null}', "'text' is null where a text is expected"),
        ('{"text": "\\ud83d"}', "'text' holds a lone surrogate"),
        ('["text"]', "a list where an object is expected"),
        ('{"text" "a"}', "not JSON: Expecting ':' delimiter at column 9"),
        ('{"body": "a"}', "no key 'text' among 'body'; give column"),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "c.jsonl", f'{{"text": "a"}}\n{line}\n')

    with pytest.raises(DataError, match=re.escape(f"{path}:2: {message}")):
        read(path)


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    rows = write(tmp_path / "c.jsonl", '{"texts": "a", "more": "b"}\n' * 9)
    with pytest.raises(DataError, match=r"c.jsonl:1: no key 'text' among 'texts', 'more'; did"):
        read(rows)
    table = write_parquet(tmp_path / "c.parquet", texts=["a"], more=["b"])
    with pytest.raises(DataError, match=r"c.parquet: no column 'text' among 'texts', 'more'; did"):
        read(table)
    nulls = write_parquet(tmp_path / "d.parquet", text=["a", None])
    with pytest.raises(DataError, match=r"d.parquet:2: 'text' is null"):
        read(nulls)


def test_articles_of_wikiextractor(tmp_path: Path) -> None:
    """One document an article, with its title and across blank lines; its tags are left out."""
    head = '<doc id="{0}" url="https://a/{0}" title="T{0} > x">\n'
    article = head + "T{0}\n\nText {0}.\n\nMore <b>.\n</doc>\n"
    path = write(tmp_path / "wiki_00", "".join(map(article.format, range(3))))
    report = CorpusReport()

    found = read(path, report=report)

    assert found == [[f"T{n}", f"Text {n}.", "More <b>."] for n in range(3)]
    assert report.lines() == ["6 lines <doc …> and </doc> left out"]
    open_end = write(tmp_path / "b.txt", "before\n" + head.format(1) + "a\n\nb\n")
    assert read(open_end) == [["before"], ["a", "b"]]
    # A line that only begins so is text, and so is a lone end.
    assert read(write(tmp_path / "c.txt", "<doc>\n</doc>\n")) == [["<doc>", "</doc>"]]


def test_markup_is_told(tmp_path: Path) -> None:
    report = CorpusReport()

    read(write(tmp_path / "a.txt", "<page>\n<id>1</id>\nA text.\n"), report=report)

    assert report.lines()[0].startswith("1 file whose lines mostly begin with <, { or |, as markup")


@pytest.mark.parametrize(
    ("record", "column"),
    [({"id": "7", "content": "a"}, "content"), ({"n": 1, "satz": "a"}, "satz")],
)
def test_the_one_key_of_a_text(tmp_path: Path, record: dict[str, Any], column: str) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps(record) + "\n")
    report = CorpusReport()

    assert read(path, report=report) == [["a"]]
    assert report.lines() == [f"read from column={column!r}, the only one of a text"]
    with pytest.raises(DataError, match="no key 'text'"):
        read(path, column="text")
    with pytest.raises(DataError, match="no key 'text' among 'id'"):
        read(write(tmp_path / "b.jsonl", '{"id": "7"}\n'))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_packed_files_that_are_cut_damaged_or_unpack_to_too_much(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PACKERS[suffix]("".join(f"line {n}\n" for n in range(5000)).encode())
    path = tmp_path / f"c.txt{suffix}"
    for data in (whole[: len(whole) // 2], b"no packed data at all"):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"c.txt.*damaged or cut short .*copy the file again"):
            read(path)
    monkeypatch.setattr(text_lines, "UNPACKED_RATIO_FROM", 2**16)
    path.write_bytes(PACKERS[suffix](b"a\n" * 2**21))
    with pytest.raises(LimitError, match="the limit for a compressed file is 200; if you trust"):
        read(path)


def test_an_empty_corpus(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.txt", "\n"), write(tmp_path / "b.txt.gz", "")]
    paths[1].write_bytes(gzip.compress(b" "))
    with pytest.raises(DataError, match=r"holds no document\nno document in .*a.txt and 1 other"):
        list(read_documents(paths))


# --- hostile files


def test_only_regular_files_are_a_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write(folder / "a.txt", "one\n")
    os.mkfifo(tmp_path / "pipe.txt")
    for name, target, message in (
        ("b.txt", tmp_path / "none", r"b\.txt: cannot be read: it is a link to .*/none, where"),
        ("c.txt", tmp_path / "pipe.txt", r"c\.txt: cannot be read: it is a named pipe"),
        ("d.txt", Path("/dev/zero"), r"d\.txt: cannot be read: it is a device"),
    ):
        (folder / name).symlink_to(target)
        with pytest.raises(UsageError, match=r"1 link out of the folder, first .*; name the files"):
            read(folder)
        for named in (folder / "*.txt", folder / name):
            with pytest.raises(DataError, match=message):
                read(named)
        (folder / name).unlink()
    assert read(folder) == [["one"]]
    (folder / "same.txt").symlink_to("a.txt")
    assert read(folder) == [["one"], ["one"]]
