"""The step before WordPiece: clean a text, lower-case it, strip accents and split it into words.

Follows BasicTokenizer of Google's tokenization.py in the exact form of Hugging Face's
BertNormalizer and BertPreTokenizer: unicode_tables holds their classes of characters.

The unit of work is a piece of text.  A piece ends at white space, at a symbol or punctuation mark
and around each CJK ideograph; none of these affects its neighbours, or they it, so the words of a
text are the words of its pieces.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from typing import Final

from tidybert.errors import TextError
from tidybert.tokenization import unicode_tables as tables

_WHITE_SPACE: Final = tables.character_class(tables.WHITE_SPACE)
_PUNCTUATION: Final = tables.character_class(tables.PUNCTUATION)
_CJK: Final = tables.character_class(tables.CJK)
_REMOVED_CLASS: Final = tables.character_class(tables.REMOVED)
_CANONICAL_CLASS: Final = tables.character_class(tables.CANONICAL)
_MARK_CLASS: Final = tables.character_class(tables.NONSPACING_MARKS)

# A normalised character and its (start, end) in the original text.
_Aligned = tuple[str, tuple[int, int]]

_SURROGATE: Final = "[\ud800-\udfff]"
_REMOVED: Final = f"[{_REMOVED_CLASS}]"
_IDEOGRAPH: Final = f"[{_CJK}]"
_CANONICAL: Final = f"[{_CANONICAL_CLASS}]+"
_MARK: Final = f"[{_MARK_CLASS}]"
_WORD: Final = f"[{_PUNCTUATION}]|[^{_WHITE_SPACE}{_PUNCTUATION}]+"
_SPACE: Final = f"[{_WHITE_SPACE}]"


@cache
def _of(pattern: str) -> re.Pattern[str]:
    """Compiled when a text needs it: all together take 50 ms, and most texts need few."""
    return re.compile(pattern)


@dataclass(frozen=True, slots=True)
class Word:
    """A normalised word and where its characters came from.

    ``spans`` holds a (start, end) of the original text for each character of ``text``; None if the
    original text has the same characters, one by one, from ``start``.
    """

    text: str
    start: int
    spans: list[tuple[int, int]] | None = None

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The (start, end) in the original text of the characters text[begin:end]."""
        if self.spans is None:
            return self.start + begin, self.start + end
        spans = self.spans[begin:end]
        # Canonical ordering may have moved a mark before one that precedes it in the text.
        return min(start for start, _ in spans), max(end for _, end in spans)


class BasicTokenizer:
    """Split texts into normalised words.

    do_lower_case: lower-case every character, each by itself (a final sigma becomes σ).
    strip_accents: decompose and drop non-spacing marks; None: as do_lower_case.
    tokenize_chinese_chars: each CJK ideograph is a word.
    """

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ) -> None:
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        alone = _PUNCTUATION + (_CJK if tokenize_chinese_chars else "")
        piece = re.compile(f"[{alone}]|[^{_WHITE_SPACE}{alone}]+")
        self._piece_matches = piece.finditer
        #: The pieces of a text, as a list of str.
        self.pieces = piece.findall

    @cached_property
    def _altered(self) -> Callable[[str], re.Match[str] | None]:
        """Find the first character of a text that normalisation removes or decomposes."""
        stripped = _CANONICAL_CLASS + _MARK_CLASS if self.strip_accents else ""
        return re.compile(f"[{_REMOVED_CLASS}{stripped}]").search

    def normalize(self, text: str) -> str:
        """The text cleaned, spaced, stripped and lower-cased, as one string.

        Raises TextError for a lone surrogate, which is not a character.
        """
        check_text(text, "the text")
        text = _of(_SPACE).sub(" ", _of(_REMOVED).sub("", text))
        if self.tokenize_chinese_chars:
            text = _of(_IDEOGRAPH).sub(r" \g<0> ", text)
        if self.strip_accents:
            text = _of(_MARK).sub("", _of(_CANONICAL).sub(_decompose, text))
        return _lower(text) if self.do_lower_case else text

    def split(self, text: str) -> list[str]:
        """The normalised words of a text."""
        return _of(_WORD).findall(self.normalize(text))

    def split_with_offsets(self, text: str) -> Iterator[Word]:
        """The normalised words of a text, with their places in it.

        A stripped accent belongs to the letter before it, so the span of a decomposed "é" covers
        its two characters.
        """
        for match in self._piece_matches(text):
            piece, start = match[0], match.start()
            word = _lower(piece) if self.do_lower_case else piece
            # Lower-casing never shortens: at equal length each character is in its old place.
            if len(word) == len(piece) and not self._altered(piece):
                yield Word(word, start)
            else:
                yield from self._split_aligned(piece, start)

    def _split_aligned(self, piece: str, start: int) -> Iterator[Word]:
        characters = [
            (character, (position, position + 1))
            for position, original in enumerate(piece, start)
            for character in self._normalize_character(original)
        ]
        if self.strip_accents:
            characters = _drop_marks(_order_canonically(characters))
        if self.do_lower_case:
            characters = [(low, span) for one, span in characters for low in _lower(one)]
        spans = [span for _, span in characters]
        for match in _of(_WORD).finditer("".join(character for character, _ in characters)):
            word_spans = spans[match.start() : match.end()]
            yield Word(match[0], word_spans[0][0], word_spans)

    def _normalize_character(self, character: str) -> str:
        if _of(_REMOVED).match(character):
            return ""
        if self.strip_accents and _of(_CANONICAL).match(character):
            return unicodedata.normalize("NFD", character)
        return character


def check_text(text: object, name: str) -> None:
    """Raise TextError, which calls the text ``name``, for a non-string and a lone surrogate."""
    if not isinstance(text, str):
        raise TextError(
            f"{name} is {text!r:.80}, of type {type(text).__name__}: expected a string; "
            "convert it, or drop missing values, first"
        )
    surrogate = _of(_SURROGATE).search(text)
    if surrogate:
        raise TextError(
            f"{name} has the lone surrogate U+{ord(surrogate[0]):04X} at position "
            f"{surrogate.start()}: expected Unicode text; decode the source with its encoding, or "
            'replace surrogates with text.encode("utf-8", "replace").decode("utf-8")'
        )


def _decompose(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFD", match[0])


def _lower(text: str) -> str:
    if text.isascii():
        return text.lower()
    # str.lower writes a final sigma as ς; the reference looks at one character at a time.
    return text.replace("Σ", "σ").translate(tables.NEW_CAPITALS).lower()


def _order_canonically(characters: list[_Aligned]) -> list[_Aligned]:
    """Sort each run of combining characters by combining class (Unicode, canonical ordering)."""
    ordered: list[_Aligned] = []
    for _, run in groupby(characters, key=lambda one: _combining(one) > 0):
        ordered += sorted(run, key=_combining)
    return ordered


def _combining(aligned: _Aligned) -> int:
    character = aligned[0]
    return unicodedata.combining(character) if _of(_CANONICAL).match(character) else 0


def _drop_marks(characters: list[_Aligned]) -> list[_Aligned]:
    """Drop non-spacing marks; the span of the character before them grows over them."""
    kept: list[_Aligned] = []
    for character, (start, end) in characters:
        if not _of(_MARK).match(character):
            kept.append((character, (start, end)))
        elif kept:
            first, last = kept[-1][1]
            # A letter that was decomposed grows whole, so that its parts keep one place.
            for place in range(len(kept) - 1, -1, -1):
                if kept[place][1][0] != first:
                    break
                kept[place] = kept[place][0], (first, max(last, end))
    return kept
