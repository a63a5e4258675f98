"""Values in HTML and SVG: escaped, with a sign in place of each character that cannot be seen.

The texts of a report may come from anybody. None of them becomes an element, and none spoils the
page around it with control characters or overrides of the reading direction.
"""

from typing import Final

from markupsafe import Markup

# Tab and new line are white space. Unicode has a sign for each of the other control characters.
_SIGNS: Final = {
    **{code: 0x2400 + code for code in range(32) if code not in (0x09, 0x0A)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
    **dict.fromkeys((0xFFFE, 0xFFFF), 0xFFFD),
}


def visible(text: str) -> str:
    """The text with a sign for each control code, direction override and lone surrogate.

    >>> visible("a\\x00b")
    'a␀b'
    """
    return text.replace("\r\n", "\n").translate(_SIGNS)


def shown(value: object) -> str:
    """A value as templates write it, before it is escaped; Markup stays as it is.

    >>> shown(1.5), shown(None), shown(7)
    ('1.5', '', '7')
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        # A picture needs only hundredths of a unit.
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return "" if value is None else visible(str(value))


def element(template: str, *values: object) -> Markup:
    """A template with a value in place of each {}.

    >>> str(element("<b>{}</b>", "1 < 2"))
    '<b>1 &lt; 2</b>'
    """
    return Markup(template).format(*map(shown, values))
