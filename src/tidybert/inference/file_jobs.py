"""A job over files: what is done with one, as plain data; loads no torch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.storage.part_file import Written
from tidybert.system.reporter import Reporter


@dataclass(frozen=True, kw_only=True)
class FileJob(ABC):
    """The work on a file.

    Args:
        model: a MODEL or RUN; every worker must find it under this name.
        options: arguments of the class that opens it.
        read: how to read a file.
        skip_bad_rows: leave bad rows out, counted, instead of failing at the file.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    read: ReadOptions = field(default_factory=ReadOptions)
    skip_bad_rows: bool = False

    name: ClassVar[str]
    suffix: ClassVar[str]
    """Of the file that a worker writes."""

    @abstractmethod
    def load(self) -> Any:
        """The loaded model, which has a ``fingerprint``; raises as its class does."""

    @abstractmethod
    def write_file(
        self, opened: Any, source: Path, target: Path, report: ReadReport, reporter: Reporter
    ) -> Written:
        """Write ``target`` whole or not at all, going on with what a killed worker left.

        Calls ``advance`` with the number of rows done, and fills the report.
        """

    def fingerprint(self) -> str:
        """The loaded model's hash of weights and vocabulary; needs no GPU."""
        options = dict(self.options)
        if str(options.get("device", "auto")).startswith("cuda"):
            options |= {"device": "cpu", "precision": "float32"}
        fingerprint: str = replace(self, options=options).load().fingerprint
        return fingerprint

    def settings(self) -> dict[str, Any]:
        """All that decides the bytes beside the model, as JSON."""
        return {
            "options": dict(self.options),
            "read": self.read.flags(),
            "skip_bad_rows": self.skip_bad_rows,
        }
