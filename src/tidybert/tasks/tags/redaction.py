"""Texts with entities blacked out, by whole characters; loads no torch."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypedDict

from tidybert.tasks.tags.patterns import Mark

BLACKED_OUT: Final = "[{type}]"
_JOINER: Final = "\u200d"


class RedactedEntity(TypedDict):
    """What was blacked out: its type, where its placeholder is, and its score; not its text."""

    type: str
    start: int
    end: int
    score: float | None


@dataclass(frozen=True)
class Redacted:
    """A text without its entities; None where a part of it could not be read."""

    text: str | None
    entities: list[RedactedEntity]


def black_out(text: str, marks: Iterable[Mark], placeholder: str = BLACKED_OUT) -> Redacted:
    """The text with a placeholder for the characters of each mark, or of marks that overlap.

    Of marks that overlap the longest gives the type.  In the placeholder {type} is the type, and
    {number} counts the different strings of a type within the text, from 1.

    >>> black_out("Anna met Ben", [Mark("PER", 0, 4)], "[{type}_{number}]").text
    '[PER_1] met Ben'
    """
    numbers: dict[str, dict[str, int]] = {}
    parts, entities = [], list[RedactedEntity]()
    at = length = 0
    for start, end, longest in _joined(text, marks):
        known = numbers.setdefault(longest.type, {})
        number = known.setdefault(text[start:end], len(known) + 1)
        shown = placeholder.replace("{number}", str(number)).replace("{type}", longest.type)
        parts += [text[at:start], shown]
        length += start - at
        place: RedactedEntity = {
            "type": longest.type,
            "start": length,
            "end": length + len(shown),
            "score": longest.score,
        }
        entities.append(place)
        length, at = length + len(shown), end
    return Redacted("".join([*parts, text[at:]]), entities)


def _joined(text: str, marks: Iterable[Mark]) -> list[tuple[int, int, Mark]]:
    """The characters of marks that overlap, as one, with the longest mark."""
    found: list[tuple[int, int, Mark]] = []
    whole = ((*_whole(text, each.start, each.end), each) for each in marks)
    for start, end, mark in sorted(whole, key=lambda each: each[:2]):
        if found and start < found[-1][1]:
            first, last, other = found.pop()
            start, end = first, max(last, end)
            mark = max(other, mark, key=lambda each: each.end - each.start)
        found.append((start, end, mark))
    return found


def _whole(text: str, start: int, end: int) -> tuple[int, int]:
    """The same place with all of the characters that a reader sees at its ends."""
    while start > 0 and (_continues(text[start]) or text[start - 1] == _JOINER):
        start -= 1
    while end < len(text) and (_continues(text[end]) or text[end - 1] == _JOINER):
        end += 1
    return start, end


def _continues(char: str) -> bool:
    """Whether a character is a part of the one before: a mark, a joiner, a tone of an emoji."""
    is_part = char == _JOINER or "\U0001f3fb" <= char <= "\U0001f3ff"
    return is_part or "\U000e0020" <= char <= "\U000e007f" or unicodedata.category(char)[0] == "M"
