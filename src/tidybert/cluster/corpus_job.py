"""A corpus built by many workers: the same shards as by one process, byte for byte.

Workers make a part of each file.  Then each finds the documents that came before among a share of
the hashes.  This process writes the shards from the parts, in the order of the files.
"""

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidybert.cluster.file_job import JobReport, run_job
from tidybert.cluster.input_files import InputFile
from tidybert.cluster.ray_engine import ray_cluster
from tidybert.corpus.building import Origin, Reading, build_corpus, new_blocks
from tidybert.corpus.documents import (
    STANDARD_INPUT,
    CorpusOptions,
    CorpusReport,
    Source,
    corpus_files,
    source_of,
)
from tidybert.corpus.screening import DIGEST_BYTES, Digests, SeenDigests, check_held_out
from tidybert.corpus.token_shards import Block, Manifest, described, is_corpus
from tidybert.corpus.tokenizing import tokenized
from tidybert.errors import DataError, UsageError, param
from tidybert.files.reading import ReadReport
from tidybert.files.rows import Problem
from tidybert.inference.text_jobs import FileJob
from tidybert.storage.atomic_files import atomic_file
from tidybert.storage.json_objects import json_checksum
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import remove_tree
from tidybert.storage.part_file import Written
from tidybert.storage.remote_files import is_remote
from tidybert.system.reporter import SILENT, Reporter
from tidybert.tokenization import BertTokenizer

# A file of a corpus as a part: the hash, the sentences' lengths and the ids of each document.
#
# A part is an Arrow stream with a batch for each block, and last an empty batch whose metadata say
# what was found in the file.  Documents that came before are in it too: which they are is only
# known when all parts are there.

_BYTES: Final = b"bytes"
_FOUND: Final = b"found"


@dataclass(frozen=True)
class PartBlock:
    """Documents of a part: their ids, their hashes (D,), and their bytes in UTF-8."""

    block: Block
    digests: Digests
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class CorpusFileJob(FileJob):
    """Reads, hashes and tokenises each file; ``model`` has the vocabulary."""

    corpus: CorpusOptions = field(default_factory=CorpusOptions)
    name: ClassVar = "build-corpus"
    suffix: ClassVar = ".part"

    def load(self) -> Any:
        return _Vocabulary(BertTokenizer.from_pretrained(self.model))

    def settings(self) -> dict[str, Any]:
        return {"corpus": asdict(self.corpus)}

    def write_file(
        self, opened: Any, source: Path, target: Path, report: ReadReport, reporter: Reporter
    ) -> Written:
        reading, of_file, all_new = Reading(), CorpusReport(), _AllNew()
        blocks = new_blocks([source_of(source)], self.corpus, reading, all_new, of_file)
        num_bytes = num_documents = 0
        ids = pa.from_numpy_dtype(np.dtype(described(opened.tokenizer)["dtype"]))
        schema = pa.schema(
            [
                ("digest", pa.binary(DIGEST_BYTES)),
                ("sentence_lengths", pa.large_list(pa.int64())),
                ("ids", pa.large_list(ids)),
            ]
        )
        with atomic_file(target) as partial, pa.ipc.new_stream(str(partial), schema) as stream:
            for documents, origin in blocks:
                block = tokenized(documents, opened.tokenizer)
                batch = _batch(block, origin.digests, schema)
                size = str(origin.num_bytes - num_bytes).encode()
                stream.write_batch(batch, custom_metadata={_BYTES: size})
                num_bytes, num_documents = origin.num_bytes, num_documents + len(documents)
                reporter.advance(num_documents)
            found = {
                "num_documents": sum(reading.finished),
                "counts": reading.counts,
                "problems": [[each.row, each.message] for _, each in of_file.problems],
                "is_empty": bool(of_file.empty_files),
            }
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            stream.write_batch(empty, custom_metadata={_FOUND: json.dumps(found).encode()})
        report.num_problems = of_file.num_problems
        return Written(num_documents, 0, 0)


