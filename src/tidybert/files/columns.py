"""Which columns hold the text, the second text and the label: as named, or guessed from the names.

A data row never counts as a header: a first row names the columns only where the caller says so
or where the names asked for (or, with no flags at all, well-known names) are in it.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidybert.errors import DataError, UsageError, param
from tidybert.files.read_options import ReadOptions

PAIR_NAMES: Final = (
    ("sentence1", "sentence2"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("#1 string", "#2 string"),
)
TEXT_NAMES: Final = ("text", "message", "content", "review", "document")
LABEL_NAMES: Final = (
    "label",
    "labels",
    "category",
    "class",
    "target",
    "score",
    "intent",
    "sentiment",
    "quality",
)
KNOWN_NAMES: Final = frozenset(
    (*TEXT_NAMES, *LABEL_NAMES, *(name for pair in PAIR_NAMES for name in pair))
)
ROLES: Final = ("text", "text_pair", "label")


@dataclass(frozen=True)
class Columns:
    """Positions, from 0, of the columns to read, and the roles whose column was guessed.

    Several label columns, one a label, are in ``labels``, and ``label`` is None.
    """

    text: int
    text_pair: int | None
    label: int | None
    guessed: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()

    def last(self) -> int:
        """The position of the rightmost column."""
        return max(self.text, self.text_pair or 0, self.label or 0, *self.labels)


def has_header(options: ReadOptions, first_row: Sequence[str], need_label: bool, path: str) -> bool:
    """Whether the first row of a delimited file names its columns.

    Raises DataError where numbers alone are given and the first row looks like names all the same.
    """
    if options.header is not None:
        return options.header
    roles = ROLES if need_label else ROLES[:2]
    given = [value for role in roles[:2] if (value := getattr(options, role)) is not None]
    if need_label and options.label is not None:
        given += label_parts(options.label)
    if not given or any(not is_number(value) for value in given):
        return True
    known = [cell for cell in first_row if _plain(cell) in KNOWN_NAMES]
    if known:
        raise DataError(
            f"{path}:1: the columns are given by number and the first row holds "
            f"{known[0].strip()!r}: say whether it names the columns, with {param('header')} or "
            f"{param('header', False)}"
        )
    return False


def find_columns(
    options: ReadOptions, names: Sequence[str] | None, width: int, *, need_label: bool, path: str
) -> Columns:
    """Find the columns asked for, and guess those not given where only one guess is possible.

    ``names`` are the columns' names, None without a header; ``width`` is their number.  Raises
    DataError with the columns seen where one is missing, named twice or cannot be guessed.
    """
    found: dict[str, int] = {}
    labels: list[int] = []
    for role in ROLES:
        wanted = getattr(options, role)
        if wanted is None:
            continue
        # A name in the header wins over a list of names, as it does over a number.
        position = _position(wanted, names, width)
        parts = [wanted] if position is not None or role != "label" else label_parts(wanted)
        positions = [_position(part, names, width) for part in parts]
        if None in positions:
            if role != "label" or need_label:
                part = parts[positions.index(None)]
                raise DataError(_not_found(role, part, names, width, path))
        elif len(parts) > 1:
            labels = [position for position in positions if position is not None]
        elif position is not None:
            found[role] = position
    guesses = guess_columns(options, names or (), [*found.values(), *labels])
    found |= guesses
    missing = [role for role in ("text", "label") if role not in found]
    if "text" in missing or (need_label and missing and not labels):
        raise DataError(_cannot_tell(missing[0], names, width, path))
    if len({*found.values(), *labels}) < len(found) + len(labels):
        flags = " and ".join(param(r) for r in ROLES if r in found or (labels and r == "label"))
        raise UsageError(f"{path}: {flags} must name different columns")
    return Columns(
        text=found["text"],
        text_pair=found.get("text_pair"),
        label=found.get("label"),
        guessed=tuple(role for role in ROLES if role in guesses),
        labels=tuple(labels),
    )


def guess_columns(
    options: ReadOptions, names: Sequence[str], taken: Sequence[int]
) -> dict[str, int]:
    """Positions of the roles that no flag gives, where the names allow one reading only.

    ``taken`` are the positions that flags gave to other roles.
    """
    plain = ["" if at in taken else _plain(name) for at, name in enumerate(names)]
    guess: dict[str, int] = {}
    if options.text is None:
        pairs = [pair for pair in PAIR_NAMES if all(plain.count(name) == 1 for name in pair)]
        in_pairs = {name for pair in pairs for name in pair}
        alone = {*TEXT_NAMES, *(name for pair in PAIR_NAMES for name in pair)} - in_pairs
        singles = [at for at, name in enumerate(plain) if name in alone]
        if len(pairs) == 1 and not singles and options.text_pair is None:
            guess = {role: plain.index(pairs[0][at]) for at, role in enumerate(ROLES[:2])}
        elif not pairs and len(singles) == 1:
            guess = {"text": singles[0]}
    if options.label is None:
        labels = [at for at, name in enumerate(plain) if name in LABEL_NAMES]
        if len(labels) == 1:
            guess["label"] = labels[0]
    return guess


def is_number(value: str | int) -> bool:
    """Whether a column is given by number: an int, or digits."""
    return isinstance(value, int) or (value.isascii() and value.isdigit())


def label_parts(wanted: str | int) -> list[str | int]:
    """The columns that a value of --label names where it names several; itself otherwise.

    Raises UsageError for one that is empty or named twice.
    """
    if isinstance(wanted, int) or "," not in wanted:
        return [wanted]
    parts = [part.strip() for part in wanted.split(",")]
    if "" in parts or len(set(parts)) < len(parts):
        raise UsageError(
            f"{param('label')} {wanted!r}: give different columns, with a comma between two"
        )
    return list(parts)


def describe_columns(names: Sequence[str] | None, width: int) -> str:
    """The columns seen, for a message."""
    if names is None:
        return f"The first row has {width} columns, numbered 0 to {width - 1}"
    if not names:
        return "No columns are seen"
    shown = [f"{at} {name[:40]!r}" for at, name in enumerate(names[:20])]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"Columns seen: {', '.join(shown)}{more}"


def suggest(wanted: str | int, names: Sequence[str]) -> str:
    """A near name as the end of a message, or nothing."""
    close = difflib.get_close_matches(str(wanted), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _plain(name: str) -> str:
    return name.strip().casefold()


def _position(wanted: str | int, names: Sequence[str] | None, width: int) -> int | None:
    if isinstance(wanted, str) and names is not None:
        places = [at for at, name in enumerate(names) if name == wanted]
        if len(places) == 1:
            return places[0]
        if places:
            return None
    if is_number(wanted) and int(wanted) < width:
        return int(wanted)
    return None


def _not_found(
    role: str, wanted: str | int, names: Sequence[str] | None, width: int, path: str
) -> str:
    head = f"{path}: {param(role)} {wanted!r}: "
    seen = describe_columns(names, width)
    if names is not None and list(names).count(str(wanted)) > 1:
        return f"{head}several columns have this name; give one by its number. {seen}"
    if is_number(wanted):
        return f"{head}there is no such column; the first column is 0. {seen}"
    if names is None:
        return f"{head}without a header, columns are given by number. {seen}"
    near = suggest(wanted, names) or "."
    return (
        f"{head}there is no such column{near} {seen}. Where the first row is data, give "
        f"{param('header', False)} and columns by number, the first being 0"
    )


def _cannot_tell(role: str, names: Sequence[str] | None, width: int, path: str) -> str:
    what = "text" if role == "text" else "label"
    repeated = sorted({name for name in names or () if list(names or ()).count(name) > 1})
    several = f"; several are named {', '.join(map(repr, repeated))}" if repeated else ""
    return (
        f"{path}: cannot tell which column holds the {what}{several}. "
        f"{describe_columns(names, width)}. Give {param(role)} COLUMN, a name or a number counted "
        "from 0"
        + (f"; where the first row is data, {param('header', False)}" if names is not None else "")
    )
