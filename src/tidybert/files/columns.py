"""Which columns hold the text, the second text and the label: as named, or guessed from the names.

A data row never counts as a header: a first row names the columns only where the caller says so
or where the names asked for (or, with no flags at all, well-known names) are in it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

from tidybert.errors import DataError, UsageError, param, suggestion
from tidybert.files.reading import ROLES, ReadReport
from tidybert.files.records import CellsRow
from tidybert.files.rows import Problem, Record, count_of, json_type, keys_seen
from tidybert.files.text_lines import Line, chomp
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


# Pairs whose names say more together than alone: a file with both has pairs.
_PAIRS: Final = _KnownNames(
    (("text", "text_pair"), ("query", "document"), ("question", "passage")),
    frozenset(),
    frozenset(),
)
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
        "label labels cats category class target score intent sentiment quality",
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
        "accept annotation classification department emotion gold gold_label is_duplicate "
        "label_name label_text "
        "outcome polarity queue rating relatedness_score similarity similarity_score stars tag "
        "team topic y",
    ),
)

# Names that count first where texts that belong together are read.
_TOGETHER: Final = _KnownNames(
    (
        ("anchor", "positive"),
        ("query", "positive"),
        ("question", "answer"),
        ("query", "answer"),
        ("query", "pos"),
    ),
    frozenset(),
    frozenset(),
)
SHOWN_NAMES: Final = 20
# How a text came to be labelled, in files of labels: "random" or "chosen".
DRAWN: Final = "drawn"
# Prodigy's column of what the annotator did with a row, and why those are no gold.
VERDICT: Final = "answer"
_REFUSED: Final = {"reject": "its annotator rejected it", "ignore": "its annotator ignored it"}
_TITLE_ROWS: Final = 10
# The label of a text in fastText's files, anywhere in its line.
FASTTEXT_LABEL: Final = "__label__"
_FASTTEXT: Final = re.compile(rf"(?<![^ \t]){FASTTEXT_LABEL}([^ \t]+)[ \t]*")
# MySQL and Hive write so where there is nothing.
_NULL_CELL: Final = r"\N"

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
    keep_text: bool = False
    """Whether a text is among the columns that examples keep."""
    verdict: Any = None
    """Where a row says whether it was accepted; None where no column may."""
    drawn: Any = None
    """Where a row says how its text came to be labelled; None where no column does."""

    def last(self) -> int:
        """The position of the rightmost column of rows of cells."""
        positions: list[int] = [place for each in self.places.values() for place in each]
        return max(positions)

    def direct(self) -> tuple[Any, Any] | None:
        """The places of the text and the label of rows that have nothing else, as most have."""
        text, label = self.places["text"], self.places.get("label", ())
        others = self.verdict, self.drawn
        is_all = len(self.places) == 2 and len(label) == 1 and others == (None, None)
        return (text[0], label[0]) if is_all else None


def has_header(first_row: Sequence[str], report: ReadReport) -> bool:
    """Whether the first row of a delimited file names its columns."""
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
    cells = [cell.strip() for cell in first_row]
    if all(not cell or is_number(cell) for cell in cells) and all(
        str(one) in cells for one in given
    ):
        for one in given:
            if isinstance(one, int) and cells.index(str(one)) != one:
                raise DataError(
                    f"{report.path}:1: column {one} and the column named '{one}' are not the same: "
                    f"give the name as a text, '{one}', or {param('header', True)} for the place"
                )
        report.notes.append("the first row is numbers, and names the columns")
        return True
    names = KNOWN_NAMES[0].texts | KNOWN_NAMES[0].labels
    known = [cell for cell in first_row if plain_name(cell) in names]
    if known:
        raise DataError(
            f"{report.path}:1: the columns are given by number and the first row holds "
            f"{known[0].strip()!r}: say whether it names the columns, with {param('header')} or "
            f"{param('header', False)}"
        )
    return False


def find_columns(seen: Seen, report: ReadReport, *, first_object: int | None = None) -> Columns:
    """Find the columns asked for, and guess those not given where only one guess is possible."""
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
    groups = (*([_TOGETHER] if report.reads_together else []), _PAIRS, *KNOWN_NAMES)
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

    def other(name: str) -> Any:
        """The place of a column that is no role; None where no row of labels has it."""
        if not need_label or report.reads_together or name not in names:
            return None
        place = name if first_object is not None else names.index(name)
        return None if place in chosen else place

    keep_text = report.keep_columns == "all"
    return Columns(places, named, keep_text, verdict=other(VERDICT), drawn=other(DRAWN))


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
    plain = [
        "" if at in taken or name in taken else plain_name(name) for at, name in enumerate(names)
    ]
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
    """The columns that a value of --label names where it names several; itself otherwise."""
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
        numbers = f"numbered 0 to {seen - 1}" if seen > 1 else "number 0"
        return f"The first row has {count_of(seen, 'column')}, {numbers}"
    if not seen:
        return "No columns are seen"
    shown = [f"{at} {name[:40]!r}" for at, name in enumerate(seen[:SHOWN_NAMES])]
    more = f" and {len(seen) - SHOWN_NAMES} more" if len(seen) > SHOWN_NAMES else ""
    return f"Columns seen: {', '.join(shown)}{more}"


def plain_name(name: str) -> str:
    """A column's name in the spelling of the known ones."""
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


