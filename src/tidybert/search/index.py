"""Index: open an index of texts once, and search it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, overload

import msgspec
import numpy as np
import numpy.typing as npt

from tidybert.errors import DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import OpenedModel
from tidybert.inference.options import AnswerPrecision
from tidybert.inference.predictor import CrossEncoder
from tidybert.search.columns import ColumnTable, Where
from tidybert.search.index_format import BITS_FILE, SCALES_FILE, VECTORS_FILE, open_index
from tidybert.search.nearest_vectors import Indices, Scores
from tidybert.search.nearest_vectors import top_k as nearest
from tidybert.search.postings import Allowed, WordSearch
from tidybert.search.sign_bits import SignBits
from tidybert.system.terminal import ShowsFacts
from tidybert.tasks.answer import TaskAnswer

# What a search finds.


@dataclass(frozen=True)
class Hit:
    """A text that was found.

    Args:
        position: where its vector is in the index, from 0.
        row: its line in the file.
        columns: the other columns of its row; of a passage also start and end, its place in the
            document in characters.
        id: of its document: a column, or the place in the index.
        score: the cosine of its vector and the query's, from -1 to 1.
        rank_words, rank_meaning: its places, from 1, among the texts by BM25 and by the cosine;
            None if it is not among their first, or nobody asked.
        fused: what both say of it together, if both were asked: see ``standing``.
        rerank_score: what a cross-encoder says of query and text, if one was asked.
        rerank_truncated: whether it read only the start of them.
    """

    position: int
    row: int
    text: str
    columns: dict[str, Any]
    id: str
    score: float
    rank_words: int | None = None
    rank_meaning: int | None = None
    fused: float | None = None
    rerank_score: float | None = None
    rerank_truncated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = asdict(self)
        if self.rerank_score is None:
            del found["rerank_score"], found["rerank_truncated"]
        if self.fused is None:
            del found["fused"], found["rank_meaning"]
            if self.rank_words is None:
                del found["rank_words"]
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
By = Literal["words", "meaning"]
# A text's score is compared with so many of the best, which are more than a search finds by far.
_BEST: Final = 256
# So that a ranking with a text that stands out counts for more than one without.
_EXPONENT: Final = 1.5
_NO_RANK: Final = np.iinfo(np.int64).max
_Ranked: TypeAlias = tuple[Indices, Scores]
# So many times as many passages are looked at as documents are wanted, and again if too few.
_PASSAGES: Final = 4
# A smaller part of all vectors is copied before it is searched.
_GATHERED: Final = 8


def standing(scores: Scores, count: int) -> npt.NDArray[np.float64]:
    """How far each of the best scores of a ranking stands out of them, the largest first.

    It is the distance from their mean in standard deviations, to the power of 1.5, and 0 below the
    mean.  So scores of any scale can be added, and a ranking that hardly tells texts apart changes
    little.  Where there are fewer than ``count``, the others are 0.
    """
    all_of_them = np.zeros(max(count, len(scores), 1))
    all_of_them[: len(scores)] = scores
    deviation = float(all_of_them.std())
    above = np.maximum(scores - all_of_them.mean(), 0) / (deviation or 1.0)
    return np.asarray(above**_EXPONENT)


class Index(ShowsFacts):
    """An index that ``tidybert index`` wrote, mapped into memory.

    ``Index.open`` opens one with its encoder.  Without an encoder it searches vectors alone.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._content = open_index(directory)
        self._state, arrays = self._content.state, self._content.arrays
        #: (n, d), each vector of length 1; int8 numbers times their vector's scale.
        self.vectors: npt.NDArray[Any] = arrays[VECTORS_FILE]
        self.scales: npt.NDArray[np.float32] | None = arrays.get(SCALES_FILE)
        #: (n,) where the vectors of texts are that nobody has deleted or replaced.
        self.positions: Indices = np.flatnonzero(self._content.is_live)
        self._num_documents = len(np.unique(self._content.documents[self.positions]))
        self.embedder: Embedder | None = None
        #: How the encoder of the queries pools.
        self.query_pooling: str = self.settings["pooling"]

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
            device, precision, allow_pickle: as ``Embedder`` has them; auto is int8 for an index
                that was made in int8, since those are other weights.

        Raises UsageError for a directory that is not a finished index and for another encoder than
        that of the index, DataError for damage, and what ``Embedder`` raises.
        """
        index = cls(directory)
        path = index.settings["model"] if model is None else model
        if precision == "auto" and index.settings["precision"] == "int8":
            precision = "int8"
        opened = OpenedModel(path, device=device, precision=precision, allow_pickle=allow_pickle)
        index.embedder = index.embedder_of(opened)
        return index

    def embedder_of(self, opened: OpenedModel) -> Embedder:
        """What embeds queries, with the encoder that made the index; UsageError for another."""
        own, metadata = self.settings, opened.directory.metadata
        given: dict[str, Any] = {"prompt_name": opened.form.query_prompt_name, "normalize": True}
        if metadata is not None and metadata.settings.get("teacher") == own["fingerprint"]:
            # A student, which pools as it has learned to.
            embedder = Embedder.of(opened, **given)
            self.check_encoder(own["fingerprint"], embedder.dimension)
        else:
            given |= {name: own[name] for name in ("pooling", "max_seq_length")}
            embedder = Embedder.of(opened, **given).matching(own["fingerprint"])
            self.check_encoder(embedder.fingerprint, embedder.dimension)
        self.query_pooling = embedder.pooling
        return embedder

    @property
    def settings(self) -> dict[str, Any]:
        """How the vectors were made: model, fingerprint, pooling, dtype, dimension, …."""
        return msgspec.structs.asdict(self._state.settings)

    def __len__(self) -> int:
        return self._num_documents

    def facts(self) -> dict[str, object]:
        settings, scan = self.settings, self._state.scan
        named = ("model", "pooling", "max_seq_length", "dtype", "dimension")
        found = {
            "directory": str(self.directory),
            "texts": len(self),
            "truncated": self._state.num_truncated,
            **{name: settings[name] for name in named},
        }
        if settings["id"]:
            found["id"] = settings["id"]
        if settings["passages"]:
            found["passages"] = len(self.positions)
        if num_dead := len(self.vectors) - len(self.positions):
            found["deleted_or_replaced"] = num_dead
        if scan is not None:
            scored = f"by signs, {scan.candidates:,} candidates" if scan.candidates else "exact"
            found["search"] = f"{scored}; signs find {scan.recall:.2%} of the ten nearest"
        return found

    def check_encoder(self, fingerprint: str, dimension: int) -> None:
        """Raise UsageError unless the index was made by the encoder of this fingerprint."""
        settings = self.settings
        if dimension != settings["dimension"]:
            raise UsageError(
                f"{self.directory} has vectors of {settings['dimension']} numbers, and the model "
                f"gives {dimension}: search with the model that made it, {settings['model']}, or "
                f"with a student, whose Dense gives {settings['dimension']}: tidybert finetune "
                f"embed MODEL --teacher {settings['model']} --train TEXTS"
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
        where: Where = ...,
        exact: bool = ...,
        by: By | None = ...,
    ) -> list[Hit]: ...
    @overload
    def search(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        *,
        rerank: CrossEncoder | None = ...,
        candidates: int = ...,
        where: Where = ...,
        exact: bool = ...,
        by: By | None = ...,
    ) -> list[list[Hit]]: ...
    def search(
        self,
        queries: str | Sequence[str],
        top_k: int | None = None,
        *,
        rerank: CrossEncoder | None = None,
        candidates: int = CANDIDATES,
        where: Where = None,
        exact: bool = False,
        by: By | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """The texts nearest to one query, or to each of several: by words and meaning, fused.

        Args:
            top_k: how many; 10 if not set, or all of fewer.
            rerank: orders the first ``candidates`` texts again by its own scores.
            where: which texts count, by their columns: an expression of pyarrow.compute, or
                comparisons such as "label=billing" (=, !=, <, <=, >, >=), which all must hold.
                Fewer than ``top_k`` may be left.
            exact: score every text, where many are found by the signs of their numbers.
            by: "words" ranks by BM25 alone and finds only texts with a word of the query,
                "meaning" by the cosine alone.  None: by both, where the index has words.

        Raises UsageError for a ``top_k`` that the index does not have, for a ``where`` that does
        not fit its columns and for words that it does not have, and DataError for a query without
        text.
        """
        if self.embedder is None:
            raise UsageError(f"{self.directory} was opened without its encoder: use Index.open")
        asked = [queries] if isinstance(queries, str) else list(queries)
        check_queries(asked)
        count = self.count(top_k)
        wanted = count if rerank is None else min(len(self), max(count, candidates))
        self.ranking(by)
        found = self.find(
            asked, self.embedder.embed(asked), wanted, where=where, exact=exact, by=by
        )
        if rerank is not None:
            for number, (query, hits) in enumerate(zip(asked, found, strict=True)):
                answers = rerank.answers([query] * len(hits), [hit.text for hit in hits])
                found[number] = reordered(hits, answers)[:count]
        return found[0] if isinstance(queries, str) else found

    def ranking(self, by: By | None) -> By | None:
        """What ranks the texts, None for both; UsageError for words that the index lacks."""
        if by == "words" and not self._state.has_words:
            raise UsageError(
                "the index has no words to search by: add them by the tidybert index that made it, "
                "with --words, or search by meaning"
            )
        return by if self._state.has_words else "meaning"

    def find(
        self,
        queries: Sequence[str],
        vectors: npt.NDArray[np.float32],
        top_k: int,
        *,
        where: Where = None,
        exact: bool = False,
        by: By | None = None,
    ) -> list[list[Hit]]:
        """The texts for each query, whose vectors (m, d) have length 1; see ``search``.

        Of each document its passage that ranks best.
        """
        by = self.ranking(by)
        if by == "meaning":
            return self.nearest(vectors, top_k, where=where, exact=exact)
        allowed, num_documents = self._allowed(where)
        best = min(num_documents, max(top_k, _BEST))
        is_allowed = None
        if where is not None:
            is_allowed = np.zeros(len(self.vectors), dtype=bool)
            is_allowed[allowed] = True
        wanted = min(top_k, num_documents) if by is None else 0
        meant = self._by_meaning(vectors, wanted, allowed, exact, best)
        return [
            self._fused(query, meaning, self._by_words(text, best, is_allowed), top_k, by)
            for text, query, meaning in zip(queries, vectors, meant, strict=True)
        ]

    def nearest(
        self,
        vectors: npt.NDArray[np.float32],
        top_k: int,
        *,
        where: Where = None,
        exact: bool = False,
    ) -> list[list[Hit]]:
        """The texts nearest to each of the vectors (m, d), which have length 1.

        Of each document the nearest passage.
        """
        allowed, num_documents = self._allowed(where)
        found = self._by_meaning(vectors, min(top_k, num_documents), allowed, exact)
        return [self._hits(*each) for each in found]

    def _allowed(self, where: Where) -> tuple[Indices, int]:
        """The positions that count, and how many documents they are of."""
        if where is None:
            return self.positions, len(self)
        found = np.intersect1d(self.positions, self._table.positions(where), assume_unique=True)
        return found, len(np.unique(self._content.documents[found]))

    def _by_meaning(
        self, vectors: Scores, top_k: int, allowed: Indices, exact: bool, best: int = 0
    ) -> list[_Ranked]:
        """For each vector the nearest passages of ``top_k`` documents, and of up to ``best``."""
        if not top_k:
            return [(allowed[:0], np.zeros(0, dtype=np.float32)) for _ in vectors]
        more = _PASSAGES if self.settings["passages"] else 1
        wanted = min(len(allowed), top_k * more)
        while True:
            positions, scores = self._scored(vectors, wanted, allowed, exact, best * more)
            kept = [self._first_of_documents(each) for each in positions]
            if all(len(each) >= top_k for each in kept):
                break
            wanted = min(len(allowed), wanted * _PASSAGES)
        return [
            (near[each[: best or top_k]], values[each[: best or top_k]])
            for near, values, each in zip(positions, scores, kept, strict=True)
        ]

    def _by_words(self, query: str, top_k: int, is_allowed: Allowed) -> _Ranked:
        """The best passages of ``top_k`` documents; of fewer where no others have the words."""
        wanted = top_k * _PASSAGES if self.settings["passages"] else top_k
        while True:
            positions, scores = self._words.best(query, wanted, is_allowed)
            kept = self._first_of_documents(positions)[:top_k]
            if len(kept) == top_k or len(positions) < wanted:
                return positions[kept], scores[kept]
            wanted *= _PASSAGES

    def _first_of_documents(self, positions: Indices) -> Indices:
        """Where in a ranking the first passage of each document is."""
        return np.sort(np.unique(self._content.documents[positions], return_index=True)[1])

    def _fused(
        self, query: Scores, meaning: _Ranked, words: _Ranked, top_k: int, by: By | None
    ) -> list[Hit]:
        """The first texts of two rankings in the order of what both say."""
        numbers, at = np.unique(
            self._content.documents[np.concatenate([meaning[0], words[0]])], return_inverse=True
        )
        shape = 2, len(numbers)
        ranks, places = np.full(shape, _NO_RANK), np.zeros(shape, dtype=np.int64)
        values = np.zeros(len(numbers))
        parts = at[: len(meaning[0])], at[len(meaning[0]) :]
        # Texts that have no word of the query are 0 of BM25, and count among the best.
        least = 0, min(_BEST, len(self))
        for row, ((positions, scores), own) in enumerate(zip((meaning, words), parts, strict=True)):
            ranks[row, own], places[row, own] = np.arange(1, len(own) + 1), positions
            values[own] += standing(scores, least[row])
        order = np.lexsort((ranks[1], ranks[0], -values))[:top_k]
        if not len(order):
            return []
        chosen = places[ranks.argmin(axis=0), np.arange(len(numbers))][order]
        # As an exact search rounds them.
        cosines = (self.vectors[chosen].astype(np.float64) * query).sum(axis=1)
        if self.scales is not None:
            cosines *= self.scales[chosen]
        found = self._hits(chosen, cosines.astype(np.float32))
        shown = (
            [None if each == _NO_RANK else each for each in row] for row in ranks[:, order].tolist()
        )
        return [
            replace(
                hit, rank_words=rank_words, rank_meaning=rank_meaning, fused=None if by else value
            )
            for hit, rank_meaning, rank_words, value in zip(
                found, *shown, values[order].tolist(), strict=True
            )
        ]

    def _hits(self, positions: Indices, scores: Iterable[float]) -> list[Hit]:
        return [
            # Rounding makes a product of equal vectors a little more than 1.
            replace(hit, score=min(max(float(score), -1.0), 1.0))
            for hit, score in zip(self.texts(positions), scores, strict=True)
        ]

    def _scored(
        self, queries: Scores, count: int, allowed: Indices, exact: bool, best: int
    ) -> tuple[Indices, Scores]:
        """(m, ·) positions among the allowed ones, and their products: the ``count`` nearest.

        After them come others, up to ``best``, of which some may be missing.
        """
        vectors, scan = self.vectors, self._state.scan
        is_part = len(allowed) < len(vectors)
        candidates, wanted = 0, min(max(count, best), len(allowed))
        if not exact and scan is not None and self._state.num_bits == len(vectors):
            candidates = scan.candidates_for(count, len(allowed))
        count = min(wanted, candidates or wanted)
        if candidates:
            counted = None
            if is_part:
                counted = np.zeros(len(vectors), dtype=bool)
                counted[allowed] = True
            found = [
                self._among(each[None], self._bits.nearest(each, candidates, counted), count)
                for each in queries
            ]
            positions, scores = zip(*found, strict=True)
            return np.concatenate(positions), np.concatenate(scores)
        if len(allowed) * _GATHERED < len(vectors):
            return self._among(queries, allowed, count)
        if not is_part:
            return nearest(queries, vectors, count, scales=self.scales)
        # The vectors of a query's own group do not count.
        groups = np.ones(len(vectors), dtype=np.int64)
        groups[allowed] = 0
        ones = np.ones(len(queries), dtype=np.int64)
        return nearest(
            queries, vectors, count, scales=self.scales, groups=ones, vector_groups=groups
        )

    def _among(self, queries: Scores, positions: Indices, count: int) -> tuple[Indices, Scores]:
        scales = None if self.scales is None else self.scales[positions]
        places, scores = nearest(queries, self.vectors[positions], count, scales=scales)
        return positions[places], scores

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
            if not 0 <= position < len(self.vectors):
                raise UsageError(
                    f"{self.directory} has no text at position {position}: they are numbered 0 to "
                    f"{len(self.vectors) - 1:,}"
                )
            kept = self._content.text(position)
            columns = json.loads(kept["columns"])
            number = self._content.id_of(int(self._content.documents[position]), columns)
            found.append(Hit(position, kept["row"], kept["text"], columns, number, float("nan")))
        return found

    @cached_property
    def _words(self) -> WordSearch:
        content = self._content
        return WordSearch(content.state.segments or (), content.arrays, content.is_live)

    @cached_property
    def _bits(self) -> SignBits:
        return SignBits(self._content.arrays[BITS_FILE])

    @cached_property
    def _table(self) -> ColumnTable:
        return ColumnTable(self._content)


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
