"""A corpus built by many workers: the same shards as by one process, byte for byte.

Workers make a part of each file.  Then each finds the documents that came before among a share of
the hashes.  This process writes the shards from the parts, in the order of the files.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.cluster.corpus_parts import CorpusWork, duplicates, read_part
from tidybert.cluster.file_job import JobReport, run_job
from tidybert.cluster.input_files import InputFile
from tidybert.cluster.ray_engine import ray_cluster
from tidybert.corpus.building import build_corpus
from tidybert.corpus.document_hashes import check_held_out
from tidybert.corpus.documents import CorpusReport
from tidybert.corpus.manifest import Manifest, is_corpus
from tidybert.corpus.new_documents import Origin, Reading
from tidybert.corpus.packed_files import corpus_files
from tidybert.corpus.shard_writer import Block
from tidybert.corpus.sources import STANDARD_INPUT, Source
from tidybert.errors import UsageError, param
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import remove_tree
from tidybert.storage.remote_files import is_remote
from tidybert.tokenization import BertTokenizer

# The most hashes that a worker sorts at once, in an estimated gibibyte.
HASHES_AT_ONCE: Final = 2**24


def build_corpus_on_cluster(
    paths: Sequence[str | Path],
    work: CorpusWork,
    directory: str | Path,
    *,
    cluster: str,
    num_workers: int | None = None,
    report: CorpusReport | None = None,
    begun: Callable[[int, int], None] = lambda num_done, num_files: None,
    advance: Callable[[int], None] = lambda num_documents: None,
    **options: Any,
) -> Manifest:
    """Build a corpus directory, or go on with one that was begun, by the same call.

    Args:
        work: the vocabulary, and how to read.
        options: held_out, max_shard_tokens and progress of ``build_corpus``.

    Raises as ``build_corpus`` and ``run_job``.
    """
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
                begun=begun,
                advance=advance,
            )
            made = [parts / f"{file.name}{work.suffix}" for file in files]
            shares = -(-_num_documents(done) // HASHES_AT_ONCE) or 1
            found = engine.results(duplicates, [(made, each, shares) for each in range(shares)])
            repeated = _by_part(np.concatenate(list(found)), len(made))
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


def _by_part(repeated: npt.NDArray[np.int64], num_parts: int) -> list[npt.NDArray[np.int64]]:
    """From (K, 2) places to the documents of each part."""
    ordered = repeated[np.lexsort(repeated.T[::-1])]
    ends = np.searchsorted(ordered[:, 0], np.arange(num_parts + 1))
    return [ordered[begin:end, 1] for begin, end in pairwise(ends)]


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
