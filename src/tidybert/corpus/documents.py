"""A corpus as a stream of documents: text, JSON lines or Parquet, of any size, in constant memory.

Text has a blank line between documents, and a sentence or a paragraph a line, as for
create_pretraining_data.py, or each in <doc …> and </doc>, as WikiExtractor writes.  A row of JSON
lines or Parquet is a document.  An unreadable line is an error with file and line, or counted in
the report.
"""

import hashlib
import io
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from glob import glob, has_magic
from gzip import BadGzipFile, GzipFile
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, ClassVar, Final

from tidybert.errors import DataError, UsageError, in_python, param, suggestion
from tidybert.files.arrow_files import parquet_names, parquet_rows
from tidybert.files.columns import KNOWN_NAMES, plain_name
from tidybert.files.reading import KEPT_PROBLEMS, ReadOptions
from tidybert.files.records import line_records
from tidybert.files.rows import Problem, count_of, keys_seen, problem_lines, text_problem
from tidybert.files.text_files import SUFFIXES
from tidybert.files.text_lines import (
    GZIP_MAGIC,
    LimitedUnpacking,
    Line,
    decoded_lines,
    standard_input,
)
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.limits import LINE_BYTES
from tidybert.storage.opening import leads_outside, open_regular, os_reason
from tidybert.storage.own_files import GrowingFile
from tidybert.storage.remote_files import RemoteFile, is_remote, remote_files

# The sources of a corpus: files of this machine or of another, and standard input.
#
# A source remembers its state when it was found, so that a change while it is read is noticed.
# Standard input is first written to a temporary file: so its content is known before the first
# document, as that of any file, and a build goes on when the same text is given again.

STANDARD_INPUT: Final = "-"
_PART_BYTES: Final = 1 << 22


@dataclass(frozen=True)
class Source:
    """A file: its name, where it is, what it was when it was found; ``kept`` goes with it."""

    name: str
    place: Path | RemoteFile
    num_bytes: int
    state: Any = field(repr=False)
    kept: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return "standard input" if self.name == STANDARD_INPUT else self.name

    def __fspath__(self) -> str:
        return self.name

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the name, by which sources are sorted."""
        return PurePath(self.name).parts

    def open(self) -> io.BufferedReader:
        if isinstance(self.place, RemoteFile):
            return self.place.open()
        return open_regular(self.place)

    def content_hash(self) -> str:
        """A hash of the content: of a store's own where it has one, else the sha256."""
        if not isinstance(self.place, RemoteFile):
            return file_sha256(self.place)
        if self.place.content is not None:
            return self.place.content
        with self.open() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def check_unchanged(self) -> None:
        """Raise DataError if the source is not as it was when it was found."""
        if isinstance(self.place, RemoteFile):
            now = self.place.again()
        else:
            now = source_of(self.place).state
        if now != self.state:
            raise DataError(
                f"{self} changed while it was read; wait until it is complete, and build the "
                "corpus in a new directory"
            )


def source_of(file: Path | RemoteFile) -> Source:
    if isinstance(file, RemoteFile):
        return Source(file.url, file, file.num_bytes, file)
    found = file.stat()
    return Source(str(file), file, found.st_size, (found.st_size, found.st_mtime_ns))


def spooled(stream: BinaryIO) -> Source:
    """Standard input as a source, copied to a temporary file.  Raises DataError and DiskError."""
    folder = TemporaryDirectory(prefix="tidybert-input-")
    path = Path(folder.name) / "input"
    file = GrowingFile(path)
    try:
        while part := stream.read(_PART_BYTES):
            file.write(part)
        file.sync()
    except BaseException as error:
        folder.cleanup()
        if isinstance(error, OSError):
            raise DataError(f"standard input: cannot be read: {os_reason(error)}") from error
        raise
    finally:
        file.close()
    found = source_of(path)
    return Source(STANDARD_INPUT, path, found.num_bytes, found.state, folder)


# Which files a corpus is, and their bytes: plain, or packed with gzip, xz or Zstandard.

