"""A corpus as a stream of documents: text, JSON lines or Parquet, of any size, in constant memory.

Text has a blank line between documents, and a sentence or a paragraph a line, as for
create_pretraining_data.py.  A row of JSON lines or Parquet is a document.  An unreadable line is an
error with file and line, or counted in the report.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from tidybert.corpus.packed_files import corpus_files, corpus_format, open_stored
from tidybert.corpus.sources import Source
from tidybert.errors import DataError, in_python, param, suggestion
from tidybert.files.raw_rows import Problem, problem_lines
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import KEPT_PROBLEMS
from tidybert.files.records import line_records, parquet_names, parquet_rows
from tidybert.files.text_lines import Line, decoded_lines
from tidybert.files.wording import count_of, keys_seen, text_problem

# A file without blank lines would otherwise be one document, whole in memory.
MAX_DOCUMENT_CHARACTERS: Final = 1 << 24
REPLACEMENT: Final = "\ufffd"

#: The paragraphs of a document, or its lines: none blank, without white space around them.
Document = list[str]


@dataclass(frozen=True)
class CorpusOptions:
    """How to read a corpus; each field is the flag of the same name."""

    PANEL: ClassVar = "Data"

    column: str = "text"
    """``--column``: Key of the text in JSON lines, or its column in Parquet."""
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

    Raises DataError for a file that is missing, damaged or has bad lines, with file and line, and
    for a corpus without any document; UsageError for an unknown encoding or format.
    """
    options = options or CorpusOptions()
    ReadOptions(encoding=options.encoding)
    report = CorpusReport() if report is None else report
    files = corpus_files(paths)
    report.total_bytes = sum(file.num_bytes for file in files)
    for file in files:
        before, bad_before = report.num_documents, report.num_problems
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
                yield document
        report.packed = None
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
        if column not in (names := parquet_names(str(file), file.open)):
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
    """Documents between blank lines; one too long for memory comes in parts."""
    document: Document = []
    length = 0
    cut = False
    for number, raw, problem in lines:
        if problem:
            yield Problem(number, problem)
        elif text := raw.strip():
            if length > MAX_DOCUMENT_CHARACTERS:
                report.num_cut_documents += not cut
                yield document
                document, length, cut = [], 0, True
            document.append(text)
            length += len(text)
        else:
            if document:
                yield document
            document, length, cut = [], 0, False
    if document:
        yield document


def _json_documents(
    lines: Iterator[Line], column: str, path: str, report: CorpusReport
) -> Iterator[Document | Problem]:
    found = False
    for entry in line_records(lines):
        if isinstance(entry, Problem):
            yield entry
            continue
        number, record = entry
        if column in record:
            found = True
            yield from _row(number, record[column], column, report)
        elif found:
            yield Problem(number, _no_column(column, list(record), "key"))
        else:
            # Every row would say the same.
            raise DataError(f"{path}:{number}: {_no_column(column, list(record), 'key')}")


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