def read_part(
    path: Path, source: str, reading: Reading, report: CorpusReport
) -> Iterator[PartBlock]:
    """The blocks of a part; at its end ``reading`` and ``report`` know the file ``source``."""
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            while True:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
                if _FOUND in metadata:
                    found = json.loads(metadata[_FOUND])
                    of_file = CorpusReport(
                        num_files=1,
                        num_documents=found["num_documents"],
                        problems=[(source, Problem(*each)) for each in found["problems"]],
                        empty_files=[source] if found["is_empty"] else [],
                        **found["counts"],
                    )
                    reading.end_file(of_file, report)
                    return
                yield PartBlock(_block(batch), _digests(batch), int(metadata[_BYTES]))
    except (pa.ArrowException, OSError, StopIteration, KeyError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it, and the same command") from error


def duplicates(paths: Sequence[Path], partition: int, num_partitions: int) -> npt.NDArray[np.int64]:
    """(K, 2) the parts and documents in them whose hash came before, of a share of all hashes.

    The shares are disjoint, so any number of workers can have some.  Memory is 16 bytes a hash of
    the share, and about three times that while they are sorted.
    """
    found, places = [], []
    for number, path in enumerate(paths):
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            begin = 0
            for batch in stream:
                digests = _digests(batch)
                first = np.frombuffer(digests.tobytes(), "<u4")[:: DIGEST_BYTES // 4]
                at = np.flatnonzero(first % num_partitions == partition)
                found.append(digests[at])
                places.append(np.stack([np.full(len(at), number), begin + at], axis=1))
                begin += len(digests)
    if not found:
        return np.zeros((0, 2), np.int64)
    _, first_of = np.unique(np.concatenate(found), return_index=True)
    is_first = np.zeros(sum(map(len, found)), np.bool_)
    is_first[first_of] = True
    return np.concatenate(places)[~is_first].astype(np.int64)


class _AllNew(SeenDigests):
    """Takes every document for a new one: a worker does not know the other files."""

    def __init__(self) -> None:
        super().__init__(np.zeros(0, f"S{DIGEST_BYTES}"))

    def add(self, digests: Digests) -> npt.NDArray[np.bool_]:
        return np.ones(len(digests), np.bool_)


@dataclass(frozen=True)
class _Vocabulary:
    tokenizer: BertTokenizer

    @property
    def fingerprint(self) -> str:
        return json_checksum(described(self.tokenizer))


def _batch(block: Block, digests: Digests, schema: pa.Schema) -> pa.RecordBatch:
    def lists(values: Any, lengths: Any, kind: pa.DataType) -> pa.Array:
        ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
        return pa.LargeListArray.from_arrays(ends, pa.array(values, kind.value_type))

    _, lengths, ids = schema.types
    return pa.record_batch(
        [
            pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(DIGEST_BYTES), len(digests), [None, pa.py_buffer(digests.tobytes())]
            ),
            lists(block.sentence_lengths, block.document_sentences, lengths),
            lists(block.ids, block.document_lengths(), ids),
        ],
        schema=schema,
    )


def _digests(batch: pa.RecordBatch) -> Digests:
    column = batch.column("digest")
    content = column.buffers()[1][: DIGEST_BYTES * len(column)]
    return np.frombuffer(content, f"S{DIGEST_BYTES}")


def _block(batch: pa.RecordBatch) -> Block:
    lengths = batch.column("sentence_lengths")
    return Block(
        batch.column("ids").values.to_numpy(),
        lengths.values.to_numpy(),
        np.diff(lengths.offsets.to_numpy()),
    )


# The most hashes that a worker sorts at once, in an estimated gibibyte.
HASHES_AT_ONCE: Final = 2**24


def build_corpus_on_cluster(
    paths: Sequence[str | Path],
    work: CorpusFileJob,
    directory: str | Path,
    *,
    cluster: str,
    num_workers: int | None = None,
    report: CorpusReport | None = None,
    reporter: Reporter = SILENT,
    **options: Any,
) -> Manifest:
    """Build a corpus directory, or go on with one that was begun, by the same call."""
    directory = Path(directory)
    check_held_out(options.get("held_out", 0))
    tokenizer = BertTokenizer.from_pretrained(work.model)
    build = partial(
        build_corpus,
        paths,
        tokenizer,
        directory,
        options=work.corpus,
        report=CorpusReport() if report is None else report,
        **options,
    )
    parts = directory.with_name(f"{directory.name}.parts")
    with output_lock(directory):
        if is_corpus(directory):
            return build()
        sources = corpus_files(paths)
        files = _named(sources)
        with ray_cluster(cluster) as engine:
            done = run_job(
                work,
                files,
                parts,
                cluster=cluster,
                num_workers=num_workers,
                reporter=reporter,
            )
            made = [parts / f"{file.name}{work.suffix}" for file in files]
            shares = -(-_num_documents(done) // HASHES_AT_ONCE) or 1
            asked = [(made, each, shares) for each in range(shares)]
            # One share takes less time than the start of a process for it.
            found = [duplicates(*asked[0])] if shares == 1 else engine.results(duplicates, asked)
            places = np.concatenate(list(found))  # (K, 2): a part, and a document of it
            places = places[np.lexsort(places.T[::-1])]
            ends = np.searchsorted(places[:, 0], np.arange(len(made) + 1))
            repeated = [places[begin:end, 1] for begin, end in pairwise(ends)]
        manifest = build(tokenised=partial(_blocks, sources, made, repeated))
        remove_tree(parts)
    return manifest


def _named(sources: Sequence[Source]) -> list[InputFile]:
    """The files, each with a name of its own for its part.  Raises UsageError."""
    if any(source.name == STANDARD_INPUT for source in sources):
        raise UsageError(f"{param('cluster')} reads files, and no standard input")
    return [
        InputFile(
            f"{number:06}-{PurePosixPath(source.name).name}",
            source.name if is_remote(source.name) else str(Path(source.name).absolute()),
            source.num_bytes,
            str(source.state),
        )
        for number, source in enumerate(sources)
    ]


def _num_documents(done: JobReport) -> int:
    return sum(each.num_rows for each in (*done.before, *done.done))


def _blocks(
    sources: Sequence[Source],
    parts: Sequence[Path],
    repeated: Sequence[npt.NDArray[np.int64]],
    reading: Reading,
    report: CorpusReport,
) -> Iterator[tuple[Block, Origin]]:
    """The new documents of all parts, from where ``reading`` is."""
    bytes_read = num_bytes = 0
    for number, (source, path) in enumerate(zip(sources, parts, strict=True)):
        bytes_read += source.num_bytes
        if number < len(reading.finished):
            continue
        # What an earlier run has written of this file.
        written, begin = reading.in_file, 0
        for one in read_part(path, source.name, reading, report):
            end = begin + len(one.digests)
            num_bytes += one.num_bytes
            is_new = np.ones(len(one.digests), np.bool_)
            inside = repeated[number][(repeated[number] >= begin) & (repeated[number] < end)]
            is_new[inside - begin] = False
            is_left = np.arange(begin, end) >= written
            if is_left.any():
                reading.in_file = end
                reading.num_duplicates += int((is_left & ~is_new).sum())
                is_new &= is_left
                digests = one.digests[is_new]
                numbers = np.full(len(digests), number)
                origin = Origin(digests, numbers, deepcopy(reading), bytes_read, num_bytes)
                yield one.block.chosen(is_new), origin
            begin = end
