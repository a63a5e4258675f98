"""Reading: how a file was read, as tidybert.json keeps it, and the defaults that it gives others.

A model's next files are mostly laid out as the one that trained it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Self

from tidybert.errors import ConfigError, TidyBertError, suggestion
from tidybert.files.read_options import ROLES, ReadOptions
from tidybert.files.read_report import ReadReport

# What a file has in common with another only where both have one format.
_OF_FORMAT: Final = ("delimiter", "quoting", "encoding", "skip_rows")


@dataclass(frozen=True)
class Reading:
    """How a file was read.

    Args:
        format: csv, tsv, jsonl, ...
        columns: the column that each role (text, text_pair, label) was read from: its name, or its
            number where no header names it.
        header: whether the first row named the columns; None for formats without a header.
        delimiter, quoting, encoding, label_separator, skip_rows: as given, see ReadOptions.

    Raises ConfigError for a value that no file could be read with.
    """

    format: str
    columns: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None
    delimiter: str | None = None
    quoting: bool | None = None
    encoding: str | None = None
    label_separator: str | None = None
    skip_rows: int = 0

    def __post_init__(self) -> None:
        for name in ("format", "delimiter", "encoding", "label_separator"):
            if name == "format" or getattr(self, name) is not None:
                _check(name, getattr(self, name), str, "a text")
        for name in ("header", "quoting"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), bool, "true or false")
        _check("skip_rows", self.skip_rows, int, "a number of lines")
        for role, name in _check("columns", self.columns, dict, "an object").items():
            if role not in ROLES:
                raise ConfigError(f"reading: unknown column {role!r}{suggestion(role, ROLES)}")
            _check(f"columns.{role}", name, str, "the name of a column")
        try:
            self.defaults(ReadOptions(), self.format)
        except TidyBertError as error:
            raise ConfigError(f"reading: {error.message}") from None

    @classmethod
    def of(cls, options: ReadOptions, report: ReadReport) -> Self:
        """How the file of a complete report was read."""
        given = {name: getattr(options, name) for name in (*_OF_FORMAT, "label_separator")}
        return cls(report.format, dict(report.columns), report.header, **given)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Of what ``to_dict`` gave; raises ConfigError for other values."""
        known = [each.name for each in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(f"reading: unknown key {key!r}{suggestion(key, known)}")
        if "format" not in values:
            raise ConfigError("reading: missing key 'format'")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        return asdict(self)

    def defaults(self, given: ReadOptions, file_format: str | None) -> ReadOptions:
        """``given``, and what it leaves open as here.

        Delimiter, quoting, encoding and rows to skip pass on to a file of the same format alone.
        The columns are no options: readers look for them by ``ReadReport.recorded``.

        Args:
            file_format: of the file to read; None where its content decides.
        """
        names = _OF_FORMAT if file_format == self.format else ()
        open_ones = {
            name: getattr(self, name)
            for name in (*names, "label_separator")
            if getattr(given, name) == getattr(ReadOptions, name)
        }
        return replace(given, **open_ones)


def _check(name: str, value: Any, kind: type, expected: str) -> Any:
    # type() and not isinstance: to Python, true is an int.
    if type(value) is not kind:
        raise ConfigError(f"reading: {name} is {value!r:.80}; {expected} is needed")
    return value
