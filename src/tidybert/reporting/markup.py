"""HTML and SVG whose text is escaped unless it says that it is markup.

The texts of a report are anybody's: a child of ``tag`` that is a plain string never becomes an
element, and what could spoil the page around it (control characters, overrides of the reading
direction) is shown as a sign.
"""

import html
from collections.abc import Iterable
from typing import Final

_BARE: Final = frozenset({"br", "meta"})
# Tab and new line are white space; the rest of C0 has signs of its own in Unicode.
_SIGNS: Final = {
    **{code: 0x2400 + code for code in range(32) if code not in (0x09, 0x0A)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
    **dict.fromkeys((0xFFFE, 0xFFFF), 0xFFFD),
}


class Markup(str):
    """Text that is HTML or SVG already."""

    __slots__ = ()


def visible(text: str) -> str:
    """The text with a sign in place of each character that is none: control codes, halves of pairs.

    >>> visible("a\\x00b")
    'a␀b'
    """
    return text.replace("\r\n", "\n").translate(_SIGNS)


def escaped(text: str) -> Markup:
    """The text as HTML shows it."""
    return text if isinstance(text, Markup) else Markup(html.escape(visible(text)))


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element; children that are None, and attributes that are None, are left out.

    Attributes are named as Python can: ``class_`` is class, ``aria_label`` is aria-label.

    >>> tag("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _BARE:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Markup:
    """Several pieces as one."""
    return Markup("".join(escaped(child) for child in children if child is not None))


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return html.escape(visible(value))
    # Pictures need no more than a hundredth of a unit, and short files load sooner.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
