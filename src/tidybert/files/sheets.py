"""Spreadsheets (.xlsx, .xls, .ods) as rows of cells, one sheet of each.

A formula counts as the value that was saved with it, and one that ended in an error as an empty
cell; merged cells have their value in the first; a date is text, as ISO 8601 has it.  Rows without
a cell are passed over, and hidden sheets are only read where they are named.
"""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tidybert.errors import DataError, param, require_package, suggestion
from tidybert.files import sheet_process
from tidybert.files.reading import ReadReport
from tidybert.files.records import CellsRow
from tidybert.files.rows import count_of
from tidybert.files.text_lines import check_unpacked
from tidybert.storage.limits import SHEET_BYTES, SHEET_MEMORY
from tidybert.storage.opening import open_regular

WORKBOOKS: Final = (".xlsx", ".xls", ".ods")
# A row may be in the file once and stand for a million.
_ROW: Final = 512


def sheet_rows(path: str, report: ReadReport) -> Iterator[CellsRow]:
    """The rows of a sheet that have a cell, after those to skip."""
    require_package("python_calamine")
    size = _check_size(path)
    command = [sys.executable, "-P", str(sheet_process.__file__)]
    command += [str(Path(path).absolute()), report.options.sheet or "", str(SHEET_MEMORY.value)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, b"")
            _note_sheet(path, json.loads(next(lines, b"{}")), report)
            count = number = total = 0
            for line in lines:
                total += len(line) + _ROW
                check_unpacked(total, size, path)
                count, (number, cells) = count + 1, json.loads(line)
                if number > report.options.skip_rows:
                    yield number, cells
            if process.wait():
                # The library aborts where it has too little memory.
                _note_sheet(path, {}, report)
            if number > count:
                report.notes.append(f"{count_of(number - count, 'empty row')} passed over")
        finally:
            process.kill()


def _check_size(path: str) -> int:
    """The bytes of a workbook; LimitError for one that unpacks to more than the limits."""
    with open_regular(path) as stream:
        size = stream.seek(0, 2)
        SHEET_BYTES.check(size, path)
        stream.seek(0)
        if stream.peek(2)[:2] != b"PK":
            return size
        try:
            with zipfile.ZipFile(stream) as packed:
                total = sum(each.file_size for each in packed.infolist())
                check_unpacked(total, size, path)
                SHEET_BYTES.check(total, path)
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise DataError(f"{path}: not a spreadsheet that can be read: {error}") from error
    return size


def _note_sheet(path: str, found: dict[str, Any], report: ReadReport) -> None:
    if "error" in found:
        raise DataError(f"{path}: not a spreadsheet that can be read: {found['error']:.200}")
    if "names" in found:
        names, wanted = found["names"], report.options.sheet or ""
        shown = ", ".join(repr(name[:40]) for name in names[:20])
        raise DataError(
            f"{path}: {param('sheet', wanted)}: there is no such sheet{suggestion(wanted, names)} "
            f"Sheets: {shown or 'none'}"
        )
    if "name" not in found:
        raise DataError(
            f"{path}: the sheet cannot be read within {SHEET_MEMORY.value:,} {SHEET_MEMORY.unit}: "
            "a damaged file, or cells far apart; save the sheet as CSV"
        )
    report.shown["sheet"] = f"sheet {found['name']!r}"
    if found["others"] and report.options.sheet is None:
        hidden = f" ({found['hidden']} hidden)" if found["hidden"] else ""
        report.notes.append(
            f"{count_of(found['others'], 'other sheet')}{hidden} not read; {param('sheet')} names "
            "one"
        )
