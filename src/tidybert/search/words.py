"""Words of a text, as an index counts them.

A word is letters, marks and digits in a row, in small letters.  One with a digit or an underscore
that has more in it, such as AB-1234 or 10.5, counts whole and in its parts.  Scripts without spaces
have a word for each character and for each pair of neighbours.
"""

import re
import unicodedata
from functools import cache
from itertools import pairwise
from typing import Final

from tidybert.tokenization.unicode_tables import CJK, character_class

# Han with its signs, kana, Thai, Lao, Burmese and Khmer.
_UNSPACED: Final = character_class(
    f"{CJK} 3005-3007 3041-3096 309D-309F 30A1-30FA 30FC-30FF 31F0-31FF FF66-FF9F E01-E2E E30 "
    "E32-E33 E40-E46 E81-EB0 EB2-EB3 EBD-EC6 EDC-EDF 1000-102A 103F 1050-1055 1780-17B3 30000-323AF"
)
_ASCII: Final = re.compile(r"[a-z0-9_]++(?:[-.,/][a-z0-9_]++)*+(?:\+\+|#)?")
_ASCII_PART: Final = re.compile("[a-z0-9]++")
_HAS_CODE: Final = re.compile(r"[\d_+#]")


def words_of(text: str) -> list[str]:
    """The words of a text, each as often as it is there."""
    whole, part, character = _ASCII, _ASCII_PART, None
    folded = text.lower()
    if not text.isascii():
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
        whole, part, character = _patterns()
    found: list[str] = []
    for word in whole.findall(folded):
        if character is not None and character.match(word):
            characters = character.findall(word)
            found += characters
            found += map("".join, pairwise(characters))
        elif word.isalnum():
            found.append(word)
        else:
            parts = part.findall(word)
            found += parts
            if parts and parts != [word] and _HAS_CODE.search(word):
                found.append(word)
    return found


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    r"""Of a word or a run of a script without spaces, of a word's parts, and of a character.

    \w has no marks, without which many languages have no words.
    """
    codes = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
    marks = "".join(chr(at) for at in codes if unicodedata.category(chr(at))[0] == "M")
    character = f"[{_UNSPACED}][{marks}]*+"
    word, part = (f"(?:[^\\W{more}{_UNSPACED}]++[{marks}]*+)++" for more in ("", "_"))
    return (
        re.compile(f"(?:{character})++|{word}(?:[-.,/\u2010\u2011]{word})*+(?:\\+\\+|#)?"),
        re.compile(part),
        re.compile(character),
    )
