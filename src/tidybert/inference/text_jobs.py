"""A job over texts: open a model, read a file, answer or embed each row, write one file.

The shell does a job on one file, to stdout or into a file; a cluster does it on many.  A job is
plain data until somebody opens it, so it travels between machines, and each file has the same bytes
wherever it was done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tidybert.errors import UsageError, param
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_files import SUFFIXES, read_examples
from tidybert.inference.answer_files import (
    LINES,
    OFFICIAL,
    AnswerForm,
    Chunks,
    Layout,
    format_of,
    top_lines,
    write_answers,
    write_vectors,
)
from tidybert.inference.answer_sheets import TableForm, table_form
from tidybert.inference.embedding import Embedder
from tidybert.inference.passages import text_passages
from tidybert.inference.predictor import Predictor
from tidybert.options import flags_of
from tidybert.storage.part_file import Written, new_file
from tidybert.system.reporter import Reporter
from tidybert.tasks.answer import Answered, LabelledAnswer

if TYPE_CHECKING:
    from tidybert.inference.language_model import TextScorer
    from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor


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
    """The suffix of a worker's output file."""

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
            "read": flags_of(self.read, ReadOptions),
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


class AnswerJob(TextJob):
    """Answers as JSON lines."""

    suffix: ClassVar = ".jsonl"

    @property
    def form(self) -> AnswerForm:
        """How answers are shown."""
        return LINES

    def form_of(self, opened: Any) -> AnswerForm:
        """How answers are written into a file."""
        return self.form

    def asked(self) -> dict[str, Any]:
        """What an answer depends on beside the model and the form."""
        return {}

    @abstractmethod
    def chunks(self, opened: Any, texts: Iterable[Any], *, first: int = 1) -> Chunks:
        """The answers in lists, with their examples, as ``Predictor.predict_chunks``."""

    def stream(self, opened: Any, texts: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The answers, in order."""
        for _, answers in self.chunks(opened, texts):
            yield from answers

    def write(
        self, opened: Any, texts: Iterable[Any], target: Path, resume: bool, reporter: Reporter
    ) -> Written:
        return write_answers(
            opened,
            texts,
            target,
            self.form_of(opened),
            chunks=partial(self.chunks, opened),
            settings=self.asked(),
            resume=resume,
            reporter=reporter,
        )

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **self.asked()}


@dataclass(frozen=True, kw_only=True)
class TableJob(AnswerJob):
    """Answers as JSON lines or into a table.

    out: a file whose suffix may be that of a table.  reports: of the file that is read.
    """

    out: Path | None = None
    reports: list[ReadReport] = field(default_factory=list, init=False, compare=False, repr=False)

    def separator(self) -> str:
        """The character between the cells of a CSV, that of the input."""
        reports = [one for one in self.reports if one.format in ("csv", "swag")]
        return reports[0].options.separator("csv") if reports else ","


@dataclass(frozen=True, kw_only=True)
class PredictJob(TableJob):
    """A RUN's answers.

    top_k: keeps the scores of the likeliest classes alone.  official: one JSON object of ids and
    answers, for SQuAD's script.  labels, descriptions: classes that are known by their names, as
    ``NamePredictor`` takes them.
    """

    labels: Sequence[str] | None = None
    descriptions: Mapping[str, str] | None = None
    top_k: int | None = None
    official: bool = False
    name: ClassVar = "predict"

    @property
    def form(self) -> AnswerForm:
        if self.official:
            return OFFICIAL
        return LINES if self.top_k is None else top_lines(self.top_k)

    def load(self) -> Predictor[Any]:
        """Raises UsageError too for a form of answers that the task does not have."""
        opened: Predictor[Any]
        if self.labels is None and self.descriptions is None:
            opened = Predictor(self.model, **self.options)
        else:
            from tidybert.inference.zero_shot import NamePredictor

            opened = NamePredictor(self.model, self.labels, self.descriptions, **self.options)
        task = opened.task
        suffix = self.out.suffix.lower() if self.out is not None else ""
        if self.official and SUFFIXES.get(suffix, "json") not in ("json", "jsonl", "text"):
            raise UsageError(f"{param('official_format')} writes JSON, and no {suffix}")
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
        self.reports[:] = [report]
        # A table has the columns of the input.
        keep = "all" if isinstance(self.form_of(opened), TableForm) else False

        def read(report: ReadReport) -> Iterator[Any]:
            reader = opened.task.read.with_details(keep_columns=keep)
            found: Iterator[Any] = reader(
                source,
                self.read,
                need_label=False,
                skip_bad_rows=self.skip_bad_rows,
                report=report,
                like=opened.reading,
            )
            return found

        if self.labels is not None or self.descriptions is not None:
            from tidybert.inference.zero_shot import NamePredictor

            assert isinstance(opened, NamePredictor)
            # Each line of a stream is answered before the next one is there.
            is_stream = source == "-" or not Path(source).is_file()
            opened.compare_with(() if is_stream else read(ReadReport()))
        return read(report)

    def chunks(self, opened: Predictor, texts: Iterable[Any], *, first: int = 1) -> Chunks:
        return opened.predict_chunks(texts, first=first)

    def form_of(self, opened: Predictor) -> AnswerForm:
        """A table where ``out`` names one."""
        how: dict[str, Any] = {"top_k": self.top_k, "shown": opened.task.shown}
        table = None if self.official else table_form(self.out, delimiter=self.separator, **how)
        return table or self.form

    def settings(self) -> dict[str, Any]:
        names = {"labels": self.labels, "descriptions": self.descriptions}
        given = {name: each for name, each in names.items() if each is not None}
        return {**super().settings(), "top_k": self.top_k, **given}


@dataclass(frozen=True, kw_only=True)
class FillMaskJob(AnswerJob):
    """The likeliest words for each [MASK]; top_k and among as ``MaskFiller.fill`` takes them."""

    top_k: int | None = None
    among: Sequence[str] | None = None
    name: ClassVar = "fill-mask"

    def load(self) -> MaskFiller:
        from tidybert.inference.pretraining_heads import MaskFiller

        opened = MaskFiller(self.model, **self.options)
        opened.words(self.top_k, self.among)
        return opened

    def chunks(self, opened: MaskFiller, texts: Iterable[Any], *, first: int = 1) -> Chunks:
        return opened.fill_chunks(texts, first=first, **self.asked())

    def asked(self) -> dict[str, Any]:
        return {"top_k": self.top_k, "among": self.among}


@dataclass(frozen=True, kw_only=True)
class NextSentenceJob(AnswerJob):
    """Whether the second text of each pair follows the first."""

    name: ClassVar = "next-sentence"

    def load(self) -> NextSentencePredictor:
        from tidybert.inference.pretraining_heads import NextSentencePredictor

        return NextSentencePredictor(self.model, **self.options)

    def cut(self, opened: NextSentencePredictor) -> str:
        return f"pairs were cut to {opened.max_seq_length} tokens"

    def chunks(
        self, opened: NextSentencePredictor, texts: Iterable[Any], *, first: int = 1
    ) -> Chunks:
        return opened.predict_chunks(texts, first=first)


@dataclass(frozen=True, kw_only=True)
class ScoreJob(AnswerJob):
    """The probability of each token, and the perplexity of each text."""

    name: ClassVar = "score"

    def load(self) -> TextScorer:
        from tidybert.inference.language_model import TextScorer

        return TextScorer(self.model, **self.options)

    def chunks(self, opened: TextScorer, texts: Iterable[Any], *, first: int = 1) -> Chunks:
        return opened.score_chunks(texts, first=first)


@dataclass(frozen=True, kw_only=True)
class EmbedJob(TextJob):
    """Vectors, beside the row and the length of each text."""

    per_token: bool = False
    dtype: str = "float32"
    passages: int | None = None
    passage_stride: int | None = None
    name: ClassVar = "embed"
    suffix: ClassVar = ".parquet"

    def load(self) -> Embedder:
        """Raises UsageError too for a passage that is longer than what the encoder reads."""
        opened = Embedder(self.model, **self.options)
        if self.passages is not None:
            prompt = opened.tokenizer.encode(opened.prompt, add_special_tokens=False)
            room = opened.max_seq_length - opened.tokenizer.layout.num_special(1) - len(prompt)
            if not self.stride <= self.passages <= room:
                raise UsageError(
                    f"{param('passages', self.passages)}, {param('passage_stride', self.stride)}: "
                    f"expected at most {room}, the tokens of a text that the encoder reads, and a "
                    "stride that is not longer"
                )
        return opened

    @property
    def stride(self) -> int:
        """Tokens from one passage to the next; 0 without passages."""
        return self.passage_stride or self.passages or 0

    def examples(self, opened: Any, source: str | Path, report: ReadReport) -> Iterator[Any]:
        return self.parts(opened, super().examples(opened, source, report))

    def parts(self, opened: Embedder, texts: Iterator[Any]) -> Iterator[Any]:
        """The passages of the texts, or the texts themselves."""
        if self.passages is None:
            return texts
        return text_passages(texts, opened.tokenizer, self.passages, self.stride)

    @contextmanager
    def alone(self, target: Path, resume: bool) -> Iterator[Any]:
        with super().alone(target, resume) as lock:
            # Before the model is loaded: a suffix that no format has, or one that holds no tokens.
            format_of(target, replace(self._layout, dimension=1))
            yield lock

    def layout(self, opened: Embedder) -> Layout:
        """What a file of vectors holds."""
        width = opened.token_dimension if self.per_token else opened.dimension
        return replace(self._layout, dimension=width)

    @property
    def _layout(self) -> Layout:
        passages = None if self.passages is None else (self.passages, self.stride)
        return Layout(0, self.per_token, self.dtype, passages)

    def write(
        self, opened: Embedder, texts: Iterable[Any], target: Path, resume: bool, reporter: Reporter
    ) -> Written:
        kind = format_of(target, self.layout(opened))
        return write_vectors(opened, texts, target, kind, resume=resume, reporter=reporter)

    def settings(self) -> dict[str, Any]:
        settings = {**super().settings(), "per_token": self.per_token, "dtype": self.dtype}
        return settings | ({"passages": [self.passages, self.stride]} if self.passages else {})
