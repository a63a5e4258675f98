"""How an object that answers shows itself: one line, or a table in a notebook."""

from collections.abc import Mapping
from html import escape

from tidybert.terminal_text import printable


def one_line(shown: object, facts: Mapping[str, object]) -> str:
    """Predictor(run='tickets', task='classify', …), without control characters."""
    parts = ", ".join(f"{name}={value!r}" for name, value in facts.items())
    return printable(f"{type(shown).__name__}({parts})")


def html_table(shown: object, facts: Mapping[str, object]) -> str:
    """A table of two columns, with every text escaped."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(printable(str(value)))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{type(shown).__name__}</caption>{rows}</table>"
