"""What a worker does with one file: read it, answer or embed each row, write one file.

A piece of work is plain data until a worker opens it, so it travels between machines.  It reads and
writes by the functions of the single process, so its bytes are the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_files import read_examples
from tidybert.inference.answer_files import (
    LINES,
    Layout,
    format_of,
    top_lines,
    write_answers,
    write_vectors,
)
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor
from tidybert.storage.part_file import Written

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class FileWork(ABC):
    """The work on each file of a job.

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
    """The suffix of the file that it writes."""

    @abstractmethod
    def load(self) -> Any:
        """The loaded model, which has a ``fingerprint``; raises as its class does."""

    @abstractmethod
    def write(
        self, opened: Any, source: Path, target: Path, report: ReadReport, advance: Advance
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


@dataclass(frozen=True, kw_only=True)
class PredictWork(FileWork):
    """Answers as JSON lines; ``top_k`` keeps the scores of the likeliest classes alone."""

    top_k: int | None = None
    name: ClassVar = "predict"
    suffix: ClassVar = ".jsonl"

    def load(self) -> Predictor:
        return Predictor(self.model, **self.options)

    def write(
        self, opened: Predictor, source: Path, target: Path, report: ReadReport, advance: Advance
    ) -> Written:
        examples = opened.task.read(
            source,
            self.read,
            need_label=False,
            skip_bad_rows=self.skip_bad_rows,
            report=report,
            like=opened.reading,
        )
        form = LINES if self.top_k is None else top_lines(self.top_k)
        return write_answers(opened, examples, target, form, resume=True, advance=advance)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "top_k": self.top_k}


@dataclass(frozen=True, kw_only=True)
class EmbedWork(FileWork):
    """Vectors in Parquet, beside the row and the length of each text."""

    per_token: bool = False
    dtype: str = "float32"
    name: ClassVar = "embed"
    suffix: ClassVar = ".parquet"

    def load(self) -> Embedder:
        return Embedder(self.model, **self.options)

    def write(
        self, opened: Embedder, source: Path, target: Path, report: ReadReport, advance: Advance
    ) -> Written:
        width = opened.token_dimension if self.per_token else opened.dimension
        kind = format_of(target, Layout(width, self.per_token, self.dtype))
        examples = read_examples(
            source, self.read, need_label=False, skip_bad_rows=self.skip_bad_rows, report=report
        )
        return write_vectors(opened, examples, target, kind, resume=True, advance=advance)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "per_token": self.per_token, "dtype": self.dtype}
