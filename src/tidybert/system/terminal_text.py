"""Text of files and users as a terminal may have it: control characters are shown, never sent.

An escape sequence in a label, a token or a file's name could move the cursor, recolour the screen
or rewrite the lines above; a bidirectional override could show a text in another order.
"""

import re
from typing import Final

# All but tabs and line feeds: controls of C0 and C1, line and paragraph separators, bidirectional
# embeddings, overrides and isolates, and the surrogates of bytes that are not UTF-8.
_SENT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""A text whose control characters are shown as Python writes them; tabs and lines stay.

    >>> printable("\x1b[31mred\x9b\u202e")
    '\\x1b[31mred\\x9b\\u202e'
    """
    return text if text.isprintable() else _SENT.sub(_python_escape, text)


def printable_json(line: str) -> str:
    r"""The same for text in JSON, with JSON's escapes: whoever reads it gets the raw characters.

    >>> printable_json('{"label": "\x7f"}')
    '{"label": "\\u007f"}'
    """
    return line if line.isprintable() else _SENT.sub(_json_escape, line)


def _python_escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
