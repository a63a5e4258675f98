"""Commands that do a job on a file of texts: to stdout, into a file, or on a cluster."""

import io
import math
import os
import re
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from tidybert.catalog import DEFAULT_MODEL
from tidybert.checkpoints.example_kinds import TEXT_OR_PAIR
from tidybert.cli import flags
from tidybert.cli.flags import command
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.progress import shown_texts
from tidybert.errors import LINE, DataError, UsageError
from tidybert.files.reading import ReadOptions
from tidybert.files.rows import count_of, skipped_rows
from tidybert.inference.options import (
    EmbedderOptions,
    NamedClassesOptions,
    OpeningOptions,
    PairOptions,
    PassageOptions,
    PredictorOptions,
    RedactOptions,
    SentenceOptions,
    TrainedLengthOption,
)
from tidybert.options import flags_of, listed, option, values_of
from tidybert.system.terminal import MAX_WIDTH, clock, printable
from tidybert.tasks.task_options import ScoreOption
from tidybert.training.training_arguments import PickleOption

if TYPE_CHECKING:
    from tidybert.files.reading import ReadReport
    from tidybert.inference.embedding import Embedder
    from tidybert.inference.predictor import Predictor

# Characters of a long text, label or number in a table, and on each side of a [MASK].
_LONGEST_TEXT: Final = 160
_LONGEST_LABEL: Final = 30
_SCORE_WIDTH: Final = 8
_CONTEXT: Final = 60


@flags.flags
class OutFlags(flags.ClusterFlags):
    PANEL: ClassVar = "Other options"

    out: Path | None = None
    """``--out FILE``: New file to write. If not set: stdout."""
    resume: bool = option(False, needs="out")
    """``--resume``: Continue a stopped run of the same --out."""


@dataclass(frozen=True)
class Done:
    """What a job has done in this process: the opened model, counts, and the seconds it took."""

    opened: Any
    written: Any
    seconds: float

    def note(self, out: Path | None, more: str = "") -> None:
        """Note the texts and the rate; ``more`` ends the line."""
        written = self.written
        rate = (written.num_texts - written.num_resumed) / self.seconds if self.seconds else 0
        note(
            f"{'' if out is None else f'{out}: '}{count_of(written.num_texts, 'text')} in "
            f"{clock(self.seconds)}{f' ({rate:,.0f} texts/s)' if self.seconds else ''}, "
            f"{written.num_truncated:,} truncated{more}"
        )


def job_of(kind: Any, given: Any, opening: type, also: Any = None, **more: Any) -> Any:
    """The job that a command's arguments and flags describe; ``also`` opens the model too."""
    options = {**values_of(given, opening), **(also or {})}
    rows = {"read": given.read, "skip_bad_rows": given.skip_bad_rows}
    return kind(model=given.model, options=options, **rows, **more)


def do_job(
    job: Any,
    file: str,
    given: Any,
    title: str,
    *,
    examples: Callable[[Any], Iterator[Any]] | None = None,
    show: Callable[[Any, Iterator[Any]], tuple[int, int]] | None = None,
) -> Done | None:
    """Do a job on a file, or have a cluster do it on many; None where a cluster did it.

    ``show`` prints what is for stdout; it returns the numbers of texts and of those that were cut.
    """
    from tidybert.files.reading import ReadReport
    from tidybert.storage.part_file import Written

    if given.cluster is not None:
        from tidybert.cluster.file_job import run_job

        run_on_cluster(partial(run_job, job), file, given, title)
        return None
    out: Path | None = given.out
    resume = getattr(given, "resume", False)
    # A second process is refused before it loads the model.
    with nullcontext() if out is None else job.alone(out, resume):
        opened = job.load()

        def texts(report: ReadReport) -> Iterator[Any]:
            return job.examples(opened, file, report) if examples is None else examples(opened)

        report = ReadReport()
        begun = time.monotonic()
        if out is None:
            assert show is not None
            written = Written(*show(opened, texts(report)), 0)
        else:
            # A first reading finds bad rows before the work, and counts the texts.
            total = sum(1 for _ in texts(report)) if Path(file).is_file() else None
            left = texts(report if total is None else ReadReport())
            stopped = resumable(out, resume) if hasattr(given, "resume") else nullcontext()
            with stopped, shown_texts(title, total) as reporter:
                written = job.write(opened, left, out, resume=resume, reporter=reporter)
        seconds = time.monotonic() - begun
    note_reading(report, written.num_truncated, written.num_texts, job.cut(opened), opened)
    return Done(opened, written, seconds)


