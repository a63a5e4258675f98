"""Index: open an index of texts once, and search it exactly."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, overload

import msgspec
import numpy as np
import numpy.typing as npt

from tidybert.errors import DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import OpenedModel
from tidybert.inference.options import AnswerPrecision
from tidybert.inference.predictor import CrossEncoder
from tidybert.search.index_files import open_state, open_vectors, text_batches
from tidybert.search.nearest_vectors import top_k as nearest
from tidybert.system.terminal import ShowsFacts
from tidybert.tasks.answer import TaskAnswer

if TYPE_CHECKING:
    import pyarrow as pa


# What a search finds.


@dataclass(frozen=True)
class Hit:
    """A text that was found.

    Args:
        position: its place in the index, from 0.
        row: its line in the file.
        columns: the other columns of its row.
        score: the cosine of its vector and the query's, from -1 to 1.
        rerank_score: what a cross-encoder says of query and text, if one was asked.
        rerank_truncated: whether it read only the start of them.
    """

    position: int
    row: int
    text: str
    columns: dict[str, Any]
    score: float
    rerank_score: float | None = None
    rerank_truncated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = asdict(self)
        if self.rerank_score is None:
            del found["rerank_score"], found["rerank_truncated"]
        return found


# A second ranking: what a cross-encoder says of a query and each text that was found.


def reordered(hits: Sequence[Hit], answers: Sequence[TaskAnswer]) -> list[Hit]:
    """The same hits with their scores, the best first; equal ones stay in their order.

    ``answers``: a cross-encoder's to each pair of query and text.
    """
    found = [
        replace(hit, rerank_score=answer.relevance(), rerank_truncated=answer.read.truncated)
        for hit, answer in zip(hits, answers, strict=True)
    ]
    return sorted(found, key=lambda hit: -(hit.rerank_score or 0.0))


TOP_K: Final = 10
CANDIDATES: Final = 50


class Index(ShowsFacts):
    """An index that ``tidybert index`` wrote, mapped into memory.

    ``Index.open`` opens one with its encoder.  Without an encoder it searches vectors alone.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._state = open_state(directory)
        #: (n, d), each vector of length 1; int8 numbers times their vector's scale.
        self.vectors: npt.NDArray[Any]
        self.vectors, self.scales = open_vectors(self.directory, self._state)
        self.embedder: Embedder | None = None

    @classmethod
    def open(
        cls,
        directory: str | Path,
        model: str | Path | None = None,
        *,
        device: str = "auto",
        precision: AnswerPrecision = "auto",
        allow_pickle: bool = False,
    ) -> Self:
        """The index in a directory, with the encoder that made it.

        Args:
            model: where the encoder is now; None: where it was.
            device, precision, allow_pickle: as ``Embedder`` has them.

        Raises UsageError for a directory that is not a finished index and for another encoder than
        that of the index, DataError for damage, and what ``Embedder`` raises.
        """
        index = cls(directory)
        path = index.settings["model"] if model is None else model
        opened = OpenedModel(path, device=device, precision=precision, allow_pickle=allow_pickle)
        index.embedder = index.embedder_of(opened)
        return index

    def embedder_of(self, opened: OpenedModel) -> Embedder:
        """What embeds queries, with the encoder that made the index; UsageError for another."""
        embedder = Embedder.of(
            opened,
            pooling=self.settings["pooling"],
            normalize=True,
            max_seq_length=self.settings["max_seq_length"],
            prompt_name=opened.form.query_prompt_name,
        )
        self.check_encoder(embedder.fingerprint, embedder.dimension)
        return embedder

    @property
    def settings(self) -> dict[str, Any]:
        """How the vectors were made: model, fingerprint, pooling, dtype, dimension, …."""
        return msgspec.structs.asdict(self._state.settings)

    def __len__(self) -> int:
        return self._state.num_texts

    def facts(self) -> dict[str, object]:
        named = ("model", "pooling", "max_seq_length", "dtype", "dimension")
        return {
            "directory": str(self.directory),
            "texts": len(self),
            "truncated": self._state.num_truncated,
            **{name: self.settings[name] for name in named},
        }

    def check_encoder(self, fingerprint: str, dimension: int) -> None:
        """Raise UsageError unless the index was made by the encoder of this fingerprint."""
        settings = self.settings
        if dimension != settings["dimension"]:
            raise UsageError(
                f"{self.directory} has vectors of {settings['dimension']} numbers, and the model "
                f"gives {dimension}: search with the model that made it, {settings['model']}"
            )
        if fingerprint != settings["fingerprint"]:
            raise UsageError(
                f"{self.directory} was made by other weights or another vocabulary than the "
                f"model's (it was {settings['model']}): search with that model, or make the index "
                "again with tidybert index"
            )

    @overload
    def search(  # type: ignore[overload-overlap]
        self,
        queries: str,
        top_k: int | None = None,
        *,
        rerank: CrossEncoder | None = ...,
        candidates: int = ...,
    ) -> list[Hit]: ...
    @overload
    def search(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        *,
        rerank: CrossEncoder | None = ...,
        candidates: int = ...,
    ) -> list[list[Hit]]: ...
    def search(
        self,
        queries: str | Sequence[str],
        top_k: int | None = None,
        *,
        rerank: CrossEncoder | None = None,
        candidates: int = CANDIDATES,
    ) -> list[Hit] | list[list[Hit]]:
        """The texts with the largest cosine, for one query or for each of several.

        Args:
            top_k: how many; 10 if not set, or all of fewer.
            rerank: orders the first ``candidates`` texts again by its own scores.

        Raises UsageError for a ``top_k`` that the index does not have, and DataError for a query
        without text.
        """
        if self.embedder is None:
            raise UsageError(f"{self.directory} was opened without its encoder: use Index.open")
        asked = [queries] if isinstance(queries, str) else list(queries)
        check_queries(asked)
        count = self.count(top_k)
        wanted = count if rerank is None else min(len(self), max(count, candidates))
        found = self.nearest(self.embedder.embed(asked), wanted)
        if rerank is not None:
            for number, (query, hits) in enumerate(zip(asked, found, strict=True)):
                answers = rerank.answers([query] * len(hits), [hit.text for hit in hits])
                found[number] = reordered(hits, answers)[:count]
        return found[0] if isinstance(queries, str) else found

    def nearest(self, vectors: npt.NDArray[np.float32], top_k: int) -> list[list[Hit]]:
        """The texts nearest to each of the vectors (m, d), which have length 1."""
        positions, scores = nearest(vectors, self.vectors, top_k, scales=self.scales)
        return [
            [
                replace(hit, score=float(score))
                for hit, score in zip(self.texts(near), values, strict=True)
            ]
            for near, values in zip(positions, scores, strict=True)
        ]

    def count(self, top_k: int | None) -> int:
        """How many texts to find; UsageError where the index does not have so many."""
        if top_k is None:
            return min(TOP_K, len(self))
        if not 1 <= top_k <= len(self):
            raise UsageError(
                f"{param('top_k', top_k)}: the index has {count_of(len(self), 'text')}; give a "
                f"number from 1 to {len(self):,}"
            )
        return top_k

    def texts(self, positions: Sequence[int] | npt.NDArray[np.int64]) -> list[Hit]:
        """The texts at these positions, from 0; their score is NaN."""
        found = []
        for position in map(int, positions):
            if not 0 <= position < len(self):
                raise UsageError(
                    f"{self.directory} has no text at position {position}: they are numbered 0 to "
                    f"{len(self) - 1:,}"
                )
            number = int(np.searchsorted(self._ends, position, side="right"))
            batch = self._batches[number]
            at = position - (int(self._ends[number - 1]) if number else 0)
            row, text, columns = (batch[name][at].as_py() for name in ("row", "text", "columns"))
            found.append(Hit(position, row, text, json.loads(columns), float("nan")))
        return found

    @cached_property
    def _batches(self) -> "list[pa.RecordBatch]":
        return list(text_batches(self.directory, self._state))

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([each.num_rows for each in self._batches], dtype=np.int64)


def check_queries(queries: Sequence[Any]) -> None:
    """Raise DataError for a query that is not a text, or has nothing in it."""
    for number, query in enumerate(queries, start=1):
        which = "the query" if len(queries) == 1 else f"query {number}"
        if not isinstance(query, str):
            raise DataError(
                f"{which} is {query!r:.40}, of type {type(query).__name__}: give a text"
            )
        if not query.strip():
            raise DataError(f"{which} is empty: give a text to search for")
