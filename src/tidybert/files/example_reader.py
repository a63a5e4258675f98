"""ExampleReader: from a path and options to a stream of one kind of example."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from tidybert.errors import DataError, LimitError, UsageError, param
from tidybert.files.formats import TABLE_FLAGS, FileFormats
from tidybert.files.reading import Reading, ReadOptions, ReadReport
from tidybert.files.rows import MEMORY, Memory, Problem, TupleNames, count_of

E = TypeVar("E")


@dataclass(frozen=True)
class ExampleReader(Generic[E]):
    """Reads files of one kind of example.

    Args:
        rows: yields the file's examples, and a Problem for each bad row.  It gets the options, a
            ReadReport that has the path, ``need_label``, and the details.
        formats: the formats that it reads.
        tuple_names: names the values of a row in memory that is a tuple; None reads files alone.
        texts_alone: a row in memory may be a text, as (text,).
        details: arguments of ``rows`` that every call passes on, beside its own; ``keep_columns``
            makes each example keep the columns of its row, of a text those that are not the text
            unless it is "all".
    """

    rows: Callable[..., Iterator[E | Problem]]
    formats: FileFormats
    tuple_names: TupleNames | None = None
    texts_alone: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    def with_details(self, **details: Any) -> Self:
        """The same reader, which passes these details on."""
        return replace(self, details={**self.details, **details})

    def __call__(
        self,
        path: str | Path | Memory,
        options: ReadOptions | None = None,
        *,
        need_label: bool,
        known: Sequence[str] = (),
        skip_bad_rows: bool = False,
        report: ReadReport | None = None,
        like: Reading | None = None,
        **details: Any,
    ) -> Iterator[E]:
        """Read a file, standard input for "-", or rows in memory, as a stream of examples in order.

        Args:
            need_label: whether a row without a label is a bad row.
            known: the labels that a model has, whose spelling counts.
            skip_bad_rows: leave bad rows out.  Otherwise nothing is yielded after the first one;
                the rest is read to count them all, except from a pipe, which may never end.
            report: filled on the way.
            like: how the file that trained a model was read: the defaults of what ``options``
                leaves open.

        Raises DataError for a file that is missing, empty, damaged or has bad rows, with file and
        line, and UsageError for options that do not fit.
        """
        report = ReadReport() if report is None else report
        options = options or ReadOptions()
        if isinstance(path, Memory):
            report.path, report.memory, report.format = path.name, path, MEMORY
            for each in ("format", "encoding", *TABLE_FLAGS):
                if getattr(options, each) != getattr(ReadOptions, each):
                    raise UsageError(
                        f"{path.name}: {param(each)} is for files, and these data are in memory"
                    )
        else:
            report.path = str(path)
            self.formats.check(report.path, options.format)
        if like is not None:
            file_format = options.format
            if report.memory is None:
                file_format = self.formats.like(report.path, options, like.format)
            options = replace(like.defaults(options, file_format), format=file_format)
            report.recorded = like.columns
        report.options, report.need_label, report.known = options, need_label, known
        details = {**self.details, **details}
        report.keep_columns = details.pop("keep_columns", False)
        try:
            for row in self.rows(options, report, need_label=need_label, **details):
                if not isinstance(row, Problem):
                    if skip_bad_rows or not report.num_faults:
                        report.num_examples += 1
                        yield row
                    continue
                report.leave_out(row)
                if report.is_pipe and row.is_fault and not skip_bad_rows:
                    break
        except MemoryError:
            raise LimitError(
                f"{report.path}: too little memory to read on after "
                f"{count_of(report.num_examples, 'example')}; split the file, or free memory"
            ) from None
        what = "file" if report.memory is None else "data"
        if report.num_faults and not (skip_bad_rows and report.num_examples):
            head = f"{report.path}: {count_of(report.num_faults, 'row')} cannot be read:"
            fix = f"Fix the {what}, or leave bad rows out with {param('skip_bad_rows', True)}"
            advice = "No row is left" if skip_bad_rows else fix
            raise DataError("\n".join([head, *report.problem_lines(faults=True), advice]))
        if report.num_problems and not report.num_examples:
            raise DataError("\n".join([*report.skipped_lines(), "No row is left"]))
        if not report.num_examples:
            raise DataError(f"{report.path}: it holds no example; is it the right {what}?")