def answer_texts(
    job: Any,
    given: Any,
    title: str,
    show: Callable[[dict[str, Any]], None],
    *,
    typed: Sequence[tuple[str, str | None]] = (),
) -> None:
    """Do a job on a file, or on texts of the command line, and show each answer as it comes."""
    from tidybert.files.text_examples import TextExample
    from tidybert.files.text_files import read_examples

    file, name = given.file, given.file or ""
    if given.cluster is None and file is not None:
        read_examples.formats.check(file, job.read.format)
    examples = [TextExample(*texts, None, row) for row, texts in enumerate(typed, 1)]
    try:
        done = do_job(
            job,
            name,
            given,
            title,
            examples=None if file is not None else lambda _: iter(examples),
            show=lambda opened, one: print_answers(partial(job.stream, opened), one, name, show),
        )
    except DataError as error:
        if not error.message.startswith(LINE):
            raise
        if file is None:
            raise DataError(error.message.replace(LINE, "text")) from error
        raise DataError(f"{name}{': ' if name else ''}{error.message}") from error
    if done is not None and given.out is not None:
        done.note(given.out)


def run_on_cluster(do: Callable[..., Any], file: str, given: Any, title: str) -> None:
    """Have ``do``, which takes what ``run_job`` takes, do each file, and note what was done."""
    from tidybert.cluster.input_files import input_files
    from tidybert.files.text_files import SUFFIXES

    out = given.out
    if out is None:
        raise UsageError("--cluster needs --out: a folder for the files that it writes")
    if re.match("[a-z0-9]+:/", str(out)):
        raise UsageError(f"--out {out}: expected a folder on a disk that every machine sees")
    if getattr(given, "threads", None) is not None:
        raise UsageError("--threads: a worker of --cluster has one thread; give --cluster-workers")
    if file in ("", "-"):
        raise UsageError("--cluster reads files: name a folder, a pattern or a file")
    files = input_files(file, SUFFIXES)
    begun = time.monotonic()
    with shown_texts(title) as reporter:
        report = do(
            files,
            out,
            cluster=given.cluster,
            num_workers=given.cluster_workers,
            on_error=given.on_error,
            reporter=replace(reporter, begun=note_begin),
        )
    seconds = time.monotonic() - begun
    note(*(f"{one.input}: {skipped_rows(one.reasons)}" for one in report.done if one.num_skipped))
    truncated = sum(each.num_truncated for each in report.done)
    before = f"; {len(report.before):,} were done before" if report.before else ""
    note(
        f"{out}: {count_of(report.num_rows, 'row')} of {count_of(len(report.done), 'file')} in "
        f"{clock(seconds)} ({report.num_rows / seconds:,.0f} rows/s), {truncated:,} truncated"
        f"{before}"
    )


def note_begin(num_done: int, num_files: int) -> None:
    """Note how many files there are, before the cluster starts."""
    if num_done < num_files:
        done = f", {num_done:,} of them done before" if num_done else ""
        note(f"{count_of(num_files, 'file')}{done}; the cluster starts")


@contextmanager
def resumable(out: Path, resume: bool) -> Iterator[None]:
    """While ``out`` is written in parts: say what a stop leaves, and how to continue."""
    from tidybert.storage.part_file import has_part

    if resume and not has_part(out):
        note(f"no part of {out} to resume from: starting at the first text")
    try:
        yield
    except BaseException:
        if has_part(out):
            note(f"the finished part of {out} is kept; the same command with --resume continues")
        raise


def note_reading(report: "ReadReport", truncated: int, total: int, cut: str, opened: Any) -> None:
    """Note what the reading found, how many of the texts were cut (``cut`` says how), and a warning
    of many tokens that ``opened`` does not know.
    """
    note(*report.lines(str))
    if report.num_blank:
        note(f"warning: {report.path} has {count_of(report.num_blank, 'blank text')}")
    if truncated and cut:
        note(f"{truncated:,} of {total:,} {cut}")
    if (unknown := getattr(opened, "unknown", None)) and (remark := unknown.remark()):
        note(f"warning: {remark}")