XZ_MAGIC: Final = b"\xfd7zXZ\x00"
ZSTANDARD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
PACKED_SUFFIXES: Final = (".gz", ".xz", ".zst")
CORPUS_FORMATS: Final = ("text", "jsonl", "parquet")
# Large reads keep the unpacking library, which works outside Python's lock, busy.
BUFFER_BYTES: Final = 1 << 20


def corpus_files(paths: Sequence[str | Path | Source], *, any_format: bool = False) -> list[Source]:
    """The sources of a corpus, each once, sorted by path in any order of ``paths``.

    A path is a file, a folder (every file in it and below, without hidden ones), a glob (``**`` for
    any depth), each also as a URL that fsspec reads, or ``-`` for standard input.  A file that you
    name, or a glob finds, is text unless its suffix says otherwise.  In a folder, an unknown suffix
    is an error, so that no other file passes for text.
    """
    if not paths:
        raise UsageError("no corpus is named: give files, folders or globs")
    found: dict[str, Source] = {}
    for path in paths:
        found |= {source.name: source for source in _sources_of(path)}
    for source in found.values() if not any_format else ():
        corpus_format(source)
    return sorted(found.values(), key=lambda source: source.parts)


def _sources_of(path: str | Path | Source) -> Iterator[Source]:
    if isinstance(path, Source):
        yield path
    elif path == STANDARD_INPUT:
        yield spooled(standard_input())
    elif isinstance(path, str) and is_remote(path):
        found = remote_files(path)
        _check_plain(path, [PurePath(file.url) for file in found if file.url.rstrip("/") != path])
        yield from map(source_of, found)
    else:
        yield from map(source_of, _files_of(path))


def corpus_format(source: Source) -> str:
    """text, jsonl or parquet, by the suffix or standard input's first line; else UsageError."""
    if source.name == STANDARD_INPUT:
        with open_stored(source) as (unpacked, _), suppress(ValueError):
            if isinstance(json.loads(unpacked.readline(LINE_BYTES.value)), dict):
                return "jsonl"
        return "text"
    path = PurePath(source.name)
    packed = path.suffix.lower() in PACKED_SUFFIXES
    suffix = PurePath(path.stem).suffix.lower() if packed else path.suffix.lower()
    known = SUFFIXES.get(suffix, "text")
    if known not in CORPUS_FORMATS:
        raise UsageError(
            f"{path}: {known} is not a format of a corpus; expected text with a blank line between "
            "documents, JSON lines (.jsonl) or Parquet (.parquet)"
        )
    if packed and known == "parquet":
        raise UsageError(f"{path}: Parquet compresses its own data; unpack this file first")
    return known


@contextmanager
def open_stored(source: Source) -> Iterator[tuple[io.BufferedReader, BinaryIO]]:
    """A file's bytes unpacked from gzip, xz or Zstandard, within limits; and that on the disk."""
    try:
        with source.open() as raw:
            yield _unpacked(raw, source), raw
    except (EOFError, zlib.error, lzma.LZMAError, BadGzipFile) as error:
        raise _damaged(source, error) from error
    except OSError as error:
        # Errors of the system have a number; pyarrow's about damaged data have none.
        if error.errno is None:
            raise _damaged(source, error) from error
        raise DataError(f"{source}: cannot be read: {os_reason(error)}") from error


def _files_of(path: str | Path) -> set[Path]:
    named = Path(path)
    if named.is_file():
        return {named}
    if named.is_dir():
        files = {file.relative_to(named) for file in named.rglob("*") if not file.is_dir()}
        inside = {named / file for file in files if not any(part[0] == "." for part in file.parts)}
        refuse_links(path, inside)
        for file in inside:
            _check_regular(file)
        if not inside:
            raise DataError(f"{path}: the folder holds no file")
        _check_plain(path, inside)
        return inside
    if has_magic(str(path)):
        # Path.glob takes no pattern that begins at the root.
        matched = {Path(name) for name in glob(str(path), recursive=True)}  # noqa: PTH207
        files = {file for file in matched if not file.is_dir()}
        for file in files:
            _check_regular(file)
        if not files:
            raise DataError(f"{path}: no file matches")
        return files
    if not os.path.lexists(named):
        raise DataError(f"{path}: no such file or folder")
    _check_regular(named)
    return {named}


