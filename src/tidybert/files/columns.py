"""Which columns hold the text, the second text and the label: as named, or guessed from the names.

A data row never counts as a header: a first row names the columns only where the caller says so
or where the names asked for (or, with no flags at all, well-known names) are in it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidybert.errors import DataError, UsageError, param, suggestion
from tidybert.files.read_options import ROLES
from tidybert.files.read_report import ReadReport
from tidybert.storage.limits import COLUMNS


@dataclass(frozen=True)
class _KnownNames:
    """Names that people give to columns, in small letters, with _ for spaces and hyphens."""

    pairs: tuple[tuple[str, str], ...]
    texts: frozenset[str]
    labels: frozenset[str]

    @classmethod
    def of(cls, pairs: tuple[tuple[str, str], ...], texts: str, labels: str) -> "_KnownNames":
        """Each text of a pair is a text too."""
        return cls(pairs, frozenset(texts.split()).union(*pairs), frozenset(labels.split()))


# A name of the second group counts only in a file that has none of the first.
KNOWN_NAMES: Final = (
    _KnownNames.of(
        (
            ("sentence1", "sentence2"),
            ("question", "sentence"),
            ("question1", "question2"),
            ("premise", "hypothesis"),
            ("text_a", "text_b"),
            ("text1", "text2"),
            ("#1_string", "#2_string"),
        ),
        "text message content review document",
        "label labels category class target score intent sentiment quality",
    ),
    _KnownNames.of(
        (
            ("sentence_a", "sentence_b"),
            ("sentence_1", "sentence_2"),
            ("text_1", "text_2"),
            ("sent1", "sent2"),
            ("query", "passage"),
            ("claim", "evidence"),
        ),
        "abstract article body comment comment_text comments description email feedback full_text "
        "headline input phrase post review_text reviewtext sms statement title transcript tweet "
        "tweet_text utterance",
        "annotation classification department emotion gold gold_label label_name label_text "
        "outcome polarity queue rating relatedness_score similarity similarity_score stars tag "
        "team topic y",
    ),
)

# Names that count first where texts that belong together are read.
_TOGETHER: Final = _KnownNames(
    (("anchor", "positive"), ("query", "positive"), ("question", "answer"), ("query", "answer")),
    frozenset(),
    frozenset(),
)
SHOWN_NAMES: Final = 20

# The columns of a file: their names, or without a header their number.
Seen = Sequence[str] | int


@dataclass(frozen=True)
class Columns:
    """Where a row holds each role; a role without a column is absent.

    Args:
        places: positions from 0 in rows of cells, keys in objects; several for labels that have a
            column each.
        names: the names of the same columns; their numbers in a file without a header.
    """

    places: Mapping[str, Sequence[Any]]
    names: Mapping[str, Sequence[str]]

    def last(self) -> int:
        """The position of the rightmost column of rows of cells."""
        positions: list[int] = [place for each in self.places.values() for place in each]
        return max(positions)


def has_header(first_row: Sequence[str], report: ReadReport) -> bool:
    """Whether the first row of a delimited file names its columns.

    Raises DataError where numbers alone are given, or were in training, and the first row looks
    like names.
    """
    options = report.options
    if options.header is not None:
        return options.header
    given = [value for value in (options.text, options.text_pair) if value is not None]
    if report.need_label and options.label is not None:
        given += label_parts(options.label)
    if not given:
        given = list(report.recorded.values())
    if not given or not all(map(is_number, given)):
        return True
    names = KNOWN_NAMES[0].texts | KNOWN_NAMES[0].labels
    known = [cell for cell in first_row if _plain(cell) in names]
    if known:
        raise DataError(
            f"{report.path}:1: the columns are given by number and the first row holds "
            f"{known[0].strip()!r}: say whether it names the columns, with {param('header')} or "
            f"{param('header', False)}"
        )
    return False


def find_columns(seen: Seen, report: ReadReport, *, first_object: int | None = None) -> Columns:
    """Find the columns asked for, and guess those not given where only one guess is possible.

    Args:
        report: gets the columns, and which of them were guessed.
        first_object: for objects, the row of the one whose keys ``seen`` are.  A key that is given
            may be absent from this one.

    Raises DataError with the columns seen where one is missing or cannot be guessed, and UsageError
    where one is named twice.
    """
    path, options, need_label = report.path, report.options, report.need_label
    names: Sequence[str] = () if isinstance(seen, int) else seen
    COLUMNS.check(seen if isinstance(seen, int) else len(seen), path)
    places: dict[str, list[Any]] = {}
    for role in ROLES:
        wanted = getattr(options, role)
        if wanted is None:
            continue
        # A name in the header wins over a list of names, as it does over a number.
        is_list = role == "label" and wanted not in names
        parts = label_parts(wanted) if is_list else [wanted]
        found: list[Any] = (
            parts if first_object is not None else [_position(part, seen) for part in parts]
        )
        if None not in found:
            places[role] = found
        elif role != "label" or need_label:
            raise DataError(_not_found(role, parts[found.index(None)], seen, report))
    recorded = _recorded(places, seen, report)
    places |= {
        role: [names[at] for at in each] if first_object is not None else list(each)
        for role, each in recorded.items()
    }
    groups = (_TOGETHER, *KNOWN_NAMES) if report.reads_together else KNOWN_NAMES
    guesses = _guesses(places, names, groups)
    for role, at in guesses.items():
        places[role] = [names[at] if first_object is not None else at]
    for role in ("text", "label") if need_label else ("text",):
        if role not in places:
            raise DataError(_cannot_tell(role, seen, report, first_object))
    chosen = [place for each in places.values() for place in each]
    if len(set(chosen)) < len(chosen):
        flags = " and ".join(param(role) for role in ROLES if role in places)
        noun = "columns" if first_object is None else "keys"
        raise UsageError(f"{path}: {flags} must name different {noun}")
    named: dict[str, list[str]] = {
        role: [names[at] if names and isinstance(at, int) else str(at) for at in places[role]]
        for role in ROLES
        if role in places
    }
    report.columns |= {role: ",".join(each) for role, each in named.items()}
    report.as_trained += [role for role in ROLES if role in recorded]
    report.guessed += [role for role in ROLES if role in guesses]
    if options.label is not None and "label" not in places:
        report.notes.append(f"no column {param('label', options.label)}; read without labels")
    return Columns(places, named)


def _recorded(
    places: Mapping[str, Sequence[Any]], seen: Seen, report: ReadReport
) -> dict[str, list[int]]:
    """Positions of the columns that training read, of roles that no flag gives a place."""
    found: dict[str, list[int]] = {}
    names: Sequence[str] = [] if isinstance(seen, int) else seen
    for role, wanted in report.recorded.items():
        if role in places:
            continue
        # The number of a column means little where names are seen.
        parts = [str(part) for part in ([wanted] if wanted in names else label_parts(wanted))]
        positions = [_position(part, seen) for part in parts if part in names or not names]
        at = [position for position in positions if position is not None]
        taken = [place for each in places.values() for place in each]
        if len(at) == len(parts) and not any(
            one in taken or (names and names[one] in taken) for one in at
        ):
            found[role] = at
    return found


def _guesses(
    places: Mapping[str, Sequence[Any]], names: Sequence[str], groups: Sequence[_KnownNames]
) -> dict[str, int]:
    """Positions of the roles without a place, where the names allow one reading only."""
    taken = {place for each in places.values() for place in each}
    plain = ["" if at in taken or name in taken else _plain(name) for at, name in enumerate(names)]
    guess: dict[str, int] = {}
    if "text" not in places:
        guess = _guessed_texts(plain, groups, only_one="text_pair" in places)
    if "label" not in places:
        for known in groups:
            labels = [at for at, name in enumerate(plain) if name in known.labels]
            if labels:
                return guess | ({"label": labels[0]} if len(labels) == 1 else {})
    return guess


def _guessed_texts(
    plain: Sequence[str], groups: Sequence[_KnownNames], *, only_one: bool
) -> dict[str, int]:
    """Positions of the text, or of both texts of a pair; none where several could be meant."""
    counts = Counter(plain)
    for known in groups:
        pairs = [pair for pair in known.pairs if all(counts[name] == 1 for name in pair)]
        alone = known.texts.difference(*pairs)
        singles = [at for at, name in enumerate(plain) if name in alone]
        if len(pairs) == 1 and not singles and not only_one:
            return {role: plain.index(name) for role, name in zip(ROLES, pairs[0], strict=False)}
        if not pairs and len(singles) == 1:
            return {"text": singles[0]}
        if pairs or singles:
            break
    return {}


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


def describe_columns(seen: Seen) -> str:
    """The columns seen, for a message."""
    if isinstance(seen, int):
        return f"The first row has {seen} columns, numbered 0 to {seen - 1}"
    if not seen:
        return "No columns are seen"
    shown = [f"{at} {name[:40]!r}" for at, name in enumerate(seen[:SHOWN_NAMES])]
    more = f" and {len(seen) - SHOWN_NAMES} more" if len(seen) > SHOWN_NAMES else ""
    return f"Columns seen: {', '.join(shown)}{more}"


def _plain(name: str) -> str:
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def _position(wanted: str | int, seen: Seen) -> int | None:
    names, width = ((), seen) if isinstance(seen, int) else (seen, len(seen))
    places = [at for at, name in enumerate(names) if name == wanted]
    if places:
        return places[0] if len(places) == 1 else None
    return int(wanted) if is_number(wanted) and int(wanted) < width else None


def _not_found(role: str, wanted: str | int, seen: Seen, report: ReadReport) -> str:
    head, columns = f"{report.path}: {param(role)} {wanted!r}: ", describe_columns(seen)
    if not isinstance(seen, int) and list(seen).count(str(wanted)) > 1:
        return f"{head}several columns have this name; give one by its number. {columns}"
    if is_number(wanted):
        return f"{head}there is no such column; the first column is 0. {columns}"
    if isinstance(seen, int):
        return f"{head}without a header, columns are given by number. {columns}"
    near = suggestion(str(wanted), seen) or "."
    if report.memory is not None:
        return f"{head}there is no such column{near} {columns}"
    return (
        f"{head}there is no such column{near} {columns}. Where the first row is data, give "
        f"{param('header', False)} and columns by number, the first being 0"
    )


def _cannot_tell(role: str, seen: Seen, report: ReadReport, first_object: int | None) -> str:
    if first_object is not None:
        return (
            f"{report.place(first_object)}: cannot tell which key holds the {role}. "
            f"{describe_columns(seen)}. Give {param(role)} KEY"
        )
    names = [] if isinstance(seen, int) else list(seen)
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    shown = ", ".join(repr(name[:40]) for name in repeated[:SHOWN_NAMES])
    others = ", …" if len(repeated) > SHOWN_NAMES else ""
    several = f"; several are named {shown}{others}" if repeated else ""
    is_file = bool(names) and report.memory is None
    data = f"; where the first row is data, {param('header', False)}" if is_file else ""
    return (
        f"{report.path}: cannot tell which column holds the {role}{several}. "
        f"{describe_columns(seen)}. Give {param(role)} COLUMN, a name or a number counted from 0"
        f"{data}"
    )
