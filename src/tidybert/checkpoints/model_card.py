"""README.md of a RUN: the model card, with the metadata at its head that model hubs read.

A card holds what the run itself knows.  It leaves out facts that a run cannot know, such as a
licence or a language.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidybert.errors import DataError
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.model_files import CARD_FILE
from tidybert.storage.opening import open_regular

MARK: Final = "<!-- tidybert wrote this card; without this line it leaves the file alone. -->"


def is_own_card(path: Path) -> bool:
    """Whether tidybert wrote this README.md and may replace it."""
    try:
        with open_regular(path) as file:
            return MARK.encode() in file.read(8192)
    except (DataError, OSError):
        return False


def write_card(directory: Path, metadata: Mapping[str, Any], paragraphs: Sequence[str]) -> bool:
    """Write the card unless the directory has a README.md of the user's; returns whether it did."""
    path = directory / CARD_FILE
    if os.path.lexists(path) and not is_own_card(path):
        return False
    known = {name: value for name, value in metadata.items() if value not in (None, "", [], {})}
    head = ["---", *yaml_lines(known), "---", ""]
    atomic_write_text(path, "\n".join([*head, MARK, "", "\n\n".join(paragraphs), ""]))
    return True


def yaml_lines(values: Mapping[str, Any], indent: str = "") -> list[str]:
    """A mapping of names to scalars, mappings and lists of them, as lines of YAML."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}:", *yaml_lines(value, indent + "  ")]
        elif isinstance(value, list):
            lines.append(f"{indent}{name}:")
            for each in value:
                entry = yaml_lines(each, indent + "  ") if isinstance(each, Mapping) else []
                first = entry[0].lstrip() if entry else scalar(each)
                lines += [f"{indent}- {first}", *entry[1:]]
        else:
            lines.append(f"{indent}{name}: {scalar(value)}")
    return lines


def scalar(value: Any) -> str:
    """A number, a string or a boolean as YAML: JSON, with unusual characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08X}" for each in text)


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; the cells may hold anything."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(cell, each))} |" for each in lines)


def cell(value: Any) -> str:
    """A value as one cell of a Markdown table."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