# The rows of each format as (row number, text, second text, label), their columns chosen.
#
# Each function fills the report on the way.  A role without a column is MISSING, so that it is not
# mistaken for a null in the file.

MISSING: Final = object()

# A row's number, its text, second text and label as the file holds them, and where the report wants
# them the columns other than the text's, by name.
Values = tuple[int, object, object, object, dict[str, object] | None]


@dataclass(frozen=True, slots=True)
class LabelCells:
    """The cells of a row's label columns, by the columns' names."""

    cells: dict[str, object]


def delimited_values(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[Values | Problem]:
    """Rows of csv and tsv; with a header each must be as wide as it.

    Without one a row must reach the last column asked for, and rows of another width than the first
    are noted (some published files carry extra columns on some rows).
    """
    columns: Columns | None = None
    direct: tuple[Any, Any] | None = None
    names: Sequence[str] = ()
    width = ragged = first_ragged = 0
    lone_label: object = None
    for row in _below_title(rows, report):
        if isinstance(row, Problem):
            if columns is None and report.options.header is not False:
                raise DataError(f"{report.path}:{row.row}: {row.message}")
            yield row
            continue
        number, cells = row
        is_first = columns is None
        if columns is None:
            width = len(cells)
            columns = _delimited_columns(cells, report)
            names = [cell.strip() if report.header else str(at) for at, cell in enumerate(cells)]
            _check_names(names, names if report.keep_columns else (), report)
            direct = None if report.keep_columns else columns.direct()
            if report.header:
                continue
        elif len(cells) != width:
            if report.header or len(cells) <= columns.last():
                yield Problem(number, _ragged(cells, width, columns, report))
                continue
            ragged += 1
            first_ragged = first_ragged or number
        values: Values | Problem
        if direct is not None and (label := cells[direct[1]]) != _NULL_CELL != cells[direct[0]]:
            values = number, cells[direct[0]], MISSING, label, None
        else:
            values = _values(number, cells, columns, report, names if report.keep_columns else None)
            if isinstance(values, Problem):
                yield values
                continue
        if is_first and report.options.header is None:
            lone_label = values[3]
        elif values[3] == lone_label:
            lone_label = None
        yield values
    if ragged:
        report.notes.append(
            f"{count_of(ragged, 'row')} of another width than the first (line {first_ragged} is "
            "one); only the columns asked for are read"
        )
    if isinstance(lone_label, str) and report.num_examples > 1:
        report.notes.append(
            f"the first row's label {lone_label[:40]!r} is in no other row; if that row names "
            f"the columns, give {param('header')}"
        )


def record_values(
    rows: Iterator[Record | Problem], report: ReadReport
) -> Iterator[Values | Problem]:
    """Rows that are objects: keys given are looked up in each, others guessed from the first."""
    for role in ROLES:
        if isinstance(getattr(report.options, role), int):
            raise UsageError(
                f"{report.path}: {param(role)}: objects have no column numbers; give a key"
            )
    columns: Columns | None = None
    for row in rows:
        if isinstance(row, Problem):
            yield row
            continue
        number, record = row
        if columns is None:
            columns = find_columns(list(record), report, first_object=number)
        absent = [
            key
            for role, keys in columns.places.items()
            if role != "label" or report.need_label
            for key in keys
            if key not in record
        ]
        if absent:
            near = suggestion(absent[0], record)
            yield Problem(number, f"no key {absent[0]!r} among {keys_seen(record)}{near}")
        else:
            kept = list(record) if report.keep_columns else None
            yield _values(number, record, columns, report, kept)


def column_values(
    names: Sequence[str],
    rows: Callable[[Sequence[str]], Iterator[Record | Problem]],
    report: ReadReport,
) -> Iterator[Values | Problem]:
    """The values of ``rows``, which gives those of some of the columns ``names``."""
    found = find_columns(names, report)
    columns = replace(found, places=found.names)
    wanted: Sequence[str] = [key for each in columns.names.values() for key in each]
    if columns.verdict is not None:
        columns, wanted = replace(columns, verdict=VERDICT), [*wanted, VERDICT]
    if columns.drawn is not None:
        columns, wanted = replace(columns, drawn=DRAWN), [*wanted, DRAWN]
    if report.keep_columns:
        wanted = names
    _check_names(names, wanted, report)
    kept = names if report.keep_columns else None
    for row in rows(wanted):
        yield row if isinstance(row, Problem) else _values(*row, columns, report, kept)


def _below_title(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[CellsRow | Problem]:
    """The rows from the names of the columns on, where rows of one cell stand above: a title."""
    options = report.options
    if report.is_pipe or options.skip_rows or options.header is not None:
        return rows
    asked = [str(one) for role in ROLES if (one := getattr(options, role)) is not None]
    asked = asked or list(report.recorded.values())
    if any(map(is_number, asked)):
        return rows

    def names_columns(cells: Sequence[str]) -> bool:
        parts = {part.strip() for one in asked for part in one.split(",")}
        plain = {cell.strip() for cell in cells} if parts else set(map(plain_name, cells))
        return parts <= plain if parts else any(plain & (k.texts | k.labels) for k in KNOWN_NAMES)

    head = list(islice(rows, _TITLE_ROWS))
    for at, row in enumerate(head):
        if isinstance(row, Problem) or (not at and names_columns(row[1])):
            break
        if sum(bool(cell.strip()) for cell in row[1]) > 1:
            if at and names_columns(row[1]):
                report.notes.append(f"{count_of(at, 'row')} above the columns' names passed over")
                head = head[at:]
            break
    return chain(head, rows)


def line_values(lines: Iterator[Line], report: ReadReport) -> Iterator[Values | Problem]:
    """Formats text (each line is a text, a blank one an empty text) and label-text.

    Where the first line of label-text begins as fastText's do, all words that begin so are labels.
    """
    if report.format == "text" and report.need_label:
        raise UsageError(
            f"{report.path}: plain text has no labels; give {param('format', 'label-text')}, tsv "
            "or csv"
        )
    is_fasttext: bool | None = None
    for number, raw, problem in lines:
        line = chomp(raw)
        if problem:
            yield Problem(number, problem)
            continue
        if is_fasttext is None:
            is_fasttext = report.format != "text" and line.startswith(FASTTEXT_LABEL)
        if report.format == "text":
            yield number, line, MISSING, MISSING, None
        elif is_fasttext and line.strip():
            text = _FASTTEXT.sub("", line).strip(" \t")
            yield number, text, MISSING, _FASTTEXT.findall(line), None
        elif end := next((at for at, char in enumerate(line) if char in " \t"), 0):
            yield number, line[end:].lstrip(" \t"), MISSING, line[:end], None
        else:
            yield Problem(number, "a label, white space and a text are expected")


def _refusal(number: int, row: Any, columns: Columns, report: ReadReport) -> Problem | None:
    """Why a row that says so is no gold.  The first that says something shows what it says."""
    said = row[columns.verdict] if isinstance(row, list) else row.get(columns.verdict)
    if report.has_verdicts is None and said not in (None, ""):
        report.has_verdicts = said in ("accept", *_REFUSED)
    if not report.has_verdicts or said == "accept":
        return None
    if said in (None, ""):
        return Problem(number, "its annotator gave no answer", is_fault=False)
    if isinstance(said, str) and said in _REFUSED:
        return Problem(number, _REFUSED[said], is_fault=False)
    shown = repr(said[:40]) if isinstance(said, str) else json_type(said)
    return Problem(
        number,
        f"{VERDICT!r} is {shown} where accept, reject or ignore is expected; rename the column if "
        "it has no verdicts on rows",
    )


def _values(
    number: int,
    row: Any,
    columns: Columns,
    report: ReadReport,
    kept: Sequence[str] | None = None,
) -> Values | Problem:
    """The values of a row of cells or of an object, which may lack the keys of labels.

    ``kept`` are the names of all columns, where those that are not the text's are kept.
    """
    if columns.verdict is not None and (problem := _refusal(number, row, columns, report)):
        return problem
    places = columns.places
    text_pair = row[places["text_pair"][0]] if "text_pair" in places else MISSING
    label: object = MISSING
    of_label = places.get("label", ())
    if isinstance(row, list) or all(place in row for place in of_label):
        if len(of_label) == 1:
            label = row[of_label[0]]
        elif of_label:
            cells = zip(columns.names["label"], of_label, strict=True)
            label = LabelCells({name: row[place] for name, place in cells})
    text, others = places["text"][0], None
    if kept is not None:
        keys = range(len(kept)) if isinstance(row, list) else kept
        cells = zip(kept, keys, strict=True)
        others = {
            name: row[key]
            for name, key in cells
            if _has(row, key) and (columns.keep_text or key != text)
        }
    elif columns.drawn is not None and _has(row, columns.drawn):
        others = {DRAWN: row[columns.drawn]}
    content = row[text]
    if isinstance(row, list) and _NULL_CELL in (content, text_pair, label):
        content, text_pair, label = (
            None if each == _NULL_CELL else each for each in (content, text_pair, label)
        )
    return number, content, text_pair, label, others


def _has(row: Any, key: Any) -> bool:
    """Rows of cells without a header may be shorter than the first; objects may lack a key."""
    return key < len(row) if isinstance(row, list) else key in row


def _check_names(names: Sequence[str], wanted: Sequence[str], report: ReadReport) -> None:
    """Raise DataError where several columns have the name of one that is wanted."""
    for key in wanted:
        if names.count(key) > 1:
            raise DataError(f"{report.path}: several columns are named {key!r}; rename them")


def _delimited_columns(first_row: list[str], report: ReadReport) -> Columns:
    report.header = has_header(first_row, report)
    seen = [cell.strip() for cell in first_row] if report.header else len(first_row)
    try:
        columns = find_columns(seen, report)
    except DataError as error:
        separator = report.options.separator(report.format)
        other = next((c for c in "\t;|," if c != separator and c in first_row[0]), None)
        if len(first_row) > 1 or other is None:
            raise
        name, shown = ("tab", "tab") if other == "\t" else (other, repr(other))
        raise DataError(
            f"{error.message}. Is {shown} the delimiter? Then give {param('delimiter', name)}"
        ) from None
    if not report.header and report.options.header is None:
        report.notes.append("no header: the first row is read as data")
    return columns


def _ragged(cells: list[str], width: int, columns: Columns, report: ReadReport) -> str:
    options = report.options
    expected = (
        f"the header has {width}" if report.header else f"column {columns.last()} is asked for"
    )
    quoted = not options.quotes(report.format) and any('"' in cell for cell in cells)
    hint = f"; where quotes enclose cells, give {param('quoting')}" if quoted else ""
    if report.header and len(cells) > width and not (report.num_examples or report.num_problems):
        hint += (
            f"; if the header lacks a name, give {param('skip_rows', options.skip_rows + 1)} "
            f"{param('header', False)} and the columns by number, the first being 0"
        )
    return f"{count_of(len(cells), 'column')} where {expected}{hint}"
