"""The three embeddings and their sum, the states of each layer, and a word in several texts.

n pieces, L layers, H width, B texts.  Layer 0 is the output of the embeddings, L the last layer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from tidybert.errors import DataError, UsageError, param
from tidybert.explain import plots
from tidybert.explain.explained_text import ExplainedText, Floats, Shown, Table, cosine
from tidybert.reporting.drawing import Picture
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import Span


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingSum(ExplainedText):
    """The embeddings that the model adds for each piece, (n, H) each.

    None stands for a summand that the model does not add.  normalized: the sum after LayerNorm, for
    the first layer.
    """

    word: Floats
    position: Floats | None
    segment: Floats | None
    total: Floats
    normalized: Floats

    @property
    def parts(self) -> dict[str, Floats]:
        """All by name, in the order of the sum."""
        summands = {"word": self.word, "position": self.position, "segment": self.segment}
        added = {name: each for name, each in summands.items() if each is not None}
        return {**added, "sum": self.total, "after LayerNorm": self.normalized}

    def table(self) -> Table:
        """The length of each vector."""
        one = self.encoding
        columns = [np.linalg.norm(each, axis=1) for each in self.parts.values()]
        rows = [
            [token, f"{index}", f"{at}", f"{segment}", *(f"{each[at]:.3f}" for each in columns)]
            for at, (token, index, segment) in enumerate(
                zip(one.tokens, one.input_ids, one.token_type_ids, strict=True)
            )
        ]
        headings = ("piece", "id", "position", "segment", *(f"|{name}|" for name in self.parts))
        return Table("lengths of the embeddings", headings, rows, frozenset({"piece"}))

    def plot(self) -> Picture:
        """Each part as a strip a piece."""
        return plots.strips(
            list(self.parts.values()), list(self.parts), self.tokens, "embeddings and their sum"
        )


@dataclass(frozen=True, eq=False, repr=False)
class HiddenStates(ExplainedText):
    """states: (L + 1, n, H), layer 0 being the embeddings' output.  causal: the mask in force."""

    causal: bool
    states: Floats

    def table(self) -> Table:
        """The cosine of each piece's state with its state one layer below."""
        steps = cosine(self.states[1:], self.states[:-1])
        rows = [
            [token, *(f"{each:.2f}" for each in steps[:, at])]
            for at, token in enumerate(self.tokens)
        ]
        headings = ("piece", *(f"{number}" for number in range(1, len(self.states))))
        title = "cosine of a token's state with that of the layer below, by layer"
        return Table(title, headings, rows, frozenset({"piece"}))

    def plot(self) -> Picture:
        """The states as strips, a layer after another."""
        names = [f"layer {number}" for number in range(len(self.states))]
        return plots.strips(list(self.states), names, self.tokens, "hidden states")


