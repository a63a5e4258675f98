"""Rows that a program has in memory: frames, columns, objects or tuples, as one source of records.

polars, pyarrow, duckdb and others give their columns through Arrow's C stream, pandas gives lists
of its own (its object columns hold what Arrow cannot), and a Dataset of Hugging Face its table.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tidybert.errors import DataError, in_python

# How messages name a value, its type, the keys of an object and a count.

_LONE_SURROGATE: Final = r"a lone surrogate (half of a \ud83d\ude00 pair)"


def text_problem(name: str, value: object) -> str | None:
    """Why the value of that name is not a usable text; None where it is."""
    if not isinstance(value, str):
        return f"{name!r} is {json_type(value)} where a text is expected"
    return f"{name!r} holds {_LONE_SURROGATE}" if has_lone_surrogate(value) else None


def finite_number(text: str) -> float | None:
    """The finite number that a text spells, or None; 1_000 is not one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def has_lone_surrogate(text: str) -> bool:
    """JSON can spell one, and UTF-8 cannot."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def json_type(value: object) -> str:
    """The type of a value in the words of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"a text with {_LONE_SURROGATE}" if has_lone_surrogate(value) else "a text"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return f"a value of type {type(value).__name__}"


def count_of(number: int, noun: str) -> str:
    """A count with its noun: 1 row, 2,000 rows."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def keys_seen(record: Iterable[str]) -> str:
    """The first keys of an object."""
    return ", ".join(repr(name[:40]) for name in islice(record, 20)) or "none at all"


# What a reader makes of each row of a source: a record, or the problem that it has.

SHOWN_PROBLEMS: Final = 5

# An object's number (its line, or its place in a Parquet file, from 1) and its values by name.
Record = tuple[int, dict[str, Any]]


# What differs between messages of one kind: numbers and quoted values, but not the name that a
# message begins with or misses.
_REASON_CHARACTERS: Final = 100
_QUOTED: Final = r"""(?:'(?:[^'\\]|\\.)*(?:'|$)|"[^"]*'[^"]*(?:"|$))"""
_NUMBER: Final = r"(?<![\w-])-?(?:0x..|\d+(?:[.,]\d+)*)"
_NAME: Final = rf"(?:^|: |\bno (?:key|list) ){_QUOTED}"
_VARIES: Final = rf"(?P<name>{_NAME})|(?P<value>(?<!\w){_QUOTED})|{_NUMBER}"
_PLACE: Final = re.compile(r"…|\bN\b|[/\\]|\.\w+$|^\w+$")
_ASIDE: Final = re.compile(
    r" \([^()]*\)|(?:; | among …|, (?:and (?:a|none)|which|as)\b).*", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that cannot be read: the 1-based line where it starts, and why.

    A row in memory has its place, from 0, for its line.  ``is_fault`` is False where the file says
    itself that the row is no gold, such as a rejected answer: it is left out without a flag.
    """

    row: int
    message: str
    is_fault: bool = True

    def reason(self) -> str:
        """The kind of its fault: the message without places, values (…, N), asides and advice."""

        def without(found: re.Match[str]) -> str:
            named = found["name"] and re.sub(_NUMBER, "N", found["name"])
            return named or ("…" if found["value"] else "N")

        plain = re.sub(_VARIES, without, in_python(self.message))
        parts = re.split(r"(?<!['\"]): ", _ASIDE.sub("", plain))
        chosen = next((part for part in parts if not _PLACE.search(part)), parts[-1])
        return chosen[:_REASON_CHARACTERS]


def skipped_rows(reasons: Mapping[str, int]) -> str:
    """How many rows are left out, and how many for each reason, the most frequent first."""
    by = Counter(reasons).most_common()
    shown = ", ".join(f"{count:,} × {reason}" for reason, count in by)
    return f"{count_of(sum(reasons.values()), 'row')} skipped: {shown}"


def problem_lines(problems: Sequence[tuple[str, Problem]], total: int) -> list[str]:
    """The first problems, each with its file and line, and how many more of ``total`` there are."""
    return shown_problems([(f"{path}:{each.row}", each.message) for path, each in problems], total)


