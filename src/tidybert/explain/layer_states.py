"""The three embeddings and their sum, the states of each layer, and a word in several texts.

n pieces, L layers, H width, B texts.  Layer 0 is the output of the embeddings, L the last layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tidybert.explain import plots
from tidybert.explain.explained_text import ExplainedText
from tidybert.explain.shown import Floats, Shown, Table, cosine
from tidybert.reporting.drawing import Picture
from tidybert.tokenization.encoding import Span


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingSum(ExplainedText):
    """The embeddings that the model adds for each piece, (n, H) each.

    Args:
        word, position, segment: the summands; a language model has no segments, and None.
        total: their sum.
        normalized: the sum after LayerNorm, which the first layer reads.
    """

    word: Floats
    position: Floats
    segment: Floats | None
    total: Floats
    normalized: Floats

    @property
    def parts(self) -> dict[str, Floats]:
        """All by name, in the order of the sum."""
        segment = {} if self.segment is None else {"segment": self.segment}
        summands = {"word": self.word, "position": self.position, **segment}
        return {**summands, "sum": self.total, "after LayerNorm": self.normalized}

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
    """A word's vectors in several texts, layer by layer.

    Args:
        word: as asked for.
        texts: B of them.
        spans: its first place in each.
        vectors: (B, L + 1, H), the mean over its pieces.
        cosines: (L + 1, B, B) of these vectors with each other.
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
        """The word, and how many texts and layers there are."""
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
