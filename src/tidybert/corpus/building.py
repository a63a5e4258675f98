"""Files of text into a corpus of token shards: ``tidybert build-corpus``.

This process reads, unpacks and hashes; others split sentences and tokenise; this one writes, in the
order of the files.  So the bytes are the same for any number of processes, and also after a stop
and a new start.

A document whose text came before is left out and counted.  The text alone decides whether a
document is held out, so that training and held-out share none, and a text is on the same side in
every corpus.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.corpus.build_progress import (
    DIGESTS_FILE,
    Progress,
    Reading,
    begin,
    other_settings,
    remove_progress,
)
from tidybert.corpus.document_hashes import (
    DIGEST_BYTES,
    Digests,
    SeenDigests,
    check_held_out,
    digests_of,
    shares,
)
from tidybert.corpus.documents import CorpusOptions, CorpusReport, Document, read_documents
from tidybert.corpus.manifest import (
    MANIFEST_FILE,
    PARTS,
    Manifest,
    described,
    is_corpus,
    read_manifest,
)
from tidybert.corpus.packed_files import corpus_files
from tidybert.corpus.shard_writer import MAX_SHARD_TOKENS, Block, PartWriter
from tidybert.corpus.tokenizing import tokenize_in_order
from tidybert.errors import DataError, UsageError, param
from tidybert.storage.atomic_files import atomic_write_text, file_sha256
from tidybert.storage.growing_file import GrowingFile
from tidybert.storage.output_lock import output_lock
from tidybert.tokenization import BertTokenizer

BLOCK_CHARACTERS: Final = 1 << 20
# A block of short documents takes more memory for its objects than for its characters.
BLOCK_DOCUMENTS: Final = 5000
SYNC_SECONDS: Final = 10.0
# Hashing works outside Python's lock.
_HASHING_THREADS: Final = 2


@dataclass(frozen=True)
class Built:
    """How far a build is.

    ``bytes_read`` and ``total_bytes`` count the files as they are on the disk; ``num_bytes`` counts
    the texts in UTF-8 that this process has tokenised.
    """

    bytes_read: int
    total_bytes: int
    num_bytes: int
    num_documents: int
    num_tokens: int


@dataclass(frozen=True)
class _Origin:
    """Where a block comes from.

    digests, files: (D,) the hashes of its documents, and the numbers of their files.
    reading: how far the files had been read at its end.
    """

    digests: Digests
    files: npt.NDArray[np.int64]
    reading: Reading
    bytes_read: int
    num_bytes: int


def build_corpus(
    paths: Sequence[str | Path],
    tokenizer: BertTokenizer,
    directory: str | Path,
    *,
    options: CorpusOptions | None = None,
    held_out: float = 0.005,
    num_workers: int = 0,
    max_shard_tokens: int = MAX_SHARD_TOKENS,
    report: CorpusReport | None = None,
    progress: Callable[[Built], None] = lambda built: None,
) -> Manifest:
    """Build a corpus directory, or go on with one that was begun; a finished one stays as it is.

    held_out: share of the documents that go to the part held-out.  num_workers: processes that
    tokenise, besides this one; 0 for none.  report: filled with the findings in the files.
    progress: called after each block.

    Raises UsageError for a directory with other things in it, or begun with other settings, and
    DataError for files that cannot be read, InUseError where another process builds this corpus.
    """
    check_held_out(held_out)
    directory = Path(directory)
    files = corpus_files(paths)
    options = options or CorpusOptions()
    settings = {
        "files": _described_files(files),
        "vocabulary": described(tokenizer),
        "column": options.column,
        "encoding": options.encoding,
        "held_out": held_out,
        "max_shard_tokens": max_shard_tokens,
    }
    with output_lock(directory), ExitStack() as stack:
        if is_corpus(directory):
            manifest = read_manifest(directory)
            remove_progress(directory)
            if other := other_settings(manifest.settings, settings):
                raise UsageError(
                    f"{param('out', directory)} is a finished corpus of other files or settings "
                    f"({', '.join(other)}); name a new directory"
                )
            return manifest
        build = _Build(directory, files, tokenizer, options, begin(directory, settings), stack)
        return build.run(num_workers, CorpusReport() if report is None else report, progress)


class _Build:
    """One run of a build: reads on, writes on, and syncs its progress now and then."""

    def __init__(
        self,
        directory: Path,
        files: Sequence[Path],
        tokenizer: BertTokenizer,
        options: CorpusOptions,
        state: Progress,
        stack: ExitStack,
    ) -> None:
        self._directory = directory
        self._files = files
        self._tokenizer = tokenizer
        self._options = options
        self._state = state
        self._reading = state.reading
        digests = directory / DIGESTS_FILE
        size = state.num_digests * DIGEST_BYTES
        is_there = size > 0 or os.path.lexists(digests)
        self._digests = stack.enter_context(GrowingFile(digests, size if is_there else None))
        self._seen = SeenDigests(np.fromfile(digests, f"S{DIGEST_BYTES}"))
        dtype = np.dtype(state.settings["vocabulary"]["dtype"])
        max_tokens = state.settings["max_shard_tokens"]
        self._writers: dict[str, PartWriter] = {}
        for part in PARTS:
            writer = PartWriter(directory, part, dtype, max_tokens, state.parts.get(part))
            self._writers[part] = stack.enter_context(writer)

    def run(
        self, num_workers: int, report: CorpusReport, progress: Callable[[Built], None]
    ) -> Manifest:
        self._tokenizer.save(self._directory)
        total_bytes = sum(size for _, size, _ in self._state.settings["files"])
        synced = time.monotonic()
        blocks = self._blocks(report)
        for block, origin in tokenize_in_order(blocks, self._tokenizer, num_workers):
            self._write(block, origin)
            progress(
                Built(
                    bytes_read=origin.bytes_read,
                    total_bytes=total_bytes,
                    num_bytes=origin.num_bytes,
                    num_documents=self._digests.size // DIGEST_BYTES,
                    num_tokens=sum(writer.num_tokens for writer in self._writers.values()),
                )
            )
            if time.monotonic() - synced > SYNC_SECONDS:
                self._sync(origin.reading)
                synced = time.monotonic()
        return self._finish(report)

    def _blocks(self, report: CorpusReport) -> Iterator[tuple[list[Document], _Origin]]:
        """The documents that are new, in blocks."""
        bytes_before, num_bytes = 0, 0
        documents: list[Document] = []
        files: list[int] = []
        num_characters = 0

        def block(bytes_read: int) -> tuple[list[Document], _Origin]:
            nonlocal documents, files, num_characters, num_bytes
            digests, size = digests_of(documents)
            num_bytes += size
            is_new = self._seen.add(digests)
            self._reading.num_duplicates += len(documents) - int(is_new.sum())
            new = [documents[number] for number in np.flatnonzero(is_new)]
            reading, files_of_new = deepcopy(self._reading), np.array(files)[is_new]
            origin = _Origin(digests[is_new], files_of_new, reading, bytes_read, num_bytes)
            documents, files, num_characters = [], [], 0
            return new, origin

        for number, file in enumerate(self._files):
            if number >= len(self._reading.finished):
                of_file = CorpusReport()
                for document in self._documents(file, of_file):
                    documents.append(document)
                    files.append(number)
                    num_characters += sum(map(len, document))
                    if num_characters >= BLOCK_CHARACTERS or len(documents) >= BLOCK_DOCUMENTS:
                        yield block(bytes_before + of_file.bytes_read())
                self._reading.end_file(of_file, report)
            bytes_before += file.stat().st_size
        if documents:
            yield block(bytes_before)

    def _documents(self, file: Path, of_file: CorpusReport) -> Iterator[Document]:
        """The documents of a file that no earlier run has written."""
        written = self._reading.in_file
        try:
            documents = read_documents([file], self._options, report=of_file)
            for number, document in enumerate(documents, start=1):
                self._reading.in_file = number
                if number > written:
                    yield document
        except DataError:
            # A file without documents is an error only if all files are.
            if not of_file.empty_files:
                raise

    def _write(self, block: Block, origin: _Origin) -> None:
        is_empty = block.document_sentences == 0
        self._state.num_without_tokens += int(is_empty.sum())
        is_held_out = shares(origin.digests) < self._state.settings["held_out"]
        for part, is_in in (("train", ~is_held_out), ("held-out", is_held_out)):
            is_in &= ~is_empty
            self._writers[part].add(block.chosen(is_in))
            written = self._state.written.setdefault(part, [0] * len(self._files))
            for file in origin.files[is_in].tolist():
                written[file] += 1
        self._digests.write(origin.digests.tobytes())

    def _sync(self, reading: Reading) -> None:
        state = self._state
        state.reading = reading
        state.num_digests = self._digests.sync() // DIGEST_BYTES
        state.parts = {part: writer.sync() for part, writer in self._writers.items()}
        state.write(self._directory)

    def _finish(self, report: CorpusReport) -> Manifest:
        reading = self._reading
        if not sum(reading.finished):
            raise DataError("\n".join(["the corpus holds no document", *report.lines(str)]))
        settings = self._state.settings
        manifest = Manifest(
            settings=settings,
            sources=[
                {"file": file, "bytes": size, "documents": read, "train": train, "held-out": apart}
                for (file, size, _), read, train, apart in zip(
                    settings["files"],
                    reading.finished,
                    self._state.written["train"],
                    self._state.written["held-out"],
                    strict=True,
                )
            ],
            counts={
                "documents": sum(reading.finished),
                "duplicates": reading.num_duplicates,
                "without_tokens": self._state.num_without_tokens,
                **reading.counts,
            },
            parts={part: writer.finish() for part, writer in self._writers.items()},
        )
        text = json.dumps(manifest.to_dict(), indent=1, ensure_ascii=False)
        atomic_write_text(self._directory / MANIFEST_FILE, text + "\n")
        remove_progress(self._directory)
        return manifest


def _described_files(files: Sequence[Path]) -> list[list[Any]]:
    """Each file's name, bytes and sha256: an edited file is another file, whatever its size."""
    with ThreadPoolExecutor(_HASHING_THREADS) as pool:
        digests = list(pool.map(file_sha256, files))
    return [
        # corpus.json is UTF-8, which the name of a file need not be.
        [os.fsencode(file).decode("utf-8", "backslashreplace"), file.stat().st_size, digest]
        for file, digest in zip(files, digests, strict=True)
    ]
