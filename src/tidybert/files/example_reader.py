"""ExampleReader: from a path and options to a stream of one kind of example."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import Problem, ReadReport, good_rows

E = TypeVar("E")


@dataclass(frozen=True)
class ExampleReader(Generic[E]):
    """Reads files of one kind of example.

    Args:
        rows: yields the file's examples, and a Problem for each bad row.  It gets the options, a
            ReadReport that has the path, ``need_label``, and the details of a call.
    """

    rows: Callable[..., Iterator[E | Problem]]

    def __call__(
        self,
        path: str | Path,
        options: ReadOptions | None = None,
        *,
        need_label: bool,
        skip_bad_rows: bool = False,
        report: ReadReport | None = None,
        **details: Any,
    ) -> Iterator[E]:
        """Read a file, or standard input for "-", as a stream of examples in the file's order.

        Args:
            need_label: whether a row without a label is a bad row.
            skip_bad_rows: leave bad rows out; see ``good_rows``.
            report: filled on the way.

        Raises DataError for a file that is missing, empty, damaged or has bad rows, with file and
        line, and UsageError for options that do not fit.
        """
        report = ReadReport() if report is None else report
        report.path = str(path)
        rows = self.rows(options or ReadOptions(), report, need_label=need_label, **details)
        yield from good_rows(rows, report, skip_bad_rows=skip_bad_rows)