def check_format(run: str, path: str, read: ReadOptions) -> None:
    """Refuse a --format that the task of RUN does not read, before its model is loaded."""
    if read.format is not None:
        from tidybert.checkpoints.model_directory import ModelDirectory
        from tidybert.inference.loading import read_finished
        from tidybert.tasks.registry import task_for

        task_for(read_finished(ModelDirectory.open(run))).read.formats.check(path, read.format)


def print_answers(
    answer: Callable[[Iterator[Any]], Iterator[dict[str, Any]]],
    examples: Iterator[Any],
    file: str,
    show: Callable[[dict[str, Any]], None],
) -> tuple[int, int]:
    """Show the answer to each example as soon as it comes."""
    from tidybert.inference.forward import as_it_comes

    answered = truncated = 0
    with as_it_comes(examples, file) as coming:
        for each in answer(coming):
            show(each)
            if answered == 0 or file == "-":
                sys.stdout.flush()
            answered += 1
            truncated += each.get("truncated", False)
    return answered, truncated


@command(
    "predict", "input", "labels", "top_k", "out", "resume", "max_seq_length", "text", "text_pair",
    "format", "device",
)  # fmt: skip
class Predict(
    flags.FileArgument, ScoreOption, TrainedLengthOption, NamedClassesOptions, RedactOptions,
    flags.AnswerFlags, OutFlags,
):  # fmt: skip
    """Answer each text, in the order given, in constant memory.

    A file or another program gets a JSON line for each text: the task's answer (a label, a value,
    a choice, an answer, entities), its scores, num_tokens and truncated. A terminal gets a table.
    """

    PANEL: ClassVar = "Other options"

    model: str
    """``RUN``: A finished RUN."""
    input: list[str] | None = None
    """``--input TEXT``: Answer this text instead of a file. Give it again for the second text of a
    pair."""
    top_k: int | None = option(None, at_least=1)
    """``--top-k K``: Show only the scores of the K likeliest classes, such as 3 of 77."""
    json: bool = False
    """``--json``: Print JSON lines on a terminal too."""
    out: Path | None = None
    """``--out FILE``: New file: JSON lines, or in .csv or .xlsx the columns of the input with the
    answers beside. If not set: stdout."""
    official_format: bool = False
    """``--official-format``: Write one JSON object of ids and answers, for SQuAD's script."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.inference.text_jobs import PredictJob
        from tidybert.inference.zero_shot import read_descriptions

        if self.redact:
            self._redact()
            return
        if self.cluster is not None:
            for name in ("input", "json", "official_format"):
                if getattr(self, name):
                    flag = "--" + name.replace("_", "-")
                    raise UsageError(f"{flag} does not go with --cluster, which writes JSON lines")
        else:
            check_format(self.model, self.file, self.read)
            self._check_file()
        job = job_of(
            PredictJob,
            self,
            PredictorOptions,
            labels=self.labels and listed(self.labels),
            descriptions=self.descriptions and read_descriptions(self.descriptions),
            top_k=self.top_k,
            official=self.official_format,
            out=None if self.cluster is not None else self.out,
        )

        def show(predictor: "Predictor", examples: Iterator[Any]) -> tuple[int, int]:
            if sys.stdout.isatty() and not (self.json or self.official_format):
                return self._print_table(predictor, examples)
            return self._print_lines(predictor.predict_stream, examples, job.form)

        done = do_job(
            job,
            self.file,
            self,
            "answering",
            examples=self._typed if self.input else None,
            show=show,
        )
        if done is not None and self.out is not None:
            done.note(self.out)

    def _redact(self) -> None:
        from tidybert.inference.redaction import RedactJob, Row

        for name in ("labels", "descriptions", "top_k", "official_format", "cluster"):
            if getattr(self, name):
                raise UsageError(f"--redact and --{name.replace('_', '-')} do not go together")
        if self.patterns and self.file == "-" and Path(self.model).is_file():
            replace(self, model="-", file=self.model).run()
            return
        self._check_file()
        job = job_of(
            RedactJob,
            self,
            PredictorOptions,
            columns=tuple(listed(self.redact_columns)),
            patterns=self.patterns or (),
            redact_with=self.redact_with,
            out=self.out,
        )
        job = replace(job, model="" if self.model == "-" else self.model)
        typed = [Row(number, {"text": text}) for number, text in enumerate(self.input or (), 1)]

        def show(opened: Any, rows: Iterator[Any]) -> tuple[int, int]:
            return self._print_lines(partial(job.stream, opened), rows, job.form)

        examples = (lambda _: iter(typed)) if typed else None
        done = do_job(job, self.file, self, "redacting", examples=examples, show=show)
        assert done is not None
        written = done.written
        if self.out is not None:
            found = ", ".join(f"{name} {count:,}" for name, count in sorted(job.counts.items()))
            rows = count_of(written.num_texts, "row")
            note(f"{self.out}: {rows}, redacted: {found or 'nothing'}")
        if job.others:
            shown = ", ".join(job.others)
            note(f"not redacted: {shown}; --redact-columns takes them too")
        if written.num_truncated:
            raise DataError(
                f"{count_of(written.num_truncated, 'row')} of {written.num_texts:,} could not be "
                "read, and the cells there are empty"
                + (f"; the first is {LINE} {job.unread[0]}" if job.unread else "")
            )

    def _check_file(self) -> None:
        """Refuse a text in the place of a file, and both; say where answers wait for the keys."""
        run, file = self.model, self.file
        if self.input:
            if file != "-":
                raise UsageError(f"--input gives the text, and {file} is a file; give one of them")
        elif file != "-" and not os.path.lexists(file):
            answer = f"tidybert predict {shlex.quote(run)} --input {shlex.quote(file)}"
            raise DataError(f"{file}: no such file; to answer a text: {answer}")
        elif file == "-" and sys.stdin is not None and sys.stdin.isatty():
            note("reading texts from the keyboard, one a line; Ctrl-D ends them")

    def _typed(self, predictor: "Predictor") -> Iterator[Any]:
        """The example of the texts that --input gives."""
        kind, texts = (
            predictor.metadata.inputs or predictor.task.inputs or TEXT_OR_PAIR,
            self.input or [],
        )
        least, most = kind.fewest_texts, kind.most_texts
        if len(texts) < least or (most is not None and len(texts) > most):
            words = {None: "more", 1: "once", 2: "twice"}
            given, *wanted = (
                words.get(each, f"{each} times")
                for each in (len(texts), *dict.fromkeys([least, most]))
            )
            raise UsageError(
                f"--input is given {given}; this model needs it {' or '.join(wanted)}: {kind.asked}"
            )
        return iter(predictor.task.from_texts(*kind.of_texts(texts)))

    def _print_table(self, predictor: "Predictor", examples: Iterator[Any]) -> tuple[int, int]:
        table, waiting = AnswerTable(predictor.task, self.top_k), deque[Any]()

        def answers(coming: Iterator[Any]) -> Iterator[dict[str, Any]]:
            for chunk, found in predictor.predict_chunks(coming):
                waiting.extend(chunk)
                yield from found

        return print_answers(
            answers, examples, self.file, lambda answer: table.show(waiting.popleft(), answer)
        )

    def _print_lines(
        self,
        answers: Callable[[Iterator[Any]], Iterator[dict[str, Any]]],
        examples: Iterator[Any],
        form: Any,
    ) -> tuple[int, int]:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        before = form.head

        def show(answer: dict[str, Any]) -> None:
            nonlocal before
            sys.stdout.write(before + form.entry(answer))
            before = form.between

        counts = print_answers(answers, examples, self.file, show)
        # Without an answer the head has not been written.
        sys.stdout.write((form.head if not counts[0] else "") + form.tail)
        return counts


class AnswerTable:
    """Prints a row for each example as it comes: what a task's model answers, and the text.

    With ``top_k`` the likeliest classes.  The text takes the rest of 80 columns.
    """

    def __init__(self, task: Any, top_k: int | None = None) -> None:
        from rich.console import Console

        self._task, self._top_k, self._console = task, top_k, Console()
        self._widths: dict[str, int] = {}

    def show(self, example: Any, answer: dict[str, Any]) -> None:
        """Print the row of one example and its answer's dict."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        from tidybert.tasks.answer import LabelledAnswer, TaskAnswer

        found = TaskAnswer.of(answer)
        cells = found.cells()
        if self._top_k is not None and isinstance(found, LabelledAnswer):
            cells = found.likeliest(self._top_k).score_cells()
        is_first, numbers = not self._widths, ("score", "value")
        if is_first:
            width = min(max(map(len, self._task.names), default=_LONGEST_LABEL), _LONGEST_LABEL)
            self._widths = {
                name: _SCORE_WIDTH if name in numbers else max(width, len(name)) for name in cells
            }
        table = Table(
            box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=is_first, expand=True
        )
        for name, width in self._widths.items():
            justify: Any = "right" if name in numbers else "left"
            table.add_column(Text(name), justify=justify, overflow="fold", width=width)
        table.add_column(Text("text"), overflow="fold", ratio=1)
        text = " ".join(" | ".join(filter(None, self._task.shown(example))).split())
        shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
        table.add_row(*(Text(printable(cell)) for cell in (*cells.values(), shown)))
        self._console.print(table, width=min(self._console.width, MAX_WIDTH))


