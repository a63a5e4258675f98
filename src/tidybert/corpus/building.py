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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tidybert.corpus.build_progress import (
    DIGESTS_FILE,
    Progress,
    begin,
    described_files,
    other_settings,
    remove_progress,
)
from tidybert.corpus.document_hashes import (
    DIGEST_BYTES,
    SeenDigests,
    check_held_out,
    shares,
)
from tidybert.corpus.documents import CorpusOptions, CorpusReport
from tidybert.corpus.manifest import (
    MANIFEST_FILE,
    PARTS,
    Manifest,
    described,
    is_corpus,
    read_manifest,
)
from tidybert.corpus.new_documents import Origin, Reading, new_blocks
from tidybert.corpus.packed_files import corpus_files
from tidybert.corpus.shard_writer import MAX_SHARD_TOKENS, Block, PartWriter
from tidybert.corpus.sources import Source
from tidybert.corpus.tokenizing import tokenize_in_order
from tidybert.errors import DataError, UsageError, param
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.growing_file import GrowingFile
from tidybert.storage.output_lock import output_lock
from tidybert.tokenization import BertTokenizer

SYNC_SECONDS: Final = 10.0


Tokenised = Callable[[Reading, CorpusReport], Iterator[tuple[Block, Origin]]]


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


def build_corpus(
    paths: Sequence[str | Path | Source],
    tokenizer: BertTokenizer,
    directory: str | Path,
    *,
    options: CorpusOptions | None = None,
    held_out: float = 0.005,
    num_workers: int = 0,
    max_shard_tokens: int = MAX_SHARD_TOKENS,
    report: CorpusReport | None = None,
    progress: Callable[[Built], None] = lambda built: None,
    tokenised: Tokenised | None = None,
) -> Manifest:
    """Build a corpus directory, or go on with one that was begun; a finished one stays as it is.

    held_out: share of the documents that go to the part held-out.  num_workers: processes that
    tokenise, besides this one; 0 for none.  report: filled with the findings in the files.
    progress: called after each block.
    tokenised: gives the new documents of the files as blocks, from where its ``Reading`` is, where
    others have tokenised them; None reads and tokenises here.

    Raises UsageError for a directory with other things in it, or begun with other settings, and
    DataError for files that cannot be read, InUseError where another process builds this corpus.
    """
    check_held_out(held_out)
    directory = Path(directory)
    files = corpus_files(paths)
    options = options or CorpusOptions()
    settings: dict[str, Any] = {
        "files": described_files(files),
        "vocabulary": described(tokenizer),
        "column": options.column,
        "encoding": options.encoding,
        "held_out": held_out,
        "max_shard_tokens": max_shard_tokens,
    }
    report = CorpusReport() if report is None else report
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
        state = begin(directory, settings)
        tokenizer.save(directory)
        output = _Output(directory, state, stack)
        reading, total_bytes = state.reading, sum(size for _, size, _ in settings["files"])
        synced = time.monotonic()
        if tokenised is None:
            new = new_blocks(files, options, reading, output.seen(), report)
            blocks = tokenize_in_order(new, tokenizer, num_workers)
        else:
            blocks = tokenised(reading, report)
        for block, origin in blocks:
            output.write(block, origin)
            progress(output.built(origin, total_bytes))
            if time.monotonic() - synced > SYNC_SECONDS:
                output.sync(origin.reading)
                synced = time.monotonic()
        if not sum(reading.finished):
            raise DataError("\n".join(["the corpus holds no document", *report.lines(str)]))
        return output.finish(reading)


class _Output:
    """The files of a corpus that is built: they grow, and ``sync`` notes how far they are."""

    def __init__(self, directory: Path, state: Progress, stack: ExitStack) -> None:
        self._directory, self._state = directory, state
        path, size = directory / DIGESTS_FILE, state.num_digests * DIGEST_BYTES
        is_there = size > 0 or os.path.lexists(path)
        self._digests = GrowingFile(path, size if is_there else None)
        stack.callback(self._digests.close)
        dtype = np.dtype(state.settings["vocabulary"]["dtype"])
        max_tokens = state.settings["max_shard_tokens"]
        self._writers: dict[str, PartWriter] = {}
        for part in PARTS:
            writer = PartWriter(directory, part, dtype, max_tokens, state.parts.get(part))
            self._writers[part] = stack.enter_context(writer)

    def seen(self) -> SeenDigests:
        """The hashes of the documents in the files; before the first ``write`` only."""
        return SeenDigests(np.fromfile(self._digests.path, f"S{DIGEST_BYTES}"))

    def built(self, origin: Origin, total_bytes: int) -> Built:
        return Built(
            bytes_read=origin.bytes_read,
            total_bytes=total_bytes,
            num_bytes=origin.num_bytes,
            num_documents=self._digests.size // DIGEST_BYTES,
            num_tokens=sum(writer.num_tokens for writer in self._writers.values()),
        )

    def write(self, block: Block, origin: Origin) -> None:
        """Write the documents of a block, each to its part."""
        state = self._state
        is_empty = block.document_sentences == 0
        state.num_without_tokens += int(is_empty.sum())
        is_held_out = shares(origin.digests) < state.settings["held_out"]
        for part, is_in in (("train", ~is_held_out), ("held-out", is_held_out)):
            is_in &= ~is_empty
            self._writers[part].add(block.chosen(is_in))
            written = state.written.setdefault(part, [0] * len(state.settings["files"]))
            for file in origin.files[is_in].tolist():
                written[file] += 1
        self._digests.write(origin.digests.tobytes())

    def sync(self, reading: Reading) -> None:
        """Have a later run go on from here, where ``reading`` is."""
        state = self._state
        state.reading = reading
        state.num_digests = self._digests.sync() // DIGEST_BYTES
        state.parts = {part: writer.sync() for part, writer in self._writers.items()}
        state.write(self._directory)

    def finish(self, reading: Reading) -> Manifest:
        """End the shards and write corpus.json; what only a build needs goes."""
        settings, written = self._state.settings, self._state.written
        counts = zip(reading.finished, written["train"], written["held-out"], strict=True)
        manifest = Manifest(
            settings=settings,
            sources=[
                {"file": file, "bytes": size, "documents": read, "train": train, "held-out": apart}
                for (file, size, _), (read, train, apart) in zip(
                    settings["files"], counts, strict=True
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
