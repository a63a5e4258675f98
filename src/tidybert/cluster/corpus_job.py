"""A corpus built by many workers: the same shards as by one process, byte for byte.

Workers make a part of each file.  Then each finds the documents that came before among a share of
the hashes.  This process writes the shards from the parts, in the order of the files.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from os.path import commonpath
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.cluster.corpus_parts import CorpusWork, duplicates, read_part
from tidybert.cluster.file_job import JobReport, run_job
from tidybert.cluster.input_files import InputFile, described
from tidybert.cluster.ray_engine import ray_cluster
from tidybert.corpus.building import build_corpus
from tidybert.corpus.document_hashes import check_held_out
from tidybert.corpus.documents import CorpusReport
from tidybert.corpus.manifest import Manifest, is_corpus
from tidybert.corpus.new_documents import Origin, Reading
from tidybert.corpus.packed_files import corpus_files
from tidybert.corpus.shard_writer import Block
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import remove_tree
from tidybert.tokenization import BertTokenizer

# A worker sorts so many hashes at once, in about a gibibyte.
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
        files = _named(corpus_files(paths))
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
        manifest = build(tokenised=partial(_blocks, files, made, repeated))
        remove_tree(parts)
    return manifest


def _named(paths: Sequence[Path]) -> list[InputFile]:
    """The files, each with a name of its own below the folder of all."""
    whole = [path.absolute() for path in paths]
    root = Path(commonpath(whole)) if len(whole) > 1 else whole[0].parent
    return [described(path, root) for path in whole]


def _num_documents(done: JobReport) -> int:
    return sum(each.num_rows for each in (*done.before, *done.done))


def _by_part(repeated: npt.NDArray[np.int64], num_parts: int) -> list[npt.NDArray[np.int64]]:
    """From (K, 2) places to the documents of each part."""
    ordered = repeated[np.lexsort(repeated.T[::-1])]
    ends = np.searchsorted(ordered[:, 0], np.arange(num_parts + 1))
    return [ordered[begin:end, 1] for begin, end in pairwise(ends)]


def _blocks(
    files: Sequence[InputFile],
    parts: Sequence[Path],
    repeated: Sequence[npt.NDArray[np.int64]],
    reading: Reading,
    report: CorpusReport,
) -> Iterator[tuple[Block, Origin]]:
    """The new documents of all parts, from where ``reading`` is."""
    bytes_read = num_bytes = 0
    for number, (file, path) in enumerate(zip(files, parts, strict=True)):
        bytes_read += file.num_bytes
        if number < len(reading.finished):
            continue
        # What an earlier run has written of this file.
        written, begin = reading.in_file, 0
        for one in read_part(path, Path(file.path), reading, report):
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
