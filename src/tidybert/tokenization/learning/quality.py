"""How well a vocabulary fits a text: how many pieces its words take, and how many are unknown."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tidybert.tokenization.tokenizer import BertTokenizer
from tidybert.tokenization.vocabulary import CONTINUATION


@dataclass(frozen=True)
class Fit:
    """Counts over a text; a word is what normalising and splitting at punctuation leave."""

    num_characters: int
    num_words: int
    num_tokens: int
    num_unknown: int

    @property
    def characters_per_token(self) -> float:
        """Characters of the raw text, with spaces, to a token; nan for a text without words."""
        return self.num_characters / self.num_tokens if self.num_tokens else math.nan

    @property
    def pieces_per_word(self) -> float:
        """1 where every word is one piece, as a word that is [UNK] is."""
        return self.num_tokens / self.num_words if self.num_words else math.nan

    @property
    def unknown_rate(self) -> float:
        """The share of the words that are [UNK]."""
        return self.num_unknown / self.num_words if self.num_words else math.nan

    def figures(self) -> dict[str, float]:
        """Counts and rates by name."""
        rates = ("characters_per_token", "pieces_per_word", "unknown_rate")
        return {**asdict(self), **{name: getattr(self, name) for name in rates}}


def measure_fit(tokenizer: BertTokenizer, texts: Sequence[str]) -> Fit:
    """Tokenise texts and count."""
    ids, _ = tokenizer.encode_flat(texts, add_special_tokens=False)
    continues = np.array(
        [token.startswith(CONTINUATION) for token in tokenizer.vocabulary.tokens], np.bool_
    )
    # A text cannot spell "##": each # is a word.
    return Fit(
        num_characters=sum(map(len, texts)),
        num_words=int(np.count_nonzero(~continues[ids])),
        num_tokens=len(ids),
        num_unknown=int(np.count_nonzero(ids == tokenizer.unk_token_id)),
    )