def refuse_links(folder: str | Path, files: Iterable[Path]) -> None:
    """Raise UsageError for a link in a folder that leads out of it, to any file of this user."""
    links = sorted(file for file in files if leads_outside(file, folder))
    if links:
        raise UsageError(
            f"{folder}: {count_of(len(links), 'link')} out of the folder, first {links[0]}; name "
            f"the files to read, for example '{str(folder).rstrip('/')}/*.txt'"
        )


def _check_plain(folder: str | Path, files: Collection[PurePath]) -> None:
    """Raise UsageError for a file that a folder has and whose suffix is not one of a corpus."""
    odd = sorted(file for file in files if not _is_plain(file))
    if odd:
        raise UsageError(
            f"{folder}: {count_of(len(odd), 'file')} with an unknown suffix, first {odd[0]}; "
            f"name the files to read, for example '{str(folder).rstrip('/')}/*.txt'"
        )


def _check_regular(file: Path) -> None:
    """Raise DataError for a pipe, a device or a link that leads nowhere."""
    if not file.is_file():
        with open_regular(file):
            pass


def _is_plain(file: PurePath) -> bool:
    """Whether the suffix is one of a corpus, or there is none, as in WikiExtractor's wiki_00."""
    stem = PurePath(file.stem) if file.suffix.lower() in PACKED_SUFFIXES else file
    return not stem.suffix or SUFFIXES.get(stem.suffix.lower()) in CORPUS_FORMATS


def _unpacked(raw: io.BufferedReader, path: Source) -> io.BufferedReader:
    head = raw.peek(len(XZ_MAGIC))
    suffix = PurePath(path.name).suffix.lower()
    stream: Any = None
    if head.startswith(XZ_MAGIC) or suffix == ".xz":
        stream = lzma.LZMAFile(raw)  # noqa: SIM115
    elif head.startswith(GZIP_MAGIC) or suffix == ".gz":
        stream = GzipFile(fileobj=raw)
    elif head.startswith(ZSTANDARD_MAGIC) or suffix == ".zst":
        # Python has a reader of its own only from 3.14 on.
        from pyarrow import CompressedInputStream

        stream = CompressedInputStream(raw, "zstd")
    if stream is None:
        return raw
    return io.BufferedReader(LimitedUnpacking(stream, raw.tell, path), BUFFER_BYTES)


def _damaged(path: Source, error: Exception) -> DataError:
    return DataError(
        f"{path}: the packed data are damaged or cut short ({error}); copy the file again"
    )


# A file without blank lines would otherwise be one document, whole in memory.
MAX_DOCUMENT_CHARACTERS: Final = 1 << 24
REPLACEMENT: Final = "\ufffd"

# What WikiExtractor writes before each article.
_DOC: Final = re.compile(r'<doc (?=[^>]*\b(?:id|url|title)=")[^\n]*>')

#: The paragraphs of a document, or its lines: none blank, without white space around them.
Document = list[str]


@dataclass(frozen=True)
class CorpusOptions:
    """How to read a corpus; each field is the flag of the same name."""

    PANEL: ClassVar = "Data"

    column: str | None = None
    """``--column``: Key of the text in JSON lines, or its column in Parquet. If not set: ``text``,
    or the only one of a text."""
    encoding: str = "utf-8"
    """``--encoding``: Encoding of text and JSON lines."""
    skip_bad_rows: bool = False
    """``--skip-bad-rows/--no-skip-bad-rows``: Skip lines that cannot be read, and report how many
    and which."""


