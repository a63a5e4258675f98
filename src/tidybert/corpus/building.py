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
from copy import copy, deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from tidybert.corpus.documents import (
    CorpusOptions,
    CorpusReport,
    Document,
    Source,
    corpus_files,
    read_documents,
)
from tidybert.corpus.screening import (
    DIGEST_BYTES,
    NOTHING_FOUND,
    Digests,
    Found,
    Screening,
    SeenDigests,
    check_held_out,
    digests_of,
    shares,
)
from tidybert.corpus.token_shards import (
    HASHING_THREADS,
    MANIFEST_FILE,
    MAX_SHARD_TOKENS,
    PARTS,
    Block,
    BuildSettings,
    Manifest,
    PartState,
    PartWriter,
    described,
    is_corpus,
    read_manifest,
)
from tidybert.corpus.tokenizing import tokenize_in_order
from tidybert.errors import DataError, param
from tidybert.files.reading import KEPT_PROBLEMS
from tidybert.files.rows import count_of
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.journal import Count, Journal, check_settings, is_begun
from tidybert.storage.limits import MANIFEST_BYTES
from tidybert.storage.output_lock import contents, output_lock
from tidybert.storage.own_files import GrowingFile, remove_tree
from tidybert.tokenization import BertTokenizer

# The documents of the files that no run has written yet, in blocks, without those seen before.

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


# How far a build is, on the disk, so that it can go on after a stop of any kind.
#
# progress.json holds the build's settings, how far it has read and how long each file was then;
# digests.bin has the hashes of the documents seen, and bands.bin those for near-duplicates.  A
# finished corpus has none of them.

PROGRESS_FILE: Final = "progress.json"
DIGESTS_FILE: Final = "digests.bin"
BANDS_FILE: Final = "bands.bin"
EXCLUDED_FILE: Final = "excluded.jsonl"


class Progress(msgspec.Struct, forbid_unknown_fields=True):
    """How far a build is.

    ``num_digests``: documents whose hashes are in digests.bin, the next counts among them.
    ``written``: for each part, its documents from each file.
    """

    settings: BuildSettings
    held_out: int | float
    reading: Reading = msgspec.field(default_factory=Reading)
    num_digests: Count = 0
    num_without_tokens: Count = 0
    num_near_duplicates: Count = 0
    num_excluded: Count = 0
    sizes: dict[str, Count] = {}
    written: dict[str, list[Count]] = {}
    parts: dict[str, PartState] = {}


def journal_in(directory: Path) -> Journal[Progress]:
    """The progress.json of a corpus that is built."""
    way_out = f"remove {directory} and build the corpus again"
    return Journal(directory / PROGRESS_FILE, Progress, way_out, limit=MANIFEST_BYTES)


def begin(directory: Path, settings: BuildSettings) -> Progress:
    """The progress of an earlier run, or that of a new one in a directory that this makes."""
    journal = journal_in(directory)
    if not is_begun(directory, [PROGRESS_FILE], "corpus"):
        progress = Progress(settings, settings.held_out)
        journal.write(progress)
        return progress
    progress = journal.read()
    advice = "repeat those settings to continue it, or name a new directory"
    _check_settings(directory, "a corpus begun", progress.settings, settings, advice)
    return progress


def _check_settings(
    directory: Path, what: str, before: BuildSettings, now: BuildSettings, advice: str
) -> None:
    subject = f"{param('out', directory)} holds {what}"
    check_settings(msgspec.to_builtins(before), msgspec.to_builtins(now), subject, advice)


def remove_progress(directory: Path) -> None:
    for name in (PROGRESS_FILE, DIGESTS_FILE, BANDS_FILE):
        remove_tree(directory / name)


SYNC_SECONDS: Final = 10.0


Tokenised = Callable[[Reading, CorpusReport], Iterator[tuple[Block, Origin]]]


