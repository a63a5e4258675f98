"""A job over texts: open a model, read a file, answer or embed each row, write one file.

The shell does a job on one file, to stdout or into a file; a cluster does it on many.  A job is
plain data until somebody opens it, so it travels between machines, and each file has the same bytes
wherever it was done.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tidybert.errors import UsageError, param
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_files import read_examples
from tidybert.inference.answer_files import (
    LINES,
    OFFICIAL,
    AnswerForm,
    Layout,
    format_of,
    top_lines,
    write_answers,
    write_vectors,
)
from tidybert.inference.embedding import Embedder
from tidybert.inference.predictor import Predictor
from tidybert.inference.zero_shot import NamePredictor
from tidybert.storage.part_file import Written, new_file
from tidybert.system.reporter import Reporter
from tidybert.tasks.answer import Answered, LabelledAnswer

Advance = Callable[[int], None]


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


class TextJob(FileJob):
    """The work on a file of texts."""

    def cut(self, opened: Any) -> str:
        """What became of texts that are too long, to be said of their number."""
        return f"texts were cut to {opened.max_seq_length} tokens"

    def alone(self, target: Path, resume: bool) -> AbstractContextManager[Any]:
        """Within the block this process alone writes ``target``; raises as ``new_file``."""
        return new_file(target, resume)

    def examples(self, opened: Any, source: str | Path, report: ReadReport) -> Iterator[Any]:
        """The texts of a file, without labels; fills the report.  Raises as reading does."""
        return read_examples(
            source, self.read, need_label=False, skip_bad_rows=self.skip_bad_rows, report=report
        )

    @abstractmethod
    def write(
        self, opened: Any, texts: Iterable[Any], target: Path, resume: bool, reporter: Reporter
    ) -> Written:
        """Write ``target`` whole or not at all; ``resume``: go on with what a stop left."""

    def write_file(
        self, opened: Any, source: Path, target: Path, report: ReadReport, reporter: Reporter
    ) -> Written:
        texts = self.examples(opened, source, report)
        return self.write(opened, texts, target, resume=True, reporter=reporter)


@dataclass(frozen=True, kw_only=True)
class PredictJob(TextJob):
    """Answers as JSON lines.

    top_k: keeps the scores of the likeliest classes alone.  official: one JSON object of ids and
    answers, for SQuAD's script.  labels, descriptions: classes that are known by their names, as
    ``NamePredictor`` takes them.
    """

    labels: Sequence[str] | None = None
    descriptions: Mapping[str, str] | None = None
    top_k: int | None = None
    official: bool = False
    name: ClassVar = "predict"
    suffix: ClassVar = ".jsonl"

    @property
    def form(self) -> AnswerForm:
        """How answers are written."""
        if self.official:
            return OFFICIAL
        return LINES if self.top_k is None else top_lines(self.top_k)

    def load(self) -> Predictor[Any]:
        """Raises UsageError too for a form of answers that the task does not have."""
        opened: Predictor[Any]
        if self.labels is None and self.descriptions is None:
            opened = Predictor(self.model, **self.options)
        else:
            opened = NamePredictor(self.model, self.labels, self.descriptions, **self.options)
        task = opened.task
        if self.official and task.answer is not Answered:
            raise UsageError(
                f"{param('official_format')} is for answers to questions, but {self.model} was "
                f"trained to {task.name}"
            )
        if self.top_k is not None:
            names = task.names
            if not issubclass(task.answer, LabelledAnswer) or self.official:
                raise UsageError(
                    f"{param('top_k')} is for models that classify, and their usual output"
                )
            if self.top_k > len(names):
                raise UsageError(
                    f"{param('top_k')} is {self.top_k}; expected 1 to {len(names)}, the classes"
                )
        return opened

    def cut(self, opened: Predictor) -> str:
        return f"examples {opened.task.truncation}"

    def examples(self, opened: Predictor, source: str | Path, report: ReadReport) -> Iterator[Any]:
        def read(report: ReadReport) -> Iterator[Any]:
            found: Iterator[Any] = opened.task.read(
                source,
                self.read,
                need_label=False,
                skip_bad_rows=self.skip_bad_rows,
                report=report,
                like=opened.reading,
            )
            return found

        if isinstance(opened, NamePredictor):
            # Each line of a stream is answered before the next one is there.
            is_stream = source == "-" or not Path(source).is_file()
            opened.compare_with(() if is_stream else read(ReadReport()))
        return read(report)

    def write(
        self,
        opened: Predictor,
        texts: Iterable[Any],
        target: Path,
        resume: bool,
        reporter: Reporter,
    ) -> Written:
        return write_answers(opened, texts, target, self.form, resume=resume, reporter=reporter)

    def settings(self) -> dict[str, Any]:
        names = {"labels": self.labels, "descriptions": self.descriptions}
        given = {name: each for name, each in names.items() if each is not None}
        return {**super().settings(), "top_k": self.top_k, **given}


@dataclass(frozen=True, kw_only=True)
class EmbedJob(TextJob):
    """Vectors, beside the row and the length of each text."""

    per_token: bool = False
    dtype: str = "float32"
    name: ClassVar = "embed"
    suffix: ClassVar = ".parquet"

    def load(self) -> Embedder:
        return Embedder(self.model, **self.options)

    @contextmanager
    def alone(self, target: Path, resume: bool) -> Iterator[Any]:
        with super().alone(target, resume) as lock:
            # Before the model is loaded: a suffix that no format has, or one that holds no tokens.
            format_of(target, Layout(1, self.per_token, self.dtype))
            yield lock

    def layout(self, opened: Embedder) -> Layout:
        """What a file of vectors holds."""
        width = opened.token_dimension if self.per_token else opened.dimension
        return Layout(width, self.per_token, self.dtype)

    def write(
        self, opened: Embedder, texts: Iterable[Any], target: Path, resume: bool, reporter: Reporter
    ) -> Written:
        kind = format_of(target, self.layout(opened))
        return write_vectors(opened, texts, target, kind, resume=resume, reporter=reporter)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "per_token": self.per_token, "dtype": self.dtype}
