"""``tidybert check``: labelled data before training, and the labels that may be wrong."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.progress import shown_texts
from tidybert.errors import UsageError, in_shell
from tidybert.files.reading import ReadOptions
from tidybert.options import option
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import MAX_WIDTH, clock
from tidybert.tasks.registry import task_flags, task_names
from tidybert.tasks.task_options import TaskOptions

if TYPE_CHECKING:
    from tidybert.checking import Findings
    from tidybert.files.reading import Reading
    from tidybert.tasks.task import AnyTask

MOST_USED: Final = (
    "model", "dev", "out", "unlabelled", "suggest", "text", "label", "max_seq_length", "json",
)  # fmt: skip
SHOWN: Final = 5
SUGGESTED: Final = 50
_LONGEST_TEXT: Final = 200


@dataclass(frozen=True, kw_only=True)
class CheckFlags(flags.ExamplesFlags, flags.JsonFlag):
    model: str = "minilm"
    """``--model MODEL``: Model whose frozen encoder reads the texts."""
    dev: str | None = option(None, panel="Data")
    """``--dev FILE``: Labelled examples to measure on, to compare with the training examples."""
    out: Path | None = None
    """``--out DIR``: New directory for a page to look at and a CSV of labels to correct."""
    unlabelled: str | None = None
    """``--unlabelled FILE``: Texts without labels, of which to suggest the next ones to label."""
    suggest: int | None = option(None, at_least=1)
    """``--suggest N``: Number of texts of --unlabelled to suggest. If not set: 50."""
    max_seq_length: int | None = None
    """Most tokens of a sequence. If not set: 384 for answer, 128 for other tasks."""

    def __post_init__(self) -> None:
        if self.suggest is not None and self.unlabelled is None:
            raise UsageError("--suggest needs texts to choose from: give --unlabelled FILE")


@takes(*MOST_USED, given=CheckFlags, read=ReadOptions, options=task_flags())
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled examples.")],
    task: Annotated[
        str, typer.Argument(metavar="TASK", help=f"One of {', '.join(task_names())}.")
    ] = "classify",
    *,
    given: CheckFlags,
    read: ReadOptions,
    options: TaskOptions,
) -> None:
    """Check labelled data before training, and find labels that may be wrong.

    tidybert makes the checks of finetune. For texts it also looks for near-duplicates, and for
    classes it fits probes on the frozen encoder to find labels that may be wrong.
    """
    if given.out is None:
        _check(file, task, given, read, options)
        return
    with flags.new_directory(given.out):
        _check(file, task, given, read, options)


def _check(
    file: str, task: str, given: CheckFlags, read: ReadOptions, options: TaskOptions
) -> None:
    from tidybert.checking import check_examples
    from tidybert.files.reading import Reading, ReadReport
    from tidybert.tasks.labelled_examples import read_all
    from tidybert.tasks.registry import task_class

    chosen = task_class(task, options)
    report = ReadReport()
    examples = read_all(
        chosen,
        file,
        read,
        skip_bad_rows=given.skip_bad_rows,
        report=report,
        reporter=Reporter(note=note, spell=str),
    )
    job = chosen.from_examples(examples, options)
    dev = pool = None
    if given.dev is not None:
        dev = read_all(
            job,
            given.dev,
            read,
            skip_bad_rows=given.skip_bad_rows,
            reporter=Reporter(note=note, spell=str),
        )
    if given.unlabelled is not None:
        pool = _read_pool(job, given.unlabelled, given.skip_bad_rows, Reading.of(read, report))
    begun = time.monotonic()
    found = check_examples(
        job,
        given.model,
        examples,
        dev,
        pool=pool,
        suggest=given.suggest or SUGGESTED,
        max_seq_length=given.max_seq_length,
        device=given.device,
        allow_pickle=given.allow_pickle,
        progress=shown_texts,
    )
    seconds = time.monotonic() - begun
    contents = found.contents(data=file, dev=given.dev, model=given.model)
    if given.json:
        print_json(contents)
    else:
        _print(found)
    found.report.raise_on_errors()
    count = sum(len(each) for each in (examples, dev or (), pool or ()))
    note(f"{count:,} examples in {clock(seconds)}: {1000 * seconds / count:.1f} seconds a thousand")
    if given.out is None:
        if not given.json:
            note("--out DIR writes all findings: a page, and CSVs to fill in")
    else:
        from tidybert.reporting.report_page import write_check

        note(f"page: {write_check(contents, given.out)}")
        if found.labels is not None:
            corrections = str(given.out / "corrections.csv")
            words = ["tidybert", "finetune", task, given.model, "--train", file, *read.flags()]
            words += [] if given.dev is None else ["--dev", given.dev]
            words += ["--corrections", corrections, "--out", "RUN"]
            note(f"fill in the column correction of {corrections}; next: {shlex.join(words)}")


def _read_pool(job: "AnyTask", path: str, skip_bad_rows: bool, like: "Reading") -> list[Any]:
    """Texts without labels, from a file that is mostly laid out as the labelled one."""
    from tidybert.files.reading import ReadReport

    report = ReadReport()
    found = list(
        job.read(path, need_label=False, skip_bad_rows=skip_bad_rows, report=report, like=like)
    )
    note(*report.lines(str))
    return found


def _print(found: "Findings") -> None:
    """Print the findings for people, the first of each kind."""
    for line in replace(found.report, errors=[]).lines(in_shell):
        print_line(line)
    if found.not_looked_for:
        print_line(found.not_looked_for)
    if found.labels is not None:
        _print_labels(found.labels)
    for pairs, title in (
        (found.contradicting, "near-duplicates with different labels"),
        (found.leaked, "dev texts like a training text"),
    ):
        if pairs is None:
            continue
        _print_head(title, len(pairs))
        if pairs:
            rows = [
                (f"{one['row']:,}", one["label"], _beginning(one))
                for pair in pairs[:SHOWN]
                for one in pair["texts"]
            ]
            print_table({"row": "right", "label": "left", "text": "left"}, rows)
    if found.suggestions is not None:
        _print_head("texts to label next", len(found.suggestions))
        rows = [
            (f"{one['row']:,}", " or ".join(one["likeliest"]), _beginning(one))
            for one in found.suggestions[:SHOWN]
        ]
        print_table({"row": "right", "likeliest": "left", "text": "left"}, rows)
    if found.passed_over is not None and any(found.passed_over.values()):
        labelled, repeated = found.passed_over["labelled"], found.passed_over["repeated"]
        print_line(f"not suggested: {labelled:,} with a label in FILE, {repeated:,} repeated")


def _print_labels(labels: Mapping[str, Any]) -> None:
    suspected: Sequence[Mapping[str, Any]] = labels["suspected"]
    _print_head("labels that may be wrong", len(suspected))
    if not labels["reliable"]:
        print_line(
            f"the probe agrees with {labels['agreement']:.1%} of the labels; many of these are its "
            "own mistakes"
        )
    if suspected:
        print_table(
            {"row": "right", "label": "left", "probe says": "left", "text": "left"},
            [
                (f"{one['row']:,}", one["label"], one["suggested"], _beginning(one))
                for one in suspected[:SHOWN]
            ],
        )
    if labels["not_judged"]:
        names = ", ".join(labels["not_judged"])
        print_line(fill(f"classes of fewer than five texts are not judged: {names}", MAX_WIDTH))
    if labels["mixed_up"]:
        _print_head("classes that are mixed up", len(labels["mixed_up"]))
        print_table(
            {"class": "left", "other class": "left", "texts": "right", "share": "right"},
            [
                (*each["classes"], f"{each['count']:,}", f"{each['share']:.1%}")
                for each in labels["mixed_up"][:SHOWN]
            ],
        )


def _print_head(title: str, count: int) -> None:
    more = f", the first {SHOWN}" if count > SHOWN else ""
    print_line()
    print_line(f"{title}: {count:,}{more}")


def _beginning(one: Mapping[str, Any]) -> str:
    """The beginning of a text or pair, on one line."""
    parts = [one["text"], *([] if one["text_pair"] is None else ["/", one["text_pair"]])]
    text = " ".join(" ".join(parts).split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
