"""The answers of each layer at a [MASK]: the masked-LM head on the states of every layer.

nostalgebraist 2020 (interpreting GPT: the logit lens) reads a model this way.  The head was trained
on the last layer alone, so the answers of lower layers are a view and no prediction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tidybert.explain import plots
from tidybert.explain.explained_text import ExplainedText
from tidybert.explain.shown import Floats, Table
from tidybert.reporting.drawing import Picture
from tidybert.tokenization import BertTokenizer

_SHOWN_WORDS: Final = 3


@dataclass(frozen=True)
class LayerAnswer:
    """A layer's answer at one [MASK].

    Args:
        layer: 0 for the embeddings, L for the model's own answer.
        words: the likeliest pieces, the best first.
        probabilities: theirs.
        truth_probability, truth_rank: of the hidden piece, 1 being the best; None where unknown.
    """

    layer: int
    words: tuple[str, ...]
    probabilities: tuple[float, ...]
    truth_probability: float | None
    truth_rank: int | None


@dataclass(frozen=True)
class MaskAnswers:
    """The answers of layers 0 to L at one [MASK].

    Args:
        position: of the [MASK] among the pieces.
        truth: the piece that was hidden; None where the text itself has the [MASK].
    """

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
    """The answers at M masks.

    Args:
        probabilities: (L + 1, M, V) of each layer.
        masked: the M positions.
        truths: the ids (n,) of the text itself.
        tokenizer: the model's.
        top_k: how many words of each layer.
    """
    masks = []
    for number, position in enumerate(masked):
        index = truths[position]
        truth = None if index == tokenizer.mask_token_id else index
        layers = tuple(
            _layer_answer(layer, each[: tokenizer.vocab_size], truth, tokenizer, top_k)
            for layer, each in enumerate(probabilities[:, number])
        )
        word = None if truth is None else tokenizer.vocabulary.id_to_token(truth)
        masks.append(MaskAnswers(position, word, layers))
    return masks


def _layer_answer(
    layer: int, probabilities: Floats, truth: int | None, tokenizer: BertTokenizer, top_k: int
) -> LayerAnswer:
    best = np.argsort(-probabilities, kind="stable")[:top_k]
    words = tokenizer.convert_ids_to_tokens(best.tolist())
    known = None if truth is None else float(probabilities[truth])
    rank = None if known is None else int((probabilities > known).sum()) + 1
    return LayerAnswer(layer, tuple(words), tuple(probabilities[best].tolist()), known, rank)
