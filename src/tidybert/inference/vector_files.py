"""Texts to a file of vectors, in constant memory.

The size of a chunk depends only on the settings.  So a stopped run can be resumed, and ends with
the same bytes as an uninterrupted one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.data.features import example_features
from tidybert.errors import UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.inference.forward import LARGEST_CHUNK, in_chunks
from tidybert.inference.vector_formats import Chunk, Layout, VectorFormat
from tidybert.storage.part_file import Piece, Written, grow_file

# Texts of many long vectors come in smaller chunks: this is 256 MiB of float32.
_CHUNK_VALUES: Final = 2**26


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
    with the same texts and settings left off.  Raises as ``grow_file``.
    """
    layout = kind.layout
    size = chunk_size(embedder, layout)
    settings = {
        "weights": embedder.fingerprint,
        "pooling": "token" if layout.per_token else embedder.pooling,
        "layers": embedder.layers,
        "combine": embedder.combine,
        "normalize": embedder.normalize,
        "prompt": embedder.prompt,
        "dimension": layout.dimension,
        "max_seq_length": embedder.max_seq_length,
        "dtype": layout.dtype,
        "device": embedder.device.type,
        "precision": embedder.precision,
        "chunk_size": size,
    }

    def pieces(left: Iterator[TextExample], _num_done: int) -> Iterator[Piece[TextExample]]:
        for chunk in embedded_chunks(embedder, left, layout, first=size, largest=size):
            yield kind.encode(chunk), chunk.examples, sum(chunk.truncated)

    return grow_file(target, settings, examples, pieces, kind, resume=resume, advance=advance)


def chunk_size(embedder: Embedder, layout: Layout) -> int:
    """How many texts are held at once."""
    num_vectors = embedder.max_seq_length if layout.per_token else 1
    return max(1, min(LARGEST_CHUNK, _CHUNK_VALUES // (num_vectors * layout.dimension)))


def embedded_chunks(
    embedder: Embedder, examples: Iterator[TextExample], layout: Layout, *, first: int, largest: int
) -> Iterator[Chunk]:
    """The texts' vectors, in the chunks that ``in_chunks`` cuts."""
    inputs: Sequence[Any]
    for chosen in in_chunks(examples, first=first, largest=largest):
        if layout.per_token:
            inputs = encodings = embedder.encodings(
                [one.text for one in chosen], [one.text_pair for one in chosen]
            )
            vectors = embedder.token_vectors(encodings)
        else:
            encodings = None
            inputs = example_features(
                chosen, embedder.tokenizer, embedder.max_seq_length, prompt=embedder.prompt
            )
            vectors = embedder.vectors(inputs)
        yield Chunk(
            chosen,
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
