"""``tidybert predict``: an answer an example, streaming: JSON lines, or a table for people."""

import io
import os
import shlex
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidybert.checkpoints.example_kinds import TEXT_OR_PAIR
from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_format, note, print_answers
from tidybert.cli.text_job import run_text_job
from tidybert.errors import DataError, UsageError
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import (
    NamedClassesOptions,
    PredictorOptions,
    TrainedLengthOption,
)
from tidybert.options import option, values_of
from tidybert.tasks.task_options import ScoreOption

if TYPE_CHECKING:
    from tidybert.inference.answer_files import AnswerForm
    from tidybert.inference.predictor import Predictor

MOST_USED: Final = (
    "input", "labels", "top_k", "out", "resume", "max_seq_length", "text", "text_pair", "format",
    "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PredictFlags(
    ScoreOption, TrainedLengthOption, NamedClassesOptions, flags.AnswerFlags, flags.OutFlags
):
    PANEL: ClassVar = "Other options"

    input: list[str] | None = None
    """``--input TEXT``: Answer this text instead of a file. Give it again for the second text of a
    pair."""
    top_k: int | None = option(None, at_least=1)
    """``--top-k K``: Show only the scores of the K likeliest classes, the likeliest first."""
    json: bool = False
    """``--json``: Print JSON lines on a terminal too."""
    out: Path | None = None
    """``--out FILE``: New file: JSON lines, or in .csv or .xlsx the columns of the input with the
    answers beside. If not set: stdout."""
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
    from tidybert.inference.text_jobs import PredictJob
    from tidybert.inference.zero_shot import read_descriptions

    if given.cluster is not None:
        for flag, is_given in (
            ("--input", given.input),
            ("--json", given.json),
            ("--official-format", given.official_format),
        ):
            if is_given:
                raise UsageError(f"{flag} does not go with --cluster, which writes JSON lines")
    else:
        check_format(run, file, read)
        _check_file(run, file, given.input)
    job = PredictJob(
        model=run,
        options=values_of(given, PredictorOptions),
        read=read,
        skip_bad_rows=given.skip_bad_rows,
        labels=None if given.labels is None else given.labels.split(","),
        descriptions=None if given.descriptions is None else read_descriptions(given.descriptions),
        top_k=given.top_k,
        official=given.official_format,
        out=None if given.cluster is not None else given.out,
    )
    texts = given.input

    def show(predictor: "Predictor", examples: Iterator[Any]) -> tuple[int, int]:
        if sys.stdout.isatty() and not (given.json or given.official_format):
            return _print_table(predictor, examples, file, given.top_k)
        return _print(predictor, examples, file, job.form)

    done = run_text_job(
        job,
        file,
        given,
        "answering",
        examples=(lambda predictor: iter([_example(predictor, texts)])) if texts else None,
        show=show,
    )
    if done is not None and given.out is not None:
        done.note(given.out)


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

    table = AnswerTable(predictor.task, top_k)
    waiting: deque[Any] = deque()

    def answers(coming: Iterator[Any]) -> Iterator[dict[str, Any]]:
        for chunk, found in predictor.predict_chunks(coming):
            waiting.extend(chunk)
            yield from found

    def show(answer: dict[str, Any]) -> None:
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