@dataclass(frozen=True)
class Built:
    """How far a build is: bytes on the disk, of all; bytes of text in UTF-8, tokenised here."""

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
    least_held_out: int = 0,
    screening: Screening | None = None,
    num_workers: int = 0,
    max_shard_tokens: int = MAX_SHARD_TOKENS,
    report: CorpusReport | None = None,
    progress: Callable[[Built], None] = lambda built: None,
    tokenised: Tokenised | None = None,
) -> Manifest:
    """Build a corpus directory, or go on with one that was begun; a finished one stays as it is.

    held_out: share of the documents that go to the part held-out; a larger one, if that is fewer
    than ``least_held_out`` documents and the share is not 0.  num_workers: processes that tokenise
    beside this one.  tokenised: gives the new documents of the files as blocks, from where its
    ``Reading`` is, where others have tokenised them.
    """
    check_held_out(held_out)
    directory = Path(directory)
    files = corpus_files(paths)
    options = options or CorpusOptions()
    screening = screening or Screening()
    evaluation = screening.evaluation
    # An edited file is another file, whatever its size.
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        digests = list(pool.map(Source.content_hash, files))
    settings = BuildSettings(
        files=[
            # corpus.json is UTF-8, which the name of a file need not be.
            (os.fsencode(file).decode("utf-8", "backslashreplace"), file.num_bytes, digest)
            for file, digest in zip(files, digests, strict=True)
        ],
        vocabulary=described(tokenizer),
        column=options.column or "text",
        encoding=options.encoding,
        held_out=held_out,
        max_shard_tokens=max_shard_tokens,
        near_duplicates=screening.near_duplicates,
        exclude=None if evaluation is None else evaluation.sha256(),
    )
    report = CorpusReport() if report is None else report
    with output_lock(directory):
        if is_corpus(directory):
            manifest = read_manifest(directory)
            remove_progress(directory)
            advice = "name a new directory"
            _check_settings(directory, "a finished corpus", manifest.settings, settings, advice)
            return manifest
        state = begin(directory, settings)
        # How pairs are cut is no matter of a corpus, and older versions wrote nothing of it.
        own = copy(tokenizer)
        own.odd_to_longer = None
        own.save(directory)
        total_bytes = sum(size for _, size, _ in settings.files)
        while True:
            of_round = CorpusReport()
            with _Output(directory, state, screening.num_bands) as output:
                reading, synced = state.reading, time.monotonic()
                if tokenised is None:
                    new = new_blocks(files, options, reading, output.seen(), of_round)
                    blocks = tokenize_in_order(new, tokenizer, num_workers, screening)
                else:
                    made = tokenised(reading, of_round)
                    blocks = (((block, NOTHING_FOUND), origin) for block, origin in made)
                for (block, found), origin in blocks:
                    output.write(block, found, origin)
                    progress(output.built(origin, total_bytes))
                    if time.monotonic() - synced > SYNC_SECONDS:
                        output.sync(origin.reading)
                        synced = time.monotonic()
                vars(report).update(vars(of_round))
                if not sum(reading.finished):
                    raise DataError("\n".join(["the corpus holds no document", *report.lines(str)]))
                try:
                    larger = output.larger_share(least_held_out)
                except DataError:
                    # Nothing of it can be continued.
                    for path in contents(directory):
                        remove_tree(path)
                    raise
                if larger is None:
                    return output.finish(reading)
            # Which documents are held out is known at the end: such a corpus is built in no time.
            state = Progress(settings, larger)
            journal_in(directory).write(state)


