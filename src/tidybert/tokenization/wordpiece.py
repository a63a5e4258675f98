"""WordPiece: cut a normalised word into the longest pieces of a vocabulary, and join pieces again.

Follows WordpieceTokenizer of Google's tokenization.py.  Joining cannot restore what normalisation
took away (case, accents, white space), but it removes the spaces that English and Chinese
typography does not put around punctuation.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from tidybert.tokenization import unicode_tables as tables
from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN, Vocabulary

MAX_CHARS_PER_WORD = 100

Value = TypeVar("Value")

_WIDE = tables.character_class(tables.CJK) + "\u3000-\u30ff\uff00-\uff60"
_TIDIED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # No space before closing marks, none after opening ones.
        (r" ([.,!?;:%)\]}»”…])", r"\1"),
        (r"([(\[{«“¿¡$£€#@]) ", r"\1"),
        # Apostrophes inside words; times, decimals and thousands.
        (r"(?<=\w) (['’]) (?=\w)", r"\1"),
        (r"(?<=\d)([.:]) (?=\d)", r"\1"),
        (r"(?<=\d), (?=\d{3}(?!\d))", ","),
        (rf"(?<=[{_WIDE}]) (?=[{_WIDE}])", ""),
    )
]


class WordPiece(Generic[Value]):
    """Greedy longest match first, from the left.

    ``values[id]`` is what ``split`` returns for a token: its id, or the id's bytes.
    A word that no pieces spell, or that is longer than 100 characters, is one [UNK].
    """

    def __init__(self, vocabulary: Vocabulary, values: Sequence[Value]) -> None:
        self._unknown = values[vocabulary.token_to_id(UNK_TOKEN)]
        self._first = dict(zip(vocabulary.tokens, values, strict=True))
        self._rest = {
            token[len(CONTINUATION) :]: value
            for token, value in self._first.items()
            if token.startswith(CONTINUATION) and token != CONTINUATION
        }
        self._longest = max(map(len, self._first))

    def split(self, word: str) -> list[Value]:
        """The values of a word's pieces."""
        length = len(word)
        if length > MAX_CHARS_PER_WORD:
            return [self._unknown]
        pieces = self._first
        value = pieces.get(word)
        if value is not None:
            return [value]
        found: list[Value] = []
        start = 0
        end = min(length - 1, self._longest)
        while start < length:
            while end > start:
                value = pieces.get(word[start:end])
                if value is not None:
                    break
                end -= 1
            else:
                return [self._unknown]
            found.append(value)
            pieces = self._rest
            start = end
            end = min(length, start + self._longest)
        return found


def piece_ends(word: str, tokens: Sequence[str]) -> list[int]:
    """The position in a word where each of its pieces, given as tokens, ends."""
    if len(tokens) == 1:
        return [len(word)]
    lengths = [len(token) - len(CONTINUATION) for token in tokens]
    return list(accumulate(lengths, initial=len(CONTINUATION)))[1:]


def join_pieces(tokens: Iterable[str]) -> str:
    """Tokens as text: continuations joined to their words, punctuation to its neighbours."""
    text = ""
    for token in tokens:
        if token.startswith(CONTINUATION) and token != CONTINUATION:
            text += token.removeprefix(CONTINUATION)
        else:
            text += f" {token}"
    text = text.strip()
    for pattern, replacement in _TIDIED:
        text = pattern.sub(replacement, text)
    return text