@dataclass(frozen=True, eq=False, repr=False)
class WordInTexts(Shown):
    """A word's vectors in B texts, layer by layer; spans: its first place in each.

    vectors: (B, L + 1, H), the mean over its pieces.  cosines: (L + 1, B, B) of these vectors.
    """

    word: str
    texts: Sequence[str]
    spans: Sequence[Span]
    vectors: Floats
    cosines: Floats

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The numbers, from 0, of every two texts."""
        return list(combinations(range(len(self.texts)), 2))

    def facts(self) -> dict[str, object]:
        return {
            "word": self.word,
            "num_texts": len(self.texts),
            "num_layers": len(self.cosines) - 1,
        }

    def table(self) -> Table:
        """The cosine of every two texts by layer."""
        rows = [
            [f"{layer}", *(f"{each[pair]:.3f}" for pair in self.pairs)]
            for layer, each in enumerate(self.cosines)
        ]
        headings = ("layer", *self._names())
        note = "\n".join(f"{number}: {text}" for number, text in enumerate(self.texts, start=1))
        return Table(f"cosine of {self.word!r} in two texts", headings, rows, frozenset(), note)

    def plot(self) -> Picture:
        """The same as lines over the layers."""
        values = np.stack([self.cosines[:, first, second] for first, second in self.pairs], axis=1)
        return plots.lines(values, self._names(), "cosine", f"{self.word!r} in two texts")

    def _names(self) -> list[str]:
        return [f"texts {first + 1}, {second + 1}" for first, second in self.pairs]


# The answers of each layer at a [MASK]: the masked-LM head on the states of every layer.
#
# nostalgebraist 2020 (interpreting GPT: the logit lens) reads a model this way.  The head was
# trained on the last layer alone, so the answers of lower layers are a view and no prediction.

_SHOWN_WORDS: Final = 3


@dataclass(frozen=True)
class LayerAnswer:
    """A layer's likeliest pieces at one [MASK], the best first; layer L is the model's own answer.

    truth_probability, truth_rank: of the hidden piece, 1 being the best; None where unknown.
    """

    layer: int
    words: tuple[str, ...]
    probabilities: tuple[float, ...]
    truth_probability: float | None
    truth_rank: int | None


@dataclass(frozen=True)
class MaskAnswers:
    """The answers of layers 0 to L at a [MASK]; ``truth``: the hidden piece, None if unknown."""

    position: int
    truth: str | None
    layers: tuple[LayerAnswer, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Cloze(ExplainedText):
    """masks: the answers at each [MASK], in order."""

    masks: Sequence[MaskAnswers]

    def facts(self) -> dict[str, object]:
        """The text, and the model's best word for each [MASK]."""
        best = [each.layers[-1].words[0] for each in self.masks]
        return {**super().facts(), "words": ", ".join(best)}

    def table(self) -> Table:
        """The likeliest words of each layer, and where the hidden piece ranks."""
        rows = []
        for mask in self.masks:
            for each in mask.layers:
                words = [
                    f"{word} {probability:.3f}"
                    for word, probability in zip(each.words, each.probabilities, strict=True)
                ][:_SHOWN_WORDS]
                truth = [
                    mask.truth or "",
                    "" if each.truth_rank is None else f"{each.truth_rank:,}",
                    "" if each.truth_probability is None else f"{each.truth_probability:.4f}",
                ]
                rows.append([f"{mask.position}", f"{each.layer}", ", ".join(words), *truth])
        headings = ("position", "layer", "likeliest", "hidden", "its rank", "probability")
        left = frozenset({"likeliest", "hidden"})
        return Table("answers at each [MASK], layer by layer", headings, rows, left)

    def plot(self) -> Picture:
        """The probability of each [MASK]'s hidden piece, or of the last layer's best, by layer."""
        names, columns = [], []
        for mask in self.masks:
            known = mask.truth is not None
            word = mask.truth if mask.truth is not None else mask.layers[-1].words[0]
            names.append(f"{mask.position}: {word}")
            columns.append(
                [
                    each.truth_probability
                    if known
                    else dict(zip(each.words, each.probabilities, strict=True)).get(word, 0.0)
                    for each in mask.layers
                ]
            )
        values = np.array(columns, dtype=np.float64).T
        return plots.lines(values, names, "probability", "the answer at [MASK], layer by layer")


def answers_of(
    probabilities: Floats,
    masked: Sequence[int],
    truths: Sequence[int],
    tokenizer: BertTokenizer,
    top_k: int,
) -> list[MaskAnswers]:
    """The layers' answers (L + 1, M, V) at M masks; ``truths`` (n,) are the text's own ids."""
    masks = []
    for number, position in enumerate(masked):
        index = truths[position]
        truth = None if index == tokenizer.mask_token_id else index
        layers = []
        for layer, each in enumerate(probabilities[:, number, : tokenizer.vocab_size]):
            best = np.argsort(-each, kind="stable")[:top_k]
            words = tokenizer.convert_ids_to_tokens(best.tolist())
            known = None if truth is None else float(each[truth])
            rank = None if known is None else int((each > known).sum()) + 1
            found = tuple(words), tuple(each[best].tolist())
            layers.append(LayerAnswer(layer, *found, known, rank))
        word = None if truth is None else tokenizer.vocabulary.id_to_token(truth)
        masks.append(MaskAnswers(position, word, tuple(layers)))
    return masks


# Words and texts as points: nearest pieces of the vocabulary, cosines, and a map by PCA.

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
        return {"word": self.word, "nearest": self.pieces[0] if self.pieces else None}

    def table(self) -> Table:
        rows = [
            [piece, f"{each:.3f}"] for piece, each in zip(self.pieces, self.cosines, strict=True)
        ]
        title = f"tokens nearest to {' '.join(self.word_pieces)}"
        return Table(title, ("piece", "cosine"), rows, frozenset({"piece"}))

    def plot(self) -> Picture:
        return plots.bars(self.pieces, self.cosines, self.table().title)


@dataclass(frozen=True, eq=False, repr=False)
class Similarities(Shown):
    """m words and texts beside each other: vectors (m, H), cosines (m, m).

    layer: whose states were averaged; "words" for only the word embeddings.
    """

    texts: Sequence[str]
    layer: int | str
    vectors: Floats
    cosines: Floats

    def facts(self) -> dict[str, object]:
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
        return plots.scatter(self.map(), self.texts, "map of the vectors (PCA)")


def nearest_pieces(table: Floats, tokenizer: BertTokenizer, word: str, top_k: int) -> NearestPieces:
    """The ``top_k`` pieces nearest to a word, from the word embeddings (V, H)."""
    if top_k < 1:
        raise UsageError(f"{param('top_k')} is {top_k}: expected at least 1")
    pieces = tokenizer.pieces_of_word(word)
    if not pieces or tokenizer.unk_token in pieces:
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


def principal_components(vectors: Floats) -> Floats:
    """(m, 2): vectors (m, d) on their first two principal components, centred on 0.

    The largest value of each column is positive, so that the map does not depend on the machine.
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
