"""Sentences of words with tags, and raw text split into words that keep their places."""

from dataclasses import dataclass
from functools import cache

from tidybert.tokenization.basic import BasicTokenizer

# A word's first character in the text, and the one after its last.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """One sentence, or any stretch of text that is tagged at once.

    Args:
        words: as the file has them, or as ``split_text`` cuts the text.
        tags: one a word, those of entities in IOB2; None where they are to be found.
        row: the 1-based line where it begins.
        text: the raw text, where the file has that and not words.
        spans: of each word in ``text``.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    row: int
    text: str | None = None
    spans: tuple[Span, ...] | None = None

    def located(self) -> tuple[str, tuple[Span, ...]]:
        """The text and each word's place in it; words alone are joined by spaces."""
        if self.text is not None and self.spans is not None:
            return self.text, self.spans
        spans = []
        start = 0
        for word in self.words:
            spans.append((start, start + len(word)))
            start += len(word) + 1
        return " ".join(self.words), tuple(spans)


def untagged(text: str, row: int) -> TaggedExample:
    """A raw text to be tagged."""
    words, spans = split_text(text)
    return TaggedExample(words, None, row, text, spans)


def split_text(text: str) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The words of a text, spelled as in it, and their places.

    Words end at white space; each mark of punctuation and each CJK ideograph is one of its own, as
    in BERT's basic tokenizer.  A character that this drops (a control character) is in no word,
    unless it is within one.

    >>> split_text("in U.K., too")
    (('in', 'U', '.', 'K', '.', ',', 'too'), \
((0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (9, 12)))
    """
    found = _basic_tokenizer().split_with_offsets(text)
    spans = tuple(word.span(0, len(word.text)) for word in found)
    return tuple(text[start:end] for start, end in spans), spans


@cache
def _basic_tokenizer() -> BasicTokenizer:
    return BasicTokenizer(do_lower_case=False, strip_accents=False)
