"""A file of a corpus as a part: the hash, the sentences' lengths and the ids of each document.

A part is an Arrow stream with a batch for each block, and last an empty batch whose metadata say
what was found in the file.  Documents that came before are in it too: which they are is only known
when all parts are there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidybert.cluster.file_work import Advance, FileWork
from tidybert.corpus.document_hashes import DIGEST_BYTES, Digests, SeenDigests
from tidybert.corpus.documents import CorpusOptions, CorpusReport
from tidybert.corpus.manifest import described
from tidybert.corpus.new_documents import Reading, new_blocks
from tidybert.corpus.shard_writer import Block
from tidybert.corpus.sources import source_of
from tidybert.corpus.tokenizing import tokenized
from tidybert.errors import DataError
from tidybert.files.raw_rows import Problem
from tidybert.files.read_report import ReadReport
from tidybert.storage.atomic_files import atomic_file
from tidybert.storage.json_objects import json_checksum
from tidybert.storage.part_file import Written
from tidybert.tokenization import BertTokenizer

_BYTES: Final = b"bytes"
_FOUND: Final = b"found"


@dataclass(frozen=True)
class PartBlock:
    """Documents of a part: their ids, their hashes (D,), and their bytes in UTF-8."""

    block: Block
    digests: Digests
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class CorpusWork(FileWork):
    """Reads, hashes and tokenises each file; ``model`` has the vocabulary."""

    corpus: CorpusOptions = field(default_factory=CorpusOptions)
    name: ClassVar = "build-corpus"
    suffix: ClassVar = ".part"

    def load(self) -> Any:
        return _Vocabulary(BertTokenizer.from_pretrained(self.model))

    def settings(self) -> dict[str, Any]:
        return {"corpus": asdict(self.corpus)}

    def write(
        self, opened: Any, source: Path, target: Path, report: ReadReport, advance: Advance
    ) -> Written:
        reading, of_file, all_new = Reading(), CorpusReport(), _AllNew()
        blocks = new_blocks([source_of(source)], self.corpus, reading, all_new, of_file)
        num_bytes = num_documents = 0
        schema = _schema(np.dtype(described(opened.tokenizer)["dtype"]))
        with atomic_file(target) as partial, pa.ipc.new_stream(str(partial), schema) as stream:
            for documents, origin in blocks:
                block = tokenized(documents, opened.tokenizer)
                batch = _batch(block, origin.digests, schema)
                size = str(origin.num_bytes - num_bytes).encode()
                stream.write_batch(batch, custom_metadata={_BYTES: size})
                num_bytes, num_documents = origin.num_bytes, num_documents + len(documents)
                advance(num_documents)
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
                    _note_file(json.loads(metadata[_FOUND]), source, reading, report)
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


def _schema(dtype: np.dtype[Any]) -> pa.Schema:
    ids, lengths = pa.from_numpy_dtype(dtype), pa.int64()
    return pa.schema(
        [
            ("digest", pa.binary(DIGEST_BYTES)),
            ("sentence_lengths", pa.large_list(lengths)),
            ("ids", pa.large_list(ids)),
        ]
    )


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


def _note_file(
    found: Mapping[str, Any], source: str, reading: Reading, report: CorpusReport
) -> None:
    problems = [(source, Problem(row, message)) for row, message in found["problems"]]
    of_file = CorpusReport(
        num_files=1,
        num_documents=found["num_documents"],
        problems=problems,
        empty_files=[source] if found["is_empty"] else [],
        **found["counts"],
    )
    reading.end_file(of_file, report)
