"""Texts to passages: windows of tokens that begin and end where sentences do.

A window holds as many whole sentences as fit.  The next one begins with the last sentence that is
no more than a stride further, so windows overlap where the stride is smaller than the window.  A
sentence that is longer than a window is cut between words.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tidybert.errors import LINE, DataError
from tidybert.files.text_examples import TextExample
from tidybert.tokenization.tokenizer import BertTokenizer, Span

PLACE = ("start", "end")
"""The columns of a passage that say where it is in its document, in characters from 0."""


def text_passages(
    examples: Iterable[TextExample], tokenizer: BertTokenizer, window: int, stride: int
) -> Iterator[TextExample]:
    """Each text's passages in order, with PLACE among their columns; the first begins at 0."""
    for one in examples:
        columns = one.columns or {}
        if found := [name for name in PLACE if name in columns]:
            raise DataError(
                f"{LINE} {one.row} has a column {found[0]!r}, which says the place of a passage: "
                "rename it"
            )
        for start, end in passage_spans(one.text, tokenizer, window, stride):
            place = dict(zip(PLACE, (start, end), strict=True))
            yield replace(one, text=one.text[start:end], columns={**columns, **place})


def passage_spans(text: str, tokenizer: BertTokenizer, window: int, stride: int) -> list[Span]:
    """Where the passages of a text begin and end, in characters.

    Args:
        window: most tokens of one, without special tokens.
        stride: most tokens from one's beginning to the next one's, unless a sentence has more.
    """
    spans = tokenizer.encode(text, add_special_tokens=False).offset_mapping
    total = len(spans)
    if total <= window:
        return [(0, len(text))]
    borders = _borders(text, spans)
    found: list[Span] = []
    begin = 0
    while True:
        end = total
        if total - begin > window:
            end = borders[bisect_right(borders, begin + window) - 1]
            if end <= begin:
                end = begin + window
                # Not in the middle of a word.
                while end > begin + 1 and spans[end][0] == spans[end - 1][1]:
                    end -= 1
                end = end if end > begin + 1 else begin + window
        first = spans[begin][0] if begin else 0
        last = spans[end][0] if end < total else len(text)
        found.append((first, first + len(text[first:last].rstrip())))
        if end == total:
            return found
        after = borders[bisect_right(borders, min(begin + stride, end)) - 1]
        if after <= begin:
            after = borders[bisect_left(borders, begin + 1)]
        begin = min(after, end)


def _borders(text: str, spans: list[Span]) -> list[int]:
    """The tokens that begin a sentence, and the number of tokens."""
    # It loads what builds a corpus.
    from tidybert.corpus.tokenizing import split_sentences

    starts = [start for start, _ in spans]
    found, at = {0}, 0
    for line in text.splitlines():
        for sentence in split_sentences(line):
            at = text.index(sentence, at)
            found.add(bisect_left(starts, at))
            at += len(sentence)
    return sorted({*found, len(spans)})