@dataclass
class CorpusReport:
    """Counts of a corpus while it is read; they are complete at the end of the files."""

    num_files: int = 0
    num_documents: int = 0
    num_paragraphs: int = 0
    num_characters: int = 0
    num_empty_documents: int = 0
    """Rows of JSON lines or Parquet whose text is blank."""
    num_cut_documents: int = 0
    """Documents of more than MAX_DOCUMENT_CHARACTERS, read as several."""
    num_lossy_paragraphs: int = 0
    """Paragraphs with U+FFFD, which an earlier conversion put where it lost a character."""
    num_tags: int = 0
    """Lines <doc …> and </doc>, which are left out."""
    num_markup_files: int = 0
    """Files whose lines mostly begin as markup does."""
    column: str | None = None
    """Where the text was read from, where no flag says and it is not "text"."""
    num_problems: int = 0
    """Lines or rows that cannot be read."""
    problems: list[tuple[str, Problem]] = field(default_factory=list)
    """The first of them with their files, at most 1,000."""
    empty_files: list[str] = field(default_factory=list)
    total_bytes: int = 0
    """Size of all files on the disk; set before the first document."""
    finished_bytes: int = 0
    """Size of the files that were read to their ends."""
    packed: BinaryIO | None = None
    """The file that is being read."""

    def bytes_read(self) -> int:
        """How much of ``total_bytes`` has been read."""
        return self.finished_bytes + (self.packed.tell() if self.packed else 0)

    def lines(self, spell: Callable[[str], str] = in_python) -> list[str]:
        """The findings as plain text, no line if all is well; ``spell`` writes their parameters."""
        lines = []
        if self.empty_files:
            first, *others = self.empty_files
            more = f" and {count_of(len(others), 'other file')}" if others else ""
            lines.append(f"no document in {first}{more}")
        if self.num_empty_documents:
            lines.append(f"{count_of(self.num_empty_documents, 'row')} without text skipped")
        if self.num_cut_documents:
            lines.append(
                f"{count_of(self.num_cut_documents, 'document')} of more than "
                f"{MAX_DOCUMENT_CHARACTERS:,} characters, read as several; is there a blank line "
                "between documents?"
            )
        if self.num_lossy_paragraphs:
            lines.append(
                f"{count_of(self.num_lossy_paragraphs, 'paragraph')} with U+FFFD, the mark of "
                "characters that were lost earlier; was the text decoded with the wrong encoding?"
            )
        if self.column is not None:
            lines.append(f"read from {param('column', self.column)}, the only one of a text")
        if self.num_tags:
            lines.append(f"{count_of(self.num_tags, 'line')} <doc …> and </doc> left out")
        if self.num_markup_files:
            lines.append(
                f"{count_of(self.num_markup_files, 'file')} whose lines mostly begin with <, {{ or "
                "|, as markup does; extract the text first, as WikiExtractor does from a dump of "
                "Wikipedia"
            )
        if self.num_problems:
            lines.append(f"{count_of(self.num_problems, 'line')} skipped:")
            lines += problem_lines(self.problems, self.num_problems)
        return [spell(line) for line in lines]


def read_documents(
    paths: Sequence[str | Path | Source],
    options: CorpusOptions | None = None,
    *,
    report: CorpusReport | None = None,
) -> Iterator[Document]:
    """The documents of ``corpus_files(paths)``, in the files' order.

    Without ``options.skip_bad_rows`` no document of a file follows its first bad line; the rest is
    read to count all bad lines.  ``report`` is filled on the way.
    """
    options = options or CorpusOptions()
    ReadOptions(encoding=options.encoding)
    report = CorpusReport() if report is None else report
    files = corpus_files(paths)
    report.total_bytes = sum(file.num_bytes for file in files)
    for file in files:
        before, bad_before = report.num_documents, report.num_problems
        num_markup, lines_before = 0, report.num_paragraphs
        for document in _documents(file, options, report):
            if isinstance(document, Problem):
                report.num_problems += 1
                if len(report.problems) < KEPT_PROBLEMS:
                    report.problems.append((str(file), document))
            elif options.skip_bad_rows or report.num_problems == bad_before:
                report.num_documents += 1
                report.num_paragraphs += len(document)
                report.num_characters += sum(map(len, document))
                report.num_lossy_paragraphs += sum(REPLACEMENT in text for text in document)
                num_markup += sum(text[0] in "<{|" for text in document)
                yield document
        report.packed = None
        report.num_markup_files += 2 * num_markup > report.num_paragraphs - lines_before
        report.finished_bytes += file.num_bytes
        report.num_files += 1
        if report.num_problems > bad_before and not options.skip_bad_rows:
            head = f"{file}: {count_of(report.num_problems - bad_before, 'line')} cannot be read:"
            advice = f"Fix the file, or leave bad lines out with {param('skip_bad_rows')}"
            found = problem_lines(report.problems, report.num_problems)
            raise DataError("\n".join([head, *found, advice]))
        if report.num_documents == before:
            report.empty_files.append(str(file))
    if not report.num_documents:
        named = ", ".join(map(str, paths))
        raise DataError("\n".join([f"{named}: the corpus holds no document", *report.lines(str)]))


