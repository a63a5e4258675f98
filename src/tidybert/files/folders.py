"""A folder of texts: one file a text, in one folder a class where they have labels.

So aclImdb and 20 Newsgroups come.  A row is a file, and messages name it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from tidybert.errors import DataError, param
from tidybert.files.reading import ReadReport
from tidybert.files.rows import Problem, Record, count_of
from tidybert.files.text_lines import NUL_BYTE, western_letters, wrong_byte
from tidybert.storage.limits import CELL_CHARACTERS, FOLDER_FILES, Limit
from tidybert.storage.opening import leads_outside, os_reason, read_bytes

_TEXT_BYTES = Limit("one text", 4 * CELL_CHARACTERS.value, "bytes")
# The folder of aclImdb whose texts have no labels.
_UNLABELLED = "unsup"


def folder_names(path: str | Path, *, folders: bool = False, links: bool = False) -> list[str]:
    """The names of a folder's files, or of the folders in it that are no links; no hidden ones."""
    names = []
    try:
        with os.scandir(path) as entries:
            for count, each in enumerate(entries, start=1):
                FOLDER_FILES.check(count, path)
                wanted = each.is_dir(follow_symlinks=links) if folders else not each.is_dir()
                if wanted and each.name[0] != ".":
                    names.append(each.name)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error, path)}") from error
    return sorted(names)


def without_links(folder: str | Path, names: list[str], report: ReadReport) -> list[str]:
    """The names but those of links out of the folder, which are noted; DataError if none is left.

    Whoever gave the folder would else choose any file of this user as a text.
    """
    if report.options.follow_links:
        return names
    kept = [name for name in names if not leads_outside(Path(folder, name), folder)]
    if left_out := sorted({*names} - {*kept}):
        shown = ", ".join(repr(name[:80]) for name in left_out[:5])
        more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
        count = count_of(len(left_out), "link")
        note = f"{count} out of the folder passed over: {shown}{more}"
        note += f"; {param('follow_links', True)} reads them"
        if not kept:
            raise DataError(f"{folder}: {note}")
        report.notes.append(note)
    return kept


def folder_records(path: str, report: ReadReport) -> Iterator[Record | Problem]:
    """The text of each file; its label is the name of the folder that it is in."""
    classes = without_links(path, folder_names(path, folders=True, links=True), report)
    if not report.options.follow_links:
        # One may lead to the folder above it.
        classes = [name for name in classes if not Path(path, name).is_symlink()]
    if _UNLABELLED in classes and {"pos", "neg"} <= set(classes) and report.need_label:
        classes.remove(_UNLABELLED)
        report.notes.append(f"the folder {_UNLABELLED!r} has no labels, and is passed over")
    for name in classes:
        report.files += [f"{name}/{file}" for file in folder_names(Path(path, name))]
        FOLDER_FILES.check(len(report.files), path)
        if deeper := folder_names(Path(path, name), folders=True):
            raise DataError(
                f"{path}: {name!r} holds the folder {deeper[0]!r}; name one whose folders hold the "
                f"texts of a class each, such as {str(Path(path, name))!r}"
            )
    beside = folder_names(path)
    if not classes:
        if report.need_label:
            raise DataError(f"{path}: it holds no folder; labels are folders with a text a file")
        report.files = beside
    elif beside:
        report.notes.append(f"{count_of(len(beside), 'file')} beside the folders not read")
    report.files = without_links(path, report.files, report)
    for number, name in enumerate(report.files, start=1):
        try:
            text = read_text_file(Path(path, name), report)
        except DataError as error:
            yield Problem(number, error.message.removeprefix(f"{Path(path, name)}: "))
            continue
        yield number, {"text": text, "label": Path(name).parent.name or None, "file": name}


def read_text_file(path: Path, report: ReadReport) -> str:
    """The text of a file, without the line end that it may end with.  Raises DataError."""
    content = read_bytes(path, _TEXT_BYTES)
    encoding = report.options.codec()
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        shown = report.options.encoding is None and western_letters(str(path))
        if not shown:
            begin = content.rfind(b"\n", 0, error.start) + 1
            line, number = content[begin : error.end], content.count(b"\n", 0, begin) + 1
            why = wrong_byte(line, error.start - begin, encoding, number)
            raise DataError(f"{path}: line {number}: {why}") from None
        text = content.decode("cp1252")
        report.shown.setdefault("encoding", f"cp1252 where UTF-8 fails ({shown})")
    if "\0" in text:
        raise DataError(f"{path}: {NUL_BYTE}")
    return text.removeprefix("\ufeff").removesuffix("\n").removesuffix("\r")
