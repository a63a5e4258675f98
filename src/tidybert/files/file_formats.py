"""FileFormats: the formats that files of one kind come in, and how a file's own is found."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from tidybert.errors import DataError, UsageError, param, suggestion
from tidybert.files.read_options import ROLES, ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.storage.model_files import CONFIG_FILE

LISTED_FILES: Final = 1000
TABLE_FLAGS = ("header", "delimiter", "quoting", "skip_rows")
"""The options that only rows of cells have a use for."""
_SHEETS: Final = (".xlsx", ".xls", ".ods", ".numbers")
_ARCHIVES: Final = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst")
_PAGES: Final = (".pdf", ".doc", ".docx", ".odt", ".rtf", ".html", ".htm")
# What to do first with a file whose suffix says that it is not data, by its suffix.
_FIRST: Final = {
    **dict.fromkeys(_SHEETS, "save the sheet as CSV"),
    **dict.fromkeys(_ARCHIVES, "unpack it"),
    **dict.fromkeys(_PAGES, "save its text as CSV, JSON lines or plain text"),
}


@dataclass(frozen=True)
class FileFormats:
    """The formats of files of ``content``, such as texts.

    suffixes: what a file's suffix says, .gz apart.
    listed: the names in words, where they need some.
    """

    content: str
    names: tuple[str, ...]
    suffixes: Mapping[str, str]
    listed: str = ""

    def of(self, path: str, options: ReadOptions) -> str:
        """The format that the options or the suffix give; "" for a pipe where neither does.

        Raises DataError for a folder or no file, and UsageError for an unknown suffix; the options'
        format is one that ``check`` passed.
        """
        if options.format is not None:
            return options.format
        if path == "-":
            return ""
        if Path(path).is_dir():
            raise DataError(f"{path}: it is a folder; {self._inside(Path(path))}")
        suffix = _suffix(path)
        if suffix not in self.suffixes:
            if Path(path).is_fifo():
                return ""
            if not Path(path).exists():
                raise DataError(
                    f"{path}: no such file; name one, or - to read {self.content} from standard "
                    "input"
                )
            if suffix in _FIRST:
                raise UsageError(f"{path}: {_FIRST[suffix]} first, and name that file")
            raise UsageError(
                f"{path}: the suffix {suffix!r} does not tell the format; {self.advice()}"
            )
        return self.suffixes[suffix]

    def like(self, path: str, options: ReadOptions, trained: str) -> str | None:
        """The format of a file beside one of the format ``trained``; None: its content decides.

        The format of training is that of a file whose suffix says nothing.
        """
        if options.format is not None:
            return options.format
        suffix = _suffix(path)
        if suffix in self.suffixes or suffix in (".txt", *_FIRST) or not self.suffixes:
            return self.suffixes.get(suffix)
        return trained if trained in self.names and Path(path).is_file() else None

    def check(self, path: str, name: str | None) -> None:
        """Raise UsageError for the name of another format; None passes."""
        if name is not None and name not in self.names:
            raise UsageError(
                f"{path}: {param('format', name)}: {self.content} are read from {self._listed()}"
                f"{suggestion(name, self.names)}"
            )

    def advice(self) -> str:
        """Which formats can be given, as the end of a message."""
        return f"give {param('format')}, one of {self._listed()}"

    def _inside(self, folder: Path) -> str:
        """What to do about a folder in the place of a file."""
        if (folder / CONFIG_FILE).is_file():
            return f"and it holds a model; name a file of {self.content}"
        names = [each.name for each in islice(folder.iterdir(), LISTED_FILES)]
        fitting = sorted(
            name for name in names if _suffix(name) in self.suffixes and name[0] != "."
        )
        like = f", such as {str(folder / fitting[0])!r}" if fitting else ""
        return f"name a file in it{like}"

    def _listed(self) -> str:
        return self.listed or ", ".join(self.names)


def _suffix(path: str) -> str:
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def refuse_file_options(options: ReadOptions, name: str) -> None:
    """Raise UsageError for an option that rows in memory have no use for."""
    for each in ("format", "encoding", *TABLE_FLAGS):
        if getattr(options, each) != getattr(ReadOptions, each):
            raise UsageError(f"{name}: {param(each)} is for files, and these data are in memory")


def refuse_flags(report: ReadReport, *names: str) -> None:
    """Raise UsageError where one of these is given, which the report's format has no use for."""
    for name in names:
        if getattr(report.options, name) != getattr(ReadOptions, name):
            raise UsageError(
                f"{report.path}: {param(name)} has no meaning for {param('format', report.format)}"
                + (f"; is another {param('format')} meant?" if name in ROLES else "")
            )
