"""Texts to a file of vectors, in constant memory; a stopped run can be resumed.

The size of a chunk depends on the settings alone.  So a resumed run ends with the same bytes as an
uninterrupted one.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.data.features import example_features
from tidybert.errors import DataError, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.inference.forward import LARGEST_CHUNK, in_chunks
from tidybert.inference.part_file import PartFile
from tidybert.inference.vector_formats import Chunk, Layout, VectorFormat

# Texts of many long vectors come in smaller chunks: this is 256 MiB of float32.
_CHUNK_VALUES: Final = 2**26


@dataclass(frozen=True)
class Written:
    """How many texts a file holds, how many were cut, and how many a stopped run had done."""

    num_texts: int
    num_truncated: int
    num_resumed: int


def write_vectors(
    embedder: Embedder,
    examples: Iterable[TextExample],
    target: Path,
    kind: VectorFormat,
    *,
    resume: bool = False,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> Written:
    """Write the vectors of all texts to ``target``, whole or not at all.

    Calls ``advance`` with the number of texts done.  With ``resume``, goes on where a stopped run
    with the same texts and settings left off.

    Raises UsageError for other settings than those of the stopped run, and DataError for other
    texts.
    """
    layout = kind.layout
    size = chunk_size(embedder, layout)
    settings = {
        "weights": embedder.fingerprint,
        "pooling": "token" if layout.per_token else embedder.pooling,
        "layers": embedder.layers,
        "combine": embedder.combine,
        "normalize": embedder.normalize,
        "max_seq_length": embedder.max_seq_length,
        "dtype": layout.dtype,
        "device": embedder.device.type,
        "chunk_size": size,
    }
    texts = iter(examples)
    digest = hashlib.sha256()
    with PartFile(target, settings, kind.head(), resume=resume) as part:
        num_resumed = int(part.progress.get("texts", 0))
        num_truncated = int(part.progress.get("truncated", 0))
        _update(digest, islice(texts, num_resumed))
        if num_resumed and digest.hexdigest() != part.progress["sha256"]:
            raise DataError(
                f"{param('resume')}: {part.part} was begun with other texts: give the same file, "
                "or remove it to start again"
            )
        num_texts = num_resumed
        advance(num_texts)
        for chunk in embedded_chunks(embedder, texts, layout, first=size, largest=size):
            num_texts += len(chunk.examples)
            num_truncated += sum(chunk.truncated)
            _update(digest, chunk.examples)
            part.append(
                kind.encode(chunk),
                {"texts": num_texts, "truncated": num_truncated, "sha256": digest.hexdigest()},
            )
            advance(num_texts)
        part.finish(kind.make)
    return Written(num_texts, num_truncated, num_resumed)


def chunk_size(embedder: Embedder, layout: Layout) -> int:
    """How many texts are held at once."""
    num_vectors = embedder.max_seq_length if layout.per_token else 1
    return max(1, min(LARGEST_CHUNK, _CHUNK_VALUES // (num_vectors * layout.dimension)))


def embedded_chunks(
    embedder: Embedder, examples: Iterator[TextExample], layout: Layout, *, first: int, largest: int
) -> Iterator[Chunk]:
    """The texts' vectors, in the chunks that ``in_chunks`` cuts."""
    for chosen in in_chunks(examples, first=first, largest=largest):
        yield _embedded(embedder, chosen, layout)


def _embedded(embedder: Embedder, examples: Sequence[TextExample], layout: Layout) -> Chunk:
    inputs: Sequence[Any]
    if layout.per_token:
        inputs = encodings = embedder.encodings(
            [one.text for one in examples], [one.text_pair for one in examples]
        )
        vectors = embedder.token_vectors(encodings)
    else:
        encodings = None
        inputs = example_features(examples, embedder.tokenizer, embedder.max_seq_length)
        vectors = embedder.vectors(inputs)
    return Chunk(
        examples,
        [one.num_tokens for one in inputs],
        [one.truncated for one in inputs],
        _rounded(vectors, layout.dtype),
        encodings,
    )


def _rounded(vectors: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        rounded = vectors.astype(dtype, copy=False)
    if not np.isfinite(rounded).all():
        raise UsageError(
            f"{param('dtype', dtype)} has no number as large as {np.abs(vectors).max():g}, which a "
            f"vector holds: give {param('dtype', 'float32')}, or {param('normalize')}"
        )
    return rounded


def _update(digest: Any, examples: Iterable[TextExample]) -> None:
    for one in examples:
        digest.update(json.dumps([one.text, one.text_pair]).encode())
