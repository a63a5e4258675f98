"""What reads a spreadsheet, as a program of its own: python sheet_process.py FILE SHEET BYTES.

The library holds a sheet as one rectangle, so two cells far apart end the process that reads them.
This one ends without harm.  It prints JSON lines: the sheet's name or an error, then each row that
has a cell: its number from 1, and its cells as text.
"""

import json
import sys
from contextlib import suppress
from datetime import date, datetime, time


def as_text(cell: object) -> str:
    """A cell as a CSV of the sheet would have it: 3 and not 3.0, dates as ISO 8601 has them."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) <= 2**53 else repr(cell)
    if isinstance(cell, datetime):
        return str(cell.date() if cell.time() == time() else cell)
    return str(cell.isoformat() if isinstance(cell, date | time) else cell)


def main(path: str, wanted: str, most_bytes: str) -> None:
    """Print the sheet."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(most_bytes), int(most_bytes)))
    from python_calamine import CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

    try:
        book = CalamineWorkbook.from_path(path)
        sheets = [each for each in book.sheets_metadata if each.typ == SheetTypeEnum.WorkSheet]
        names = [each.name for each in sheets]
        shown = [each.name for each in sheets if each.visible == SheetVisibleEnum.Visible]
        name = wanted or next(iter(shown or names), "")
        if name not in names:
            print(json.dumps({"names": names}))
            return
        sheet = book.get_sheet_by_name(name)
        first = sheet.start[0] + 1 if sheet.start else 1
        rows = [sheet.start is not None, sheet.height]
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return
    print(json.dumps({"name": name, "others": len(names) - 1, "hidden": len(names) - len(shown)}))
    for number, row in enumerate(sheet.iter_rows() if all(rows) else (), start=first):
        cells = [as_text(cell) for cell in row]
        if any(cells):
            print(json.dumps((number, cells)))


if __name__ == "__main__":
    main(*sys.argv[1:])