class _Output:
    """The files of a corpus that is built: they grow, and ``sync`` notes how far they are."""

    def __init__(self, directory: Path, state: Progress, num_bands: int) -> None:
        self._directory, self._state, self._num_bands = directory, state, num_bands
        self._stack = stack = ExitStack()
        self._beside: dict[str, GrowingFile] = {}

        def grown(name: str, size: int) -> GrowingFile:
            is_there = size > 0 or os.path.lexists(directory / name)
            file = GrowingFile(directory / name, size if is_there else None)
            stack.callback(file.close)
            return file

        wanted = {BANDS_FILE: num_bands, EXCLUDED_FILE: state.settings.exclude}
        for name in [name for name, is_wanted in wanted.items() if is_wanted]:
            self._beside[name] = grown(name, state.sizes.get(name, 0))
        self._bands = SeenDigests(
            np.fromfile(directory / BANDS_FILE, f"S{DIGEST_BYTES}")
            if num_bands
            else np.empty(0, f"S{DIGEST_BYTES}")
        )
        self._digests = grown(DIGESTS_FILE, state.num_digests * DIGEST_BYTES)
        dtype = np.dtype(state.settings.vocabulary["dtype"])
        max_tokens = state.settings.max_shard_tokens
        self._writers: dict[str, PartWriter] = {}
        for part in PARTS:
            writer = PartWriter(directory, part, dtype, max_tokens, state.parts.get(part))
            self._writers[part] = stack.enter_context(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def larger_share(self, least: int) -> float | None:
        """The share that holds out ``least`` documents; None where that is done or not wanted."""
        written = {part: sum(numbers) for part, numbers in self._state.written.items()}
        if not self._state.held_out or written["held-out"] >= least:
            return None
        total = sum(written.values())
        if total < 2 * least:
            raise DataError(
                f"the corpus is too small: it has {count_of(total, 'document')}, and "
                f"{param('held_out')} keeps at least {least} apart to measure on; give "
                f"{2 * least} documents or more, or {param('held_out', 0)} to keep none apart"
            )
        self._digests.sync()
        sorted_shares = np.sort(shares(np.fromfile(self._digests.path, f"S{DIGEST_BYTES}")))
        # Documents without a token are among them, and cannot be measured on.
        place = int(np.searchsorted(sorted_shares, self._state.held_out)) + least
        place -= written["held-out"]
        return float(np.nextafter(sorted_shares[min(place, len(sorted_shares)) - 1], 1.0))

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

    def write(self, block: Block, found: Found, origin: Origin) -> None:
        """Write the documents of a block, each to its part, without those to leave out."""
        state = self._state
        is_empty = block.document_sentences == 0
        state.num_without_tokens += int(is_empty.sum())
        is_left_out = self._screened(found, origin, is_empty)
        is_held_out = shares(origin.digests) < state.held_out
        for part, is_in in (("train", ~is_held_out), ("held-out", is_held_out)):
            is_in &= ~is_empty & ~is_left_out
            self._writers[part].add(block.chosen(is_in))
            written = state.written.setdefault(part, [0] * len(state.settings.files))
            for file in origin.files[is_in].tolist():
                written[file] += 1
        self._digests.write(origin.digests.tobytes())

    def _screened(
        self, found: Found, origin: Origin, is_empty: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """(D,): the documents that quote evaluation data or are like an earlier one; counted."""
        state = self._state
        is_left_out = np.zeros(len(is_empty), np.bool_)
        names = state.settings.files
        for place, evaluation, words in found.excluded:
            is_left_out[place] = True
            line = {"file": names[int(origin.files[place])][0], "in": evaluation, "words": words}
            self._beside[EXCLUDED_FILE].write(
                (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
            )
        state.num_excluded += len(found.excluded)
        if self._num_bands:
            is_new = self._bands.add(found.bands).reshape(-1, self._num_bands)
            self._beside[BANDS_FILE].write(found.bands.tobytes())
            is_near = ~is_new.all(1) & ~is_left_out & ~is_empty
            state.num_near_duplicates += int(is_near.sum())
            is_left_out |= is_near
        return is_left_out

    def sync(self, reading: Reading) -> None:
        """Have a later run go on from here, where ``reading`` is."""
        state = self._state
        state.reading = reading
        state.num_digests = self._digests.sync() // DIGEST_BYTES
        state.sizes = {name: file.sync() for name, file in self._beside.items()}
        state.parts = {part: writer.sync() for part, writer in self._writers.items()}
        journal_in(self._directory).write(state)

    def finish(self, reading: Reading) -> Manifest:
        """End the shards and write corpus.json; what only a build needs goes."""
        settings, written = self._state.settings, self._state.written
        counts = zip(reading.finished, written["train"], written["held-out"], strict=True)
        manifest = Manifest(
            settings=settings,
            sources=[
                {"file": file, "bytes": size, "documents": read, "train": train, "held-out": apart}
                for (file, size, _), (read, train, apart) in zip(
                    settings.files, counts, strict=True
                )
            ],
            counts={
                "documents": sum(reading.finished),
                "duplicates": reading.num_duplicates,
                "without_tokens": self._state.num_without_tokens,
                "near_duplicates": self._state.num_near_duplicates,
                "excluded": self._state.num_excluded,
                **reading.counts,
            },
            parts={part: writer.finish() for part, writer in self._writers.items()},
        )
        for file in self._beside.values():
            file.sync()
        text = json.dumps(msgspec.to_builtins(manifest), indent=1, ensure_ascii=False)
        atomic_write_text(self._directory / MANIFEST_FILE, text + "\n")
        remove_progress(self._directory)
        return manifest