def _documents(
    file: Source, options: CorpusOptions, report: CorpusReport
) -> Iterator[Document | Problem]:
    column = options.column
    if corpus_format(file) == "parquet":
        names = parquet_names(str(file), file.open)
        column = column or _text_column(dict.fromkeys(names), report)
        if column not in names:
            raise DataError(f"{file}: {_no_column(column, names, 'column')}")
        for row, record in parquet_rows(str(file), [column], file.open):
            yield from _row(row, record[column], column, report)
        return
    with open_stored(file) as (unpacked, report.packed):
        lines = decoded_lines(unpacked, options.encoding, str(file))
        if corpus_format(file) == "jsonl":
            yield from _json_documents(lines, column, str(file), report)
        else:
            yield from _text_documents(lines, report)


def _text_documents(lines: Iterator[Line], report: CorpusReport) -> Iterator[Document | Problem]:
    """Documents between blank lines, or in <doc …>; one too long for memory comes in parts."""
    document: Document = []
    length = 0
    cut = in_tags = False
    for number, raw, problem in lines:
        text = raw.strip()
        is_tag = text[:1] == "<" and ((in_tags and text == "</doc>") or _DOC.fullmatch(text))
        if problem:
            yield Problem(number, problem)
        elif is_tag:
            report.num_tags += 1
            in_tags = text != "</doc>"
            if document:
                yield document
            document, length, cut = [], 0, False
        elif text:
            if length > MAX_DOCUMENT_CHARACTERS:
                report.num_cut_documents += not cut
                yield document
                document, length, cut = [], 0, True
            document.append(text)
            length += len(text)
        elif not in_tags:
            if document:
                yield document
            document, length, cut = [], 0, False
    if document:
        yield document


def _json_documents(
    lines: Iterator[Line], column: str | None, path: str, report: CorpusReport
) -> Iterator[Document | Problem]:
    found = False
    for entry in line_records(lines):
        if isinstance(entry, Problem):
            yield entry
            continue
        number, record = entry
        column = column or _text_column(record, report)
        if column in record:
            found = True
            yield from _row(number, record[column], column, report)
        elif found:
            yield Problem(number, _no_column(column, list(record), "key"))
        else:
            # Every row would say the same.
            raise DataError(f"{path}:{number}: {_no_column(column, list(record), 'key')}")


def _text_column(record: Mapping[str, object], report: CorpusReport) -> str:
    """The key of the text, where no flag gives it: "text", or the only one that can be."""
    known = [name for name in record if any(plain_name(name) in one.texts for one in KNOWN_NAMES)]
    texts = [
        name
        for name, value in record.items()
        if isinstance(value, str) and plain_name(name) not in ("id", "url", "title", "name")
    ]
    for found in (known, texts) if "text" not in record else ():
        if len(found) == 1:
            report.column = found[0]
            return found[0]
    return "text"


def _row(
    number: int, text: object, column: str, report: CorpusReport
) -> Iterator[Document | Problem]:
    if problem := text_problem(column, text):
        yield Problem(number, problem)
    elif document := [line for part in str(text).split("\n") if (line := part.strip())]:
        yield document
    else:
        report.num_empty_documents += 1


def _no_column(column: str, names: Sequence[str], kind: str) -> str:
    close = suggestion(column, names)
    return f"no {kind} {column!r} among {keys_seen(names)}{close}; give {param('column')}"
