"""From pieces back to readable text.

What normalisation took away (case, accents, white space) cannot come back; the spaces that it put
around punctuation are taken out where English and Chinese typography want none.
"""

import re
from collections.abc import Iterable

from tidybert.tokenization import unicode_tables as tables
from tidybert.tokenization.vocabulary import CONTINUATION

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
