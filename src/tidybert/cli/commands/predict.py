"""``tidybert predict``: an answer an example, streaming: JSON lines, or a table for people."""

import io
import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from tidybert.checkpoints.example_kinds import TEXT_OR_PAIR
from tidybert.cli import flags
from tidybert.cli.cluster_work import refuse_cluster_flags, run_on_cluster
from tidybert.cli.flags import takes
from tidybert.cli.output import (
    check_format,
    note,
    note_reading,
    note_texts_done,
    print_answers,
    resumable,
)
from tidybert.cli.progress import shown_texts
from tidybert.errors import DataError, UsageError
from tidybert.files.reading import ReadOptions
from tidybert.options import option

if TYPE_CHECKING:
    from tidybert.inference.answer_files import AnswerForm
    from tidybert.inference.predictor import Predictor

MOST_USED: Final = (
    "input", "top_k", "out", "resume", "max_seq_length", "text", "text_pair", "format", "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PredictFlags(flags.TrainedLengthFlag, flags.AnswerFlags, flags.ClusterFlags):
    PANEL: ClassVar = "Other options"

    input: list[str] | None = None
    """``--input TEXT``: Answer this text instead of a file. Give it again for the second text of a
    pair."""
    top_k: int | None = option(None, at_least=1)
    """``--top-k K``: Show only the scores of the K likeliest classes, the likeliest first."""
    json: bool = False
    """``--json``: Print JSON lines on a terminal too."""
    out: Path | None = None
    """``--out FILE``: New file to write. If not set: stdout."""
    resume: bool = False
    """``--resume``: Continue a stopped run of the same --out."""
    official_format: bool = False
    """``--official-format``: Write one JSON object of ids and answers, for SQuAD's script."""


@takes(*MOST_USED, given=PredictFlags, read=ReadOptions)
def predict(
    run: flags.RunArgument,
    file: flags.TextsArgument = "-",
    *,
    given: PredictFlags,
    read: ReadOptions,
) -> None:
    """Answer each text, in the order given, in constant memory.

    A file or another program gets a JSON line for each text: the task's answer (a label, a value,
    a choice, an answer, entities), its scores, num_tokens and truncated. A terminal gets a table.
    """
    from tidybert.storage.part_file import new_file

    if given.cluster is not None:
        _predict_on_cluster(run, file, given, read)
        return
    refuse_cluster_flags(given)
    if given.out is None:
        if given.resume:
            raise UsageError("--resume needs --out: standard output keeps nothing to continue")
        _predict(run, file, given, read)
    else:
        with new_file(given.out, given.resume):
            _predict(run, file, given, read)


def _predict_on_cluster(run: str, file: str, given: PredictFlags, read: ReadOptions) -> None:
    from tidybert.cluster.file_job import run_job
    from tidybert.cluster.file_work import PredictWork

    for flag, is_given in (
        ("--input", given.input),
        ("--json", given.json),
        ("--official-format", given.official_format),
    ):
        if is_given:
            raise UsageError(f"{flag} does not go with --cluster, which writes JSON lines")
    options = {
        name: getattr(given, name)
        for name in ("device", "precision", "max_seq_length", "allow_pickle")
    }
    work = PredictWork(
        model=run,
        options=options,
        read=read,
        skip_bad_rows=given.skip_bad_rows,
        top_k=given.top_k,
    )
    run_on_cluster(partial(run_job, work), file, given.out, given, "answering")


def _predict(run: str, file: str, given: PredictFlags, read: ReadOptions) -> None:
    from tidybert.files.reading import ReadReport
    from tidybert.inference.answer_files import LINES, OFFICIAL, top_lines, write_answers
    from tidybert.inference.predictor import Predictor

    check_format(run, file, read)
    _check_file(run, file, given.input)
    predictor = Predictor(
        run,
        device=given.device,
        precision=cast(Any, given.precision),
        max_seq_length=given.max_seq_length,
        allow_pickle=given.allow_pickle,
    )
    task = predictor.task
    if given.official_format and task.name != "answer":
        raise UsageError(
            f"--official-format is for answers to questions, but {run} was trained to {task.name}"
        )
    _check_top_k(given, predictor)
    form = OFFICIAL if given.official_format else LINES
    if given.top_k is not None:
        form = top_lines(given.top_k)

    def examples(report: ReadReport) -> Iterator[Any]:
        if given.input:
            return iter([_example(predictor, given.input)])
        return task.read(
            file,
            read,
            need_label=False,
            skip_bad_rows=given.skip_bad_rows,
            report=report,
            like=predictor.reading,
        )

    report = ReadReport()
    if given.out is None:
        is_for_people = sys.stdout.isatty() and not (given.json or given.official_format)
        if is_for_people:
            answered, truncated = _print_table(predictor, examples(report), file, given.top_k)
        else:
            answered, truncated = _print(predictor, examples(report), file, form)
    else:
        # A first reading finds bad rows before the work.
        total = sum(1 for _ in examples(report)) if Path(file).is_file() else None
        texts = examples(report if total is None else ReadReport())
        begun = time.monotonic()
        with resumable(given.out, given.resume), shown_texts("answering", total) as advance:
            written = write_answers(
                predictor, texts, given.out, form, resume=given.resume, advance=advance
            )
        answered, truncated = written.num_texts, written.num_truncated
        seconds = time.monotonic() - begun
        note_texts_done(given.out, answered, truncated, seconds, written.num_resumed)
    note_reading(report, truncated, answered, f"examples {task.truncation}")


def _check_file(run: str, file: str, texts: Sequence[str] | None) -> None:
    """Refuse a text in the place of a file, and both; say where answers wait for typed lines."""
    if texts:
        if file != "-":
            raise UsageError(f"--input gives the text, and {file} is a file; give one of them")
        return
    if file != "-" and not os.path.lexists(file):
        answer = f"tidybert predict {shlex.quote(run)} --input {shlex.quote(file)}"
        raise DataError(f"{file}: no such file; to answer a text: {answer}")
    if file == "-" and sys.stdin is not None and sys.stdin.isatty():
        note("reading texts from the keyboard, one a line; Ctrl-D ends them")


def _check_top_k(given: PredictFlags, predictor: "Predictor") -> None:
    from tidybert.tasks.text_task import TextTask

    names = predictor.task.names if isinstance(predictor.task, TextTask) else ()
    if given.top_k is None:
        return
    if not names or given.official_format:
        raise UsageError("--top-k is for models that classify, and their usual output")
    if given.top_k > len(names):
        raise UsageError(f"--top-k is {given.top_k}; expected 1 to {len(names)}, the classes")


def _example(predictor: "Predictor", texts: Sequence[str]) -> Any:
    """The example of the texts that --input gives."""
    kind = predictor.metadata.inputs or predictor.task.inputs or TEXT_OR_PAIR
    least, most = kind.fewest_texts, kind.most_texts
    if len(texts) < least or (most is not None and len(texts) > most):
        times = f"{least} times" if least == most and least > 1 else "once" if most == 1 else "more"
        raise UsageError(
            f"--input is given {len(texts)} times; this model needs it {times}: {kind.asked}"
        )
    (example,) = predictor.task.from_texts(*kind.of_texts(texts))
    return example


def _print_table(
    predictor: "Predictor", examples: Iterator[Any], file: str, top_k: int | None
) -> tuple[int, int]:
    """Print the answers as rows of a table, as they come."""
    from tidybert.cli.answer_table import AnswerTable
    from tidybert.inference.answer_files import likeliest

    table = AnswerTable(predictor.task, top_k)
    waiting: deque[Any] = deque()

    def answers(coming: Iterator[Any]) -> Iterator[dict[str, Any]]:
        for chunk, found in predictor.predict_chunks(coming):
            waiting.extend(chunk)
            yield from found

    def show(answer: dict[str, Any]) -> None:
        if top_k is not None:
            answer = {**answer, "scores": likeliest(answer["scores"], top_k)}
        table.show(waiting.popleft(), answer)

    return print_answers(answers, examples, file, show)


def _print(
    predictor: "Predictor", examples: Iterator[Any], file: str, form: "AnswerForm"
) -> tuple[int, int]:
    """Print the answers as lines as they come; returns the numbers of answers and of texts cut."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")
    between = form.head

    def show(answer: dict[str, Any]) -> None:
        nonlocal between
        stream.write(between + form.entry(answer))
        between = form.between

    counts = print_answers(predictor.predict_stream, examples, file, show)
    # Without an answer the head has not been written.
    stream.write((form.head if not counts[0] else "") + form.tail)
    return counts
