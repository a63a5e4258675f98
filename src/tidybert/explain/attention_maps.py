"""Attention of every layer and head, one head's matrix, and the arithmetic of one cell.

Paper: Vaswani et al. 2017, section 3.2.1.  n pieces, L layers, N heads, D head width.  Layers and
heads are counted from 1, as people do; arrays begin at 0: ``probs[layer - 1, head - 1]``.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tidybert.errors import UsageError, param
from tidybert.explain import plots
from tidybert.explain.explained_text import ExplainedText, Floats, Table
from tidybert.reporting.drawing import Picture

_MOST_LOOKED_AT: Final = 3
_SHOWN_TERMS: Final = 8


@dataclass(frozen=True, eq=False, repr=False)
class AttentionCell(ExplainedText):
    """How one piece (the row) came to look at another (the column), step by step.

    layer, head: from 1.  row, column: positions of the two pieces.
    query: (D,) of the row.  key: (D,) of the column.  products: (D,) the terms of query · key.
    dot: their sum.  scaled: dot / sqrt(D).
    row_scores: (n,) the scaled scores of the row; minus infinity where it may not look.
    row_probs: (n,) their softmax.  values: (n, D) of all pieces.
    weighted_values: (n, D) each times its probability.
    context: (D,) their sum, the head's output for the row.
    """

    layer: int
    head: int
    row: int
    column: int
    query: Floats
    key: Floats
    products: Floats
    dot: float
    scaled: float
    row_scores: Floats
    row_probs: Floats
    values: Floats
    weighted_values: Floats
    context: Floats

    @property
    def prob(self) -> float:
        return float(self.row_probs[self.column])

    def table(self) -> Table:
        """The largest terms, their sum, and what becomes of it."""
        order = np.argsort(-np.abs(self.products), kind="stable")[:_SHOWN_TERMS]
        values = (self.query, self.key, self.products)
        rows = [[f"{at}", *(f"{each[at]:.4f}" for each in values)] for at in order.tolist()]
        width = len(self.products)
        if width > len(order):
            rest = float(self.products.sum() - self.products[order].sum())
            rows.append([f"the other {width - len(order)}", "", "", f"{rest:.4f}"])
        rows += [
            ["sum q·k", "", "", f"{self.dot:.4f}"],
            [f"/ √{width}", "", "", f"{self.scaled:.4f}"],
            [f"softmax over {len(self.row_probs)}", "", "", f"{self.prob:.4f}"],
        ]
        title = (
            f"layer {self.layer}, head {self.head}: {self.tokens[self.row]} looks at "
            f"{self.tokens[self.column]}"
        )
        return Table(title, ("term", "q", "k", "q·k"), rows, frozenset({"term"}))

    def plot(self) -> Picture:
        """The terms of query · key as bars."""
        title = str(self.table().title)
        return plots.bars([f"{at}" for at in range(len(self.products))], self.products, title)


@dataclass(frozen=True, eq=False, repr=False)
class AttentionHead(ExplainedText):
    """One head's scores and probs, (n, n) each: a row is a piece that looks at the columns."""

    layer: int
    head: int
    scores: Floats
    probs: Floats

    def table(self) -> Table:
        """The pieces that each piece looks at most."""
        rows = []
        for token, probs in zip(self.tokens, self.probs, strict=True):
            best = np.argsort(-probs, kind="stable")[:_MOST_LOOKED_AT]
            looked = [f"{self.tokens[at]} {probs[at]:.3f}" for at in best.tolist()]
            rows.append([token, *looked, *[""] * (_MOST_LOOKED_AT - len(looked))])
        headings = ("piece", "looks at", "then at", "and at")
        title = f"attention of layer {self.layer}, head {self.head}"
        return Table(title, headings, rows, frozenset(headings))

    def _repr_html_(self) -> str:
        return self.plot().svg

    def plot(self) -> Picture:
        """The matrix with the pieces on both sides."""
        return plots.matrix(self.probs, self.tokens, str(self.table().title))


@dataclass(frozen=True, eq=False, repr=False)
class Attention(ExplainedText):
    """Attention of all layers and heads; ``causal``: a piece sees itself and those before it.

    scores: (L, N, n, n) query · key / sqrt(D); minus infinity where a piece may not look.
    probs: (L, N, n, n) their softmax over each row.  query, key, value: (L, N, n, D).
    """

    causal: bool
    scores: Floats
    probs: Floats
    query: Floats
    key: Floats
    value: Floats

    @property
    def num_layers(self) -> int:
        """L."""
        return int(self.probs.shape[0])

    @property
    def num_heads(self) -> int:
        """N."""
        return int(self.probs.shape[1])

    def head(self, layer: int, head: int) -> AttentionHead:
        """One head, counted from 1; UsageError for one that the model lacks."""
        layer, head = self._place("layer", layer), self._place("head", head)
        at = layer - 1, head - 1
        return AttentionHead(
            self.text, self.text_pair, self.encoding, layer, head, self.scores[at], self.probs[at]
        )

    def cell(self, layer: int, head: int, row: int, column: int) -> AttentionCell:
        """The arithmetic of one cell; ``row`` and ``column`` are positions of pieces, from 0."""
        layer, head = self._place("layer", layer), self._place("head", head)
        for name, position in (("row", row), ("column", column)):
            if not 0 <= position < len(self.encoding):
                raise UsageError(
                    f"{param(name)} is {position}: expected 0 to {len(self.encoding) - 1}, the "
                    "position of a token"
                )
        at = layer - 1, head - 1
        query, key, value = self.query[at][row], self.key[at][column], self.value[at]
        products = query * key
        dot = float(products.sum())
        weighted = self.probs[at][row][:, None] * value
        return AttentionCell(
            *(self.text, self.text_pair, self.encoding, layer, head, row, column),
            *(query, key, products, dot, dot / math.sqrt(len(query))),
            *(self.scores[at][row], self.probs[at][row], value, weighted, weighted.sum(0)),
        )

    def facts(self) -> dict[str, object]:
        shape = {"num_layers": self.num_layers, "num_heads": self.num_heads}
        return {**super().facts(), **shape, "causal": self.causal}

    def table(self) -> Table:
        """Where each head looks, on the mean over the pieces."""
        special = [side is None for side in self.encoding.sequence_ids]
        names = dict.fromkeys(
            token for token, is_special in zip(self.tokens, special, strict=True) if is_special
        )
        rows = []
        for layer in range(self.num_layers):
            for head in range(self.num_heads):
                probs = self.probs[layer, head]
                shares = (
                    np.diagonal(probs).mean(),
                    np.diagonal(probs, -1).sum() / len(probs),
                    np.diagonal(probs, 1).sum() / len(probs),
                    probs[:, special].sum() / len(probs),
                    -np.sum(probs * np.log2(np.where(probs > 0, probs, 1))) / len(probs),
                )
                rows.append([f"{layer + 1}", f"{head + 1}", *(f"{each:.2f}" for each in shares)])
        return Table(
            "where the tokens look, on average, by head" + ", causal" * self.causal,
            ("layer", "head", "itself", "before", "next", ", ".join(names), "entropy, bits"),
            rows,
            frozenset(),
        )  # fmt: skip

    def plot(self) -> Picture:
        """A small matrix for each layer and head."""
        return plots.grid(self.probs, "attention: rows of layers, columns of heads")

    def _place(self, name: str, number: int) -> int:
        most = self.num_layers if name == "layer" else self.num_heads
        if not 1 <= number <= most:
            raise UsageError(f"{param(name)} is {number}: expected 1 to {most}")
        return number
