"""Words and texts as points: nearest pieces of the vocabulary, cosines, and a map by PCA."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from tidybert.errors import DataError, UsageError, param
from tidybert.explain import plots
from tidybert.explain.shown import Floats, Shown, Table, cosine
from tidybert.reporting.drawing import Picture
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import UNK_TOKEN

WORDS: Final = "words"
"""In place of a layer: the word embeddings alone, which no other word of the text changes."""
_NOT_A_WORD: Final = re.compile(r"\[.+\]")


@dataclass(frozen=True, eq=False, repr=False)
class NearestPieces(Shown):
    """The pieces whose word embeddings are nearest to a word's, by cosine.

    ``word_pieces`` make up the word; their mean is compared.  ``cosines`` (k,) belong to
    ``pieces``, the nearest first.
    """

    word: str
    word_pieces: Sequence[str]
    pieces: Sequence[str]
    cosines: Floats

    def facts(self) -> dict[str, object]:
        """The word and the nearest piece."""
        return {"word": self.word, "nearest": self.pieces[0] if self.pieces else None}

    def table(self) -> Table:
        """The pieces and their cosines."""
        rows = [
            [piece, f"{each:.3f}"] for piece, each in zip(self.pieces, self.cosines, strict=True)
        ]
        title = f"tokens nearest to {' '.join(self.word_pieces)}"
        return Table(title, ("piece", "cosine"), rows, frozenset({"piece"}))

    def plot(self) -> Picture:
        """The cosines as bars."""
        return plots.bars(self.pieces, self.cosines, self.table().title)


@dataclass(frozen=True, eq=False, repr=False)
class Similarities(Shown):
    """Words and texts beside each other.

    Args:
        texts: m of them.
        layer: whose states were averaged; "words" for only the word embeddings.
        vectors: (m, H).
        cosines: (m, m).
    """

    texts: Sequence[str]
    layer: int | str
    vectors: Floats
    cosines: Floats

    def facts(self) -> dict[str, object]:
        """How many texts there are, and the layer."""
        return {"num_texts": len(self.texts), "layer": self.layer}

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The numbers, from 0, of every two texts, the most similar first."""
        found = list(combinations(range(len(self.texts)), 2))
        return sorted(found, key=lambda pair: -float(self.cosines[pair]))

    def table(self) -> Table:
        """Every two texts by their cosine, the most similar first."""
        rows = [
            [f"{self.cosines[pair]:.3f}", *(self.texts[each] for each in pair)]
            for pair in self.pairs
        ]
        headings = ("cosine", "first", "second")
        of = "word embeddings" if self.layer == "words" else f"layer {self.layer}"
        return Table(f"cosine similarity, {of}", headings, rows, frozenset(headings[1:]))

    def map(self) -> Floats:
        """(m, 2): the vectors on the two directions in which they differ most (PCA)."""
        return principal_components(self.vectors)

    def plot(self) -> Picture:
        """The map."""
        return plots.scatter(self.map(), self.texts, "map of the vectors (PCA)")


def nearest_pieces(table: Floats, tokenizer: BertTokenizer, word: str, top_k: int) -> NearestPieces:
    """The ``top_k`` pieces nearest to a word, from the word embeddings (V, H).

    The word's own pieces and names in brackets are left out.  Raises DataError for a word that the
    vocabulary does not know, and UsageError for a ``top_k`` below 1.
    """
    if top_k < 1:
        raise UsageError(f"{param('top_k')} is {top_k}: expected at least 1")
    pieces = [word] if word in tokenizer.vocabulary else tokenizer.tokenize(word)
    if not pieces or UNK_TOKEN in pieces:
        raise DataError(f"the vocabulary does not know {word!r}")
    ids = tokenizer.convert_tokens_to_ids(pieces)
    candidates = np.array(
        [
            at
            for at, token in enumerate(tokenizer.vocabulary.tokens)
            if at not in ids and not _NOT_A_WORD.fullmatch(token)
        ],
        dtype=np.int64,
    )
    cosines = cosine(table[candidates], table[ids].mean(0)[None])
    best = np.argsort(-cosines, kind="stable")[:top_k]
    found = tokenizer.convert_ids_to_tokens(candidates[best].tolist())
    return NearestPieces(word, pieces, found, cosines[best])


def word_vectors(table: Floats, tokenizer: BertTokenizer, texts: Sequence[str]) -> Floats:
    """(m, H): the mean of the word embeddings (V, H) of each text's pieces.

    Raises DataError for a text without a piece.
    """
    vectors = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).input_ids
        if not ids:
            raise DataError(f"{text!r:.60} has no token to compare")
        vectors.append(table[ids].mean(0))
    return np.stack(vectors)


def layer_number(layer: int | str, last: int) -> int:
    """The number of a layer, from 0; UsageError for one that the model lacks."""
    if not re.fullmatch(r"-?\d{1,9}", str(layer)) or not -last - 1 <= int(layer) <= last:
        raise UsageError(
            f"{param('layer')} {layer}: expected 0 (the output of the embeddings), 1 to "
            f"{last}, from the end -1 to -{last + 1}, or {WORDS}"
        )
    return int(layer) % (last + 1)


def principal_components(vectors: Floats) -> Floats:
    """(m, 2): vectors (m, d) on their first two principal components, centred on 0.

    The largest value of each column is positive, so that the map does not depend on the machine.
    A column is 0 where the vectors differ in fewer directions.
    """
    centred = np.asarray(vectors, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.zeros((len(centred), 2))
    count = min(2, len(sizes))
    found[:, :count] = left[:, :count] * sizes[:count]
    largest = np.abs(found).argmax(axis=0)
    signs = np.sign(found[largest, range(2)])
    return np.asarray(found * np.where(signs == 0, 1, signs), dtype=np.float32)