@command(
    "embed", "pooling", "layers", "combine", "normalize", "dtype", "out", "resume",
    "max_seq_length", "text", "device",
)  # fmt: skip
class Embed(
    flags.ModelArgument, flags.FileArgument, PassageOptions, EmbedderOptions, flags.AnswerFlags,
    OutFlags,
):  # fmt: skip
    """Turn each text, or each token, into a vector by MODEL's encoder, without training it.

    The paper's best features for tagging are --pooling token --layers last4.
    """

    pooling: Literal["mean", "cls", "max", "token"] | None = option(None)  # type: ignore[assignment]
    """Take the mean or max of a text's tokens, cls for [CLS], or token for all. If not set: as
    MODEL says, else mean."""
    dtype: Literal["float32", "float16"] = option("float32")
    """Write the numbers as float32 or float16."""
    out: Path | None = None
    """``--out FILE``: New file ending in .npy, .parquet or .jsonl. If not set: JSON lines on
    stdout."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.files.text_files import read_examples
        from tidybert.inference.forward import as_it_comes
        from tidybert.inference.text_jobs import EmbedJob

        per_token = self.pooling == "token"
        job = job_of(
            EmbedJob,
            self,
            EmbedderOptions,
            {"pooling": None} if per_token else None,
            per_token=per_token,
            dtype=self.dtype,
            **values_of(self, PassageOptions),
        )
        if self.cluster is None:
            read_examples.formats.check(self.file, self.read.format)

        def show(embedder: "Embedder", examples: Iterator[Any]) -> tuple[int, int]:
            from tidybert.inference.answer_files import JsonLines, chunk_size, embedded_chunks

            layout = job.layout(embedder)
            lines, largest = JsonLines(layout), chunk_size(embedder, layout)
            num_texts = num_truncated = 0
            with as_it_comes(examples, self.file) as coming:
                for chunk in embedded_chunks(embedder, coming, layout, first=1, largest=largest):
                    sys.stdout.buffer.write(lines.encode(chunk))
                    sys.stdout.flush()
                    num_texts += len(chunk.examples)
                    num_truncated += sum(chunk.truncated)
            return num_texts, num_truncated

        done = do_job(job, self.file, self, "embedding", show=show)
        if done is not None:
            done.note(self.out, f"; {job.layout(done.opened).dimension} numbers a vector")


@command(
    "index", "out", "text", "id", "replace", "delete", "passages", "dtype", "pooling",
    "max_seq_length", "format", "device",
)  # fmt: skip
class Index(
    flags.ModelArgument, flags.FileArgument, PassageOptions, SentenceOptions, flags.AnswerFlags,
    flags.ClusterFlags,
):  # fmt: skip
    """Keep each text with its words and its vector by MODEL's encoder, for tidybert search.

    The other columns of FILE are kept beside the texts. The same command continues a stopped
    one, and with more texts at the end of FILE it adds those; nothing is computed twice.
    """

    PANEL: ClassVar = "Other options"

    out: Path
    """``--out DIR``: Directory of the index, new or begun with the same texts."""
    dtype: Literal["float32", "float16", "int8"] = option("float32")
    """Store the numbers as float32, float16 (half the size) or int8 (a quarter)."""
    id: str | None = None
    """``--id COLUMN``: Column of the texts' ids. If not set: as the index has it; new: a complete,
    distinct column id, else places from 0."""
    replace: bool = False
    """``--replace``: Put a text of FILE in the place of the one with its id, if they differ, and
    add new ones; others stay."""
    delete: str | None = None
    """``--delete IDS``: Delete the texts with these ids, which commas separate; @FILE has an id
    a line. Takes no MODEL."""
    compact: bool = False
    """``--compact``: Give back the space of deleted and replaced texts. Takes no MODEL."""
    words: bool | None = None
    """``--words/--no-words``: Keep words beside the vectors, also of texts that are there. If not
    set: as the index has it; new: yes."""
    model: str | None = None  # type: ignore[assignment]
    read: ReadOptions

    def run(self) -> None:
        if self.delete is not None or self.compact:
            if self.model is not None or self.replace:
                raise UsageError("--delete and --compact take no MODEL, FILE or --replace")
            self._change()
            return
        if self.model is None:
            raise UsageError("Missing argument 'MODEL'.")
        if self.replace and self.cluster is not None:
            raise UsageError("--replace works on one machine: leave --cluster out")
        from tidybert.checkpoints.model_directory import ModelDirectory
        from tidybert.checkpoints.sentence_reading import read_sentence_form
        from tidybert.files.text_files import read_examples
        from tidybert.search.index_files import IndexJob

        form = read_sentence_form(ModelDirectory.open(self.model, allow_pickle=self.allow_pickle))
        fixed = {"normalize": True, "prompt_name": form.document_prompt_name}
        job = job_of(
            IndexJob,
            self,
            OpeningOptions,
            {**values_of(self, SentenceOptions), **fixed},
            stored=self.dtype,
            id=self.id,
            replacing=self.replace,
            words=self.words,
            **values_of(self, PassageOptions),
        ).joining(self.out)
        if self.cluster is not None:
            from tidybert.cluster.index_job import index_files

            run_on_cluster(partial(index_files, job), self.file, self, "indexing")
        else:
            read_examples.formats.check(self.file, self.read.format)
            job = job.with_ids(self.file, self.out, note)
            done = do_job(job, self.file, self, "indexing")
            assert done is not None
            written = done.written
            if written.num_resumed == written.num_texts:
                count = count_of(written.num_texts, "text")
                note(f"{self.out} has {count} already: nothing to do")
                return
            more = f"; {done.opened.dimension} numbers a vector"
            if written.num_resumed:
                more += f"; {written.num_resumed:,} were there before"
            done.note(self.out, more)
        words = [str(self.out), *flags_of(self, PickleOption, flags.DeviceFlag)]
        note(f"next: tidybert search {shlex.join(words)}")

    def _change(self) -> None:
        """Delete texts, compact the index, or both."""
        from tidybert.files.text_lines import decoded_lines, open_bytes
        from tidybert.search.index_files import compact_index, delete_texts

        if self.delete is not None:
            ids = listed(self.delete)
            if self.delete.startswith("@"):
                path = self.delete[1:]
                with open_bytes(path) as stream:
                    lines = [line.strip() for _, line, _ in decoded_lines(stream, "utf-8", path)]
                    ids = list(filter(None, lines))
            deleted = delete_texts(self.out, ids)
            note(f"{self.out}: {count_of(deleted, 'text')} deleted")
        if self.compact:
            with shown_texts("compacting") as reporter:
                num_dead = compact_index(self.out, reporter)
            note(f"{self.out}: the space of {count_of(num_dead, 'text')} given back")


@command("fill-mask")
class FillMask(flags.AnswerFlags, OutFlags):
    """Fill in each [MASK] of a text with its likeliest words."""

    PANEL: ClassVar = "Other options"

    model: str = DEFAULT_MODEL
    """``MODEL``: A model with a masked-LM head."""
    texts: list[str] | None = None
    """``TEXT``: A text with one or more [MASK]."""
    file: str | None = None
    """``--file FILE``: Texts instead of TEXT, each answered by a JSON line; - reads stdin."""
    top_k: int | None = None
    """Words to show for each [MASK]. If not set: 5, or all of --among."""
    among: str | None = None
    """``--among WORD,WORD…``: Choose from these words only."""
    json: bool = False
    """``--json``: Print one JSON object for each text."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.inference.text_jobs import FillMaskJob

        texts = self.texts or []
        if "[MASK]" in self.model:
            replace(self, model=DEFAULT_MODEL, texts=[self.model, *texts]).run()
            return
        if bool(texts) == (self.file is not None):
            raise UsageError("expected a TEXT with [MASK], or --file with texts")
        among = None if self.among is None else listed(self.among)
        job = job_of(FillMaskJob, self, OpeningOptions, top_k=self.top_k, among=among)
        is_first = True

        def show(answer: dict[str, Any]) -> None:
            nonlocal is_first
            if self.json or self.file is not None:
                print_json(answer)
                return
            if not is_first:
                print_line()
            is_first = False
            _print_filled(answer)

        answer_texts(job, self, "filling in", show, typed=[(text, None) for text in texts])


