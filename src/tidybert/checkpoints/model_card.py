"""README.md of a RUN: the model card, with the metadata at its head that model hubs read.

A card holds what the run itself knows.  It leaves out facts that a run cannot know, such as a
licence or a language.  The templates are in resources/cards.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.errors import DataError
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.model_files import CARD_FILE
from tidybert.storage.opening import open_regular
from tidybert.system.terminal import printable

if TYPE_CHECKING:
    from jinja2 import Environment

MARK: Final = "<!-- tidybert wrote this card; without this line it leaves the file alone. -->"


def is_own_card(path: Path) -> bool:
    """Whether tidybert wrote this README.md and may replace it."""
    try:
        with open_regular(path) as file:
            return MARK.encode() in file.read(8192)
    except (DataError, OSError):
        return False


def write_card(directory: Path, template: str, **facts: Any) -> bool:
    """Write the card unless the directory has a README.md of the user's; returns whether it did."""
    path = directory / CARD_FILE
    if os.path.lexists(path) and not is_own_card(path):
        return False
    atomic_write_text(path, _environment().get_template(template).render(facts, mark=MARK) + "\n")
    return True


@cache
def _environment() -> Environment:
    """The templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Markdown has no escapes that fit everywhere: each place in a template names its filter.
    made = Environment(
        loader=PackageLoader("tidybert", "resources/cards"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"cell": cell, "scalar": scalar, "code": code, "word": word, "place": place}
    return made


def scalar(value: Any) -> str:
    """A number or a string as YAML: JSON, with unusual characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08X}" for each in text)


def cell(value: Any) -> str:
    """A value as one cell of a Markdown table, or as a heading: text without markup."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    plain = re.sub(r"([\\|`*\[\]])", r"\\\1", one_line(text).replace("&", "&amp;"))
    return plain.replace("<", "&lt;")


def code(value: Any) -> str:
    """A text as a code span, whose fence is longer than any within."""
    text = one_line(str(value))
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " * (len(fence) > 1)
    return f"{fence}{pad}{text}{pad}{fence}"


def word(value: Any) -> str:
    """A name as one word of a shell's command."""
    return shlex.quote(one_line(str(value)))


def place(value: Any) -> str:
    """A value without the folders of this machine, if it is a path with all of them."""
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def one_line(text: str) -> str:
    """A text on one line, whose control characters are shown."""
    return printable(" ".join(text.split()))
