"""Hard negatives: for each query the nearest texts that do not belong to it, to train on next.

Texts near a query may belong to it though nobody said so.  So a text counts only where its cosine
is below the positive's by a margin (Moreira et al. 2024, NV-Retriever, TopK-PercPos).  n texts.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.data.features import text_features
from tidybert.errors import DataError, UsageError, param
from tidybert.inference.answer_files import LINES
from tidybert.inference.embedding import Embedder
from tidybert.search.nearest_vectors import top_k
from tidybert.storage.part_file import Piece, Written, grow_file
from tidybert.system.reporter import SILENT, Reporter
from tidybert.tasks.vectors.vector_examples import VectorExample

# A resumed run begins with one of the same chunks, so its vectors have the same bits.
_QUERIES_AT_ONCE: Final = 256


@dataclass(frozen=True)
class MiningOptions:
    """Which texts are hard negatives: at most ``num_negatives`` of a query, the nearest first.

    Ranks are those among the texts that do not belong to it, from 1; ``margin`` is how far a cosine
    must be below the positive's, as a share of it.
    """

    num_negatives: int = 4
    first_rank: int = 1
    last_rank: int = 100
    margin: float = 0.05

    def __post_init__(self) -> None:
        if self.num_negatives < 1:
            raise UsageError(f"{param('num_negatives', self.num_negatives)}: expected 1 or more")
        if not 1 <= self.first_rank <= self.last_rank:
            raise UsageError(
                f"{param('first_rank', self.first_rank)} and {param('last_rank', self.last_rank)}: "
                "expected ranks from 1, the first not after the last"
            )
        if not 0 <= self.margin < 1:
            raise UsageError(
                f"{param('margin', f'{self.margin:g}')}: expected a fraction from 0 to below 1"
            )


class HardNegatives:
    """Finds the negatives of queries among two texts or more.

    ``embedder`` scales vectors to length 1 and has the prompt of the texts; ``pairs`` are all
    queries with what belongs to them, and are read once.  ``num_short`` queries have fewer
    negatives than asked for, and ``num_without`` have none.
    """

    def __init__(
        self,
        embedder: Embedder,
        query_prompt: str,
        texts: Iterable[str],
        pairs: Iterable[VectorExample],
        options: MiningOptions,
    ) -> None:
        self.embedder, self.query_prompt, self.options = embedder, query_prompt, options
        self._number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self.texts = list(self._number_of)
        if len(self.texts) < 2:
            raise DataError("there are fewer than two different texts to find negatives among")
        self._belonging: dict[str, set[int]] = {}
        for one in pairs:
            known = self._belonging.setdefault(one.texts[0], set())
            known |= {self._number_of[text] for text in one.texts[:2] if text in self._number_of}
        self.num_short = self.num_without = 0

    def write(
        self,
        pairs: Iterable[VectorExample],
        target: Path,
        *,
        resume: bool = False,
        reporter: Reporter = SILENT,
    ) -> Written:
        """Write a JSON line a pair, with anchor, positive and negatives, whole or not at all."""
        settings = {
            "model": self.embedder.fingerprint,
            "prompts": [self.query_prompt, self.embedder.prompt],
            "max_seq_length": self.embedder.max_seq_length,
            "texts": _sha256_of(self.texts),
            "pairs": _sha256_of(
                (query, *sorted(known)) for query, known in self._belonging.items()
            ),
            **asdict(self.options),
        }

        def pieces(left: Iterator[VectorExample], _num_done: int) -> Iterator[Piece[VectorExample]]:
            while chunk := list(islice(left, _QUERIES_AT_ONCE)):
                lines = [
                    LINES.entry(
                        {"anchor": one.texts[0], "positive": one.texts[1],
                         "negatives": list(dict.fromkeys([*one.negatives, *found]))}
                    )
                    for one, found in zip(chunk, self.of(chunk), strict=True)
                ]  # fmt: skip
                yield "".join(lines).encode(), chunk, 0

        return grow_file(target, settings, pairs, pieces, LINES, resume=resume, reporter=reporter)

    def of(self, pairs: Sequence[VectorExample]) -> list[list[str]]:
        """The negatives of each pair's first text, the nearest first."""
        options = self.options
        queries = self._embed([one.texts[0] for one in pairs], self.query_prompt)
        positives = self._embed([one.texts[1] for one in pairs], self.embedder.prompt)
        skipped = max(len(self._belonging[one.texts[0]]) for one in pairs)
        positions, scores = top_k(queries, self._vectors, options.last_rank + skipped)
        found = []
        for number, one in enumerate(pairs):
            belonging = self._belonging[one.texts[0]]
            right = float(queries[number] @ positives[number])
            highest = right - options.margin * abs(right)
            near = [
                (self.texts[place], score)
                for place, score in zip(positions[number].tolist(), scores[number], strict=True)
                if place not in belonging and self.texts[place] != one.texts[0]
            ][options.first_rank - 1 : options.last_rank]
            chosen = [text for text, score in near if score <= highest][: options.num_negatives]
            self.num_short += 0 < len(chosen) < options.num_negatives
            self.num_without += not chosen
            found.append(chosen)
        return found

    @cached_property
    def _vectors(self) -> npt.NDArray[np.float32]:
        """(n, d) those of the texts."""
        return self._embed(self.texts, self.embedder.prompt)

    def _embed(self, texts: Sequence[str], prompt: str) -> npt.NDArray[np.float32]:
        embedder = self.embedder
        features = text_features(
            embedder.tokenizer, texts, None, embedder.max_seq_length, prompt=prompt
        )
        return embedder.vectors(features)


def _sha256_of(values: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for each in values:
        digest.update(f"{each!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