def _print_filled(answer: dict[str, Any]) -> None:
    masks = answer["masks"]
    for number, mask in enumerate(masks, start=1):
        if number > 1:
            print_line()
        start, several = mask["start"], len(masks) > 1
        title = f"{answer['text'][start : mask['end']]} {number} of {len(masks)}"
        print_table(
            {"word": "", "probability": ".4f", "text": ""},
            [
                (one["word"], one["probability"], _around(one["text"], start))
                for one in mask["words"]
            ],
            title=title if several else None,
        )
    if len(masks) > 1:
        print_line(f"\nall filled in: {answer['filled']}")


def _around(text: str, place: int) -> str:
    """The part of a text around a place, on one line."""
    begin, end = max(0, place - _CONTEXT), place + _CONTEXT
    return f"{'…' * (begin > 0)}{' '.join(text[begin:end].split())}{'…' * (end < len(text))}"


@command("next-sentence")
class NextSentence(PairOptions, flags.AnswerFlags, flags.JsonFlag, OutFlags):
    """Print the probability that sentence B follows sentence A in a text.

    Without MODEL, A needs more than one word. With --json it prints {"follows", "num_tokens",
    "truncated"}.
    """

    PANEL: ClassVar = "Other options"

    model: str = DEFAULT_MODEL
    """``MODEL``: A model with a next-sentence head."""
    first: str | None = None
    """``A``: The first sentence."""
    second: str | None = None
    """``B``: The sentence that may follow."""
    file: str | None = None
    """``--file FILE``: Pairs instead of A and B, each answered by a JSON line; - reads stdin."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.inference.text_jobs import NextSentenceJob

        first, second = self.first, self.second
        if (
            first is not None
            and second is None
            and " " in self.model
            and not Path(self.model).is_dir()
        ):
            replace(self, model=DEFAULT_MODEL, first=self.model, second=first).run()
            return
        if (first is None) != (second is None) or (first is None) == (self.file is None):
            raise UsageError("expected two sentences, A and B, or --file with pairs")

        def show(answer: dict[str, Any]) -> None:
            print_line(f"{answer['follows']:.4f} is the probability that B follows A")

        answer_texts(
            job_of(NextSentenceJob, self, PairOptions),
            self,
            "answering",
            print_json if self.json or self.file is not None else show,
            typed=[] if first is None else [(first, second)],
        )


@command("score")
class Score(flags.AnswerFlags, flags.JsonFlag, OutFlags):
    """Show how likely a model finds texts: each token's probability, and the perplexity.

    A language model predicts each token from those before it. A BERT predicts each from all
    others, masked in turn: that gives a pseudo-perplexity, and the two cannot be compared.
    """

    model: str
    """``MODEL``: A RUN of train-lm, or a BERT with a masked-LM head."""
    file: str
    """``FILE``: Texts; - reads standard input."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.inference.text_jobs import ScoreJob

        answered, num_tokens, total, name = 0, 0, 0.0, ""

        def show(answer: dict[str, Any]) -> None:
            nonlocal answered, num_tokens, total, name
            name = next(each for each in answer if each.endswith("perplexity"))
            answered += 1
            num_tokens += answer["num_tokens"]
            total += answer["num_tokens"] * math.log(answer[name])
            if self.json:
                print_json(answer)
                return
            tokens = [(each["token"], each["probability"]) for each in answer["tokens"]]
            print_table({"token": "", "probability": ".4f"}, tokens)
            print_line(f"{name.replace('_', '-')} {answer[name]:,.2f}\n")

        answer_texts(job_of(ScoreJob, self, OpeningOptions), self, "scoring", show)
        if answered > 1:
            mean = math.exp(total / num_tokens)
            measure = name.replace("_", "-")
            note(f"all {answered:,} texts: {measure} {mean:,.2f}, {num_tokens:,} tokens")