def shown_problems(problems: Sequence[tuple[str, str]], total: int) -> list[str]:
    """The first problems, each a place and a message, and how many more of ``total`` there are."""
    shown = problems[:SHOWN_PROBLEMS]
    lines = [f"  {place}: {message}" for place, message in shown]
    more = total - len(shown)
    return [*lines, f"  and {more:,} more"] if more else lines


TupleNames = Callable[[Sequence[Any]], Sequence[str]]
"""From the values of a row without names, such as (text, label), to their names."""

_MISSING: Final = ("NAType", "NaTType")
MEMORY: Final = "rows in memory"
"""What such rows have for a format."""
EXPECTED: Final = (
    "expected a file's path, a DataFrame, a Dataset, a list of dicts, a list of tuples such as "
    "(text, label), or two lists, (texts, labels)"
)


@dataclass(frozen=True)
class Memory:
    """Rows in memory.

    Args:
        name: of the parameter that holds them, for messages.
        names: of the columns; None for objects, each of which has its own keys.
        values: gives the values of the column at a place.
        objects: the rows, where there are no columns.
    """

    name: str
    names: tuple[str, ...] | None = None
    values: Callable[[int], Sequence[Any]] = lambda _place: ()
    objects: Sequence[Any] = ()

    def records(self, wanted: Sequence[str] | None = None) -> Iterator[Record | Problem]:
        """Each row's place, from 0, and its values by name: of all columns, or of those wanted."""
        if self.names is None:
            for place, one in enumerate(self.objects):
                if isinstance(one, Mapping):
                    yield place, {str(key): plain(value) for key, value in one.items()}
                else:
                    yield Problem(place, f"a dict is expected, as before it, not {_kind(one)}")
            return
        chosen = [name for name in self.names if wanted is None or name in wanted]
        columns = [self.values(self.names.index(name)) for name in chosen]
        for place, row in enumerate(zip(*columns, strict=True)):
            yield place, dict(zip(chosen, map(plain, row), strict=True))


def in_memory(data: Any, name: str, tuple_names: TupleNames, texts_alone: bool = False) -> Memory:
    """The rows of ``data``, which with ``texts_alone`` may be texts."""
    if isinstance(data, Mapping):
        return _named_columns(data, name)
    if all(hasattr(data, each) for each in ("with_format", "features", "__len__")):
        return _dataset_columns(data, name)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        names = tuple(map(str, data.columns))
        return Memory(name, names, lambda at: data.iloc[:, at].tolist())
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        raise DataError(f"{name} is a {type(data).__name__}: give {name}.collect()")
    if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "to_list"):
        return _arrow_columns(data, name)
    if isinstance(data, tuple) and len(data) > 1 and all(map(_is_column, data)):
        return _columns([as_list(each, name) for each in data], name, tuple_names)
    rows = as_list(data, name)
    if not rows:
        raise DataError(f"{name} holds no example: {EXPECTED}")
    if isinstance(rows[0], Mapping):
        return Memory(name, objects=rows)
    if texts_alone and isinstance(rows[0], str):
        rows = [(each,) if isinstance(each, str) else each for each in rows]
    if not _is_row(rows[0]):
        raise DataError(f"{name}[0] is {_kind(rows[0])}: {EXPECTED}")
    width = len(rows[0])
    for place, row in enumerate(rows):
        if not _is_row(row) or len(row) != width:
            found = count_of(len(row), "value") if _is_row(row) else _kind(row)
            raise DataError(f"{name}[{place}] is {found}, but {name}[0] has {width}: {EXPECTED}")
    return _columns([list(column) for column in zip(*rows, strict=True)], name, tuple_names)


def as_list(values: Any, name: str) -> list[Any]:
    """The members of a list, a generator, or a column of any library."""
    if isinstance(values, str | bytes | Path):
        raise DataError(f"{name} is one text, {str(values)[:40]!r}: expected several, as [...]")
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            found = getattr(values, method)()
            return found if isinstance(found, list) else [found]
    try:
        return list(values)
    except TypeError:
        raise DataError(f"{name} is {_kind(values)}: {EXPECTED}") from None


