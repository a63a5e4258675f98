"""The documents of a corpus that no run has written yet, in blocks, without those seen before."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tidybert.corpus.documents import CorpusOptions, CorpusReport, Document, Source, read_documents
from tidybert.corpus.screening import Digests, SeenDigests, digests_of
from tidybert.errors import DataError
from tidybert.files.reading import KEPT_PROBLEMS
from tidybert.storage.journal import Count

BLOCK_CHARACTERS: Final = 1 << 20
# A block of short documents takes more memory for its objects than for its characters.
BLOCK_DOCUMENTS: Final = 5000
# The counts of a CorpusReport that corpus.json keeps.
COUNTED: Final = (
    "num_empty_documents",
    "num_cut_documents",
    "num_lossy_paragraphs",
    "num_problems",
)
# And those that it keeps where there are some.
COUNTED_IF_ANY: Final = ("num_tags", "num_markup_files")


class Reading(msgspec.Struct, forbid_unknown_fields=True):
    """How far the files have been read.

    finished: documents of each finished file.  in_file: documents so far of the next one.
    counts: other findings in the finished files, by the names of a CorpusReport.
    """

    finished: list[Count] = []
    in_file: Count = 0
    num_duplicates: Count = 0
    counts: dict[str, Count] = msgspec.field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def end_file(self, report: CorpusReport, total: CorpusReport) -> None:
        """Note the end of a file, and add its ``report`` to the report of all files."""
        self.finished.append(report.num_documents)
        self.in_file = 0
        for name in (*COUNTED, *COUNTED_IF_ANY):
            if name in COUNTED or getattr(report, name):
                self.counts[name] = self.counts.get(name, 0) + getattr(report, name)
        for name in ("num_files", "num_documents", *COUNTED, *COUNTED_IF_ANY):
            setattr(total, name, getattr(total, name) + getattr(report, name))
        total.problems += report.problems[: KEPT_PROBLEMS - len(total.problems)]
        total.empty_files += report.empty_files
        total.column = report.column or total.column


@dataclass(frozen=True)
class Origin:
    """Where a block comes from; digests, files: (D,).  reading: how far it was at the end."""

    digests: Digests
    files: npt.NDArray[np.int64]
    reading: Reading
    bytes_read: int
    num_bytes: int


def new_blocks(
    files: Sequence[Source],
    options: CorpusOptions,
    reading: Reading,
    seen: SeenDigests,
    report: CorpusReport,
) -> Iterator[tuple[list[Document], Origin]]:
    """The new documents of the files, in blocks; ``reading`` and ``seen`` go on with them."""
    bytes_before = num_bytes = num_characters = 0
    # Each with the number of its file.
    found: list[tuple[Document, int]] = []

    def block(bytes_read: int) -> tuple[list[Document], Origin]:
        nonlocal found, num_bytes, num_characters
        digests, size = digests_of([document for document, _ in found])
        num_bytes += size
        is_new = seen.add(digests)
        reading.num_duplicates += len(found) - int(is_new.sum())
        new = [document for (document, _), new in zip(found, is_new, strict=True) if new]
        numbers = np.array([number for _, number in found])[is_new]
        found, num_characters = [], 0
        return new, Origin(digests[is_new], numbers, deepcopy(reading), bytes_read, num_bytes)

    for number, file in enumerate(files):
        if number >= len(reading.finished):
            of_file = CorpusReport()
            for document in _documents(file, options, reading, of_file):
                found.append((document, number))
                num_characters += sum(map(len, document))
                if num_characters >= BLOCK_CHARACTERS or len(found) >= BLOCK_DOCUMENTS:
                    yield block(bytes_before + of_file.bytes_read())
            file.check_unchanged()
            reading.end_file(of_file, report)
        bytes_before += file.num_bytes
    if found:
        yield block(bytes_before)


def _documents(
    file: Source, options: CorpusOptions, reading: Reading, of_file: CorpusReport
) -> Iterator[Document]:
    """The documents of a file that no earlier run has written."""
    written = reading.in_file
    try:
        for number, document in enumerate(read_documents([file], options, report=of_file), start=1):
            reading.in_file = number
            if number > written:
                yield document
    except DataError:
        # A file without documents is an error only if all files are.
        if not of_file.empty_files:
            raise