def plain(value: Any) -> Any:
    """A value as JSON's reader would give it: NumPy's scalars and arrays, tuples, sets unpacked.

    What marks a missing value (NaN, pandas.NA, NaT) is None.
    """
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, float):
        return None if value != value else value
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return [plain(each) for each in sorted(value, key=str)]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return value


def _named_columns(data: Mapping[Any, Any], name: str) -> Memory:
    if any(hasattr(each, "features") or hasattr(each, "columns") for each in data.values()):
        splits = ", ".join(repr(key) for key in islice(data, 5))
        raise DataError(f"{name} holds several data sets: name one of {splits}, as in {name}[...]")
    names = tuple(map(str, data))
    return _checked([as_list(each, name) for each in data.values()], name, names)


def _dataset_columns(data: Any, name: str) -> Memory:
    """The columns of a Dataset, with the names of classes that it has as numbers."""
    # The Dataset's own table lacks what select and shuffle have done.
    found = _arrow_columns(data.with_format("arrow")[:], name)
    assert found.names is not None
    features = [data.features[each] for each in found.names]

    def values(at: int) -> Sequence[Any]:
        feature = getattr(features[at], "feature", features[at])
        classes = getattr(feature, "names", None)
        column = found.values(at)
        return column if classes is None else [named(each, classes) for each in column]

    return Memory(name, found.names, values)


def named(value: Any, classes: Sequence[str]) -> Any:
    """The name of a class, or of each in a list; None for -1, which marks a missing one."""
    if isinstance(value, list):
        return [named(each, classes) for each in value]
    if type(value) is not int or value >= len(classes):
        return value
    return classes[value] if value >= 0 else None


def feature_names(features: object) -> dict[str, Sequence[str]]:
    """The names of the classes that ``datasets`` records in features, by column."""
    found: dict[str, Sequence[str]] = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else None
        names = inner.get("names") if isinstance(inner, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            found[str(column)] = names
    return found


def schema_features(schema: Mapping[bytes, bytes] | None) -> object:
    """The features that ``datasets`` writes into the metadata of a schema; None without them."""
    try:
        return json.loads((schema or {})[b"huggingface"])["info"]["features"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _arrow_columns(data: Any, name: str) -> Memory:
    import pyarrow as pa

    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"{name}: Arrow cannot read it: {error}; {EXPECTED}") from error
    classes = feature_names(schema_features(table.schema.metadata))

    def values(at: int) -> Sequence[Any]:
        column: list[Any] = table.column(at).to_pylist()
        known = classes.get(table.column_names[at])
        return column if known is None else [named(each, known) for each in column]

    return Memory(name, tuple(table.column_names), values)


def _columns(columns: Sequence[list[Any]], name: str, tuple_names: TupleNames) -> Memory:
    if not columns[0]:
        raise DataError(f"{name} holds no example: {EXPECTED}")
    try:
        names = tuple(tuple_names([column[0] for column in columns]))
    except DataError as error:
        raise DataError(f"{name}: {error.message}") from None
    return _checked(columns, name, names)


def _checked(columns: Sequence[list[Any]], name: str, names: tuple[str, ...]) -> Memory:
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        shown = ", ".join(f"{each} {size:,}" for each, size in zip(names, lengths, strict=True))
        raise DataError(f"{name}: the columns have different lengths: {shown}")
    return Memory(name, names, lambda at: columns[at])


def _is_column(values: Any) -> bool:
    """Whether a member of a tuple is a column: a tuple of tuples is rows."""
    return not isinstance(values, str | bytes | tuple | Mapping) and hasattr(values, "__len__")


def _is_row(values: Any) -> bool:
    return not isinstance(values, str | bytes) and hasattr(values, "__len__")


def _kind(value: Any) -> str:
    return f"{value!r:.40}, of type {type(value).__name__}"
