"""Commands about labelled and unlabelled texts: ``check``, ``duplicates``, ``mine``, ``search``."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.commands.texts import note_reading, resumable
from tidybert.cli.flags import command
from tidybert.cli.output import note, print_json, print_line, print_part, print_table
from tidybert.cli.progress import shown_texts
from tidybert.errors import DataError, UsageError, in_shell
from tidybert.files.reading import ReadOptions
from tidybert.files.rows import count_of
from tidybert.inference.options import OpeningOptions
from tidybert.options import flags_of, option, values_of
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import MAX_WIDTH, clock
from tidybert.tasks.registry import task_flags
from tidybert.tasks.task_options import TaskOptions
from tidybert.training.training_arguments import PickleOption

if TYPE_CHECKING:
    from tidybert.checking import Findings

# Of each kind of finding, and characters of a text or of a column.
_SHOWN: Final = 5
_LONGEST_TEXT: Final = 200


@command(
    "check", "model", "dev", "out", "text", "label", "max_seq_length", "json",
)  # fmt: skip
class Check(flags.ExamplesFlags, flags.JsonFlag):
    """Check labelled data before training, and find labels that may be wrong.

    tidybert makes the checks of finetune. For texts it also looks for near-duplicates, and for
    classes it fits probes on the frozen encoder to find labels that may be wrong.
    """

    file: str
    """``FILE``: Labelled examples."""
    task: str = "classify"
    """``TASK``: One of {tasks}."""
    model: str = DEFAULT_MODEL
    """``--model MODEL``: Model whose frozen encoder reads the texts."""
    dev: str | None = option(None, panel="Data")
    """``--dev FILE``: Labelled examples to measure on, to compare with the training examples."""
    out: Path | None = None
    """``--out DIR``: New directory for a page to look at and a CSV of labels to correct."""
    max_seq_length: int | None = None
    """Most tokens of a sequence. If not set: 384 for answer, 128 for other tasks."""
    read: ReadOptions
    options: Annotated[TaskOptions, task_flags()]

    def run(self) -> None:
        with nullcontext() if self.out is None else flags.new_directory(self.out):
            self._check()

    def _check(self) -> None:
        from tidybert.checking import check_examples
        from tidybert.files.reading import ReadReport
        from tidybert.tasks.labelled_examples import read_all
        from tidybert.tasks.registry import task_class

        reporter, report, skip = Reporter(note, str), ReadReport(), self.skip_bad_rows
        rows: dict[str, Any] = {"skip_bad_rows": skip, "reporter": reporter}
        chosen = task_class(self.task, self.options)
        examples = read_all(chosen, self.file, self.read, report=report, **rows)
        job = chosen.from_examples(examples, self.options)
        dev = None if self.dev is None else read_all(job, self.dev, self.read, **rows)
        begun = time.monotonic()
        findings = check_examples(
            job,
            self.model,
            examples,
            dev,
            max_seq_length=self.max_seq_length,
            device=self.device,
            allow_pickle=self.allow_pickle,
            progress=shown_texts,
        )
        took, total = time.monotonic() - begun, sum(map(len, (examples, dev or ())))
        contents = findings.contents(data=self.file, dev=self.dev, model=self.model)
        if self.json:
            print_json(contents)
        else:
            _print(findings)
        findings.report.raise_on_errors()
        note(f"{count_of(total, 'example')} in {clock(took)}")
        if self.out is None:
            if not self.json:
                note("--out DIR writes all findings: a page, and CSVs to fill in")
            return
        from tidybert.reporting.report_page import write_check

        note(f"page: {write_check(contents, self.out)}")
        if findings.labels is not None:
            file = str(self.out / "corrections.csv")
            words = ["tidybert", "finetune", self.task, self.model, "--train", self.file]
            words += [*flags_of(self.read, ReadOptions), *flags_of(self.options, task_flags())]
            words += flags_of(self, flags.ExamplesFlags)
            for flag, value in (("--dev", self.dev), ("--max-seq-length", self.max_seq_length)):
                words += [] if value is None else [flag, str(value)]
            is_empty = not (findings.labels["suspected"] or findings.contradicting)
            words += ["--out", "RUN"] if is_empty else ["--corrections", file, "--out", "RUN"]
            todo = f"fill in the column correction of {file}"
            note(f"{'nothing to correct' if is_empty else todo}; next: {shlex.join(words)}")


def _print(found: "Findings") -> None:
    """Print the findings for people, the first of each kind."""
    for line in replace(found.report, errors=[]).lines(in_shell):
        print_line(line)
    if found.not_looked_for:
        print_line(found.not_looked_for)
    if (labels := found.labels) is not None:
        warning = f"the probe agrees with {labels['agreement']:.1%} of the labels"
        if labels["suspected"]:
            warning += "; many of these are its own mistakes"
        warning = "" if labels["reliable"] else warning
        columns = {"row": ",", "label": "", "probe says": "", "text": ""}
        _show("labels that may be wrong", labels["suspected"], columns, warning)
        if labels["not_judged"]:
            few, names = "classes of fewer than five different texts", labels["not_judged"]
            print_line(fill(f"{few} are not judged: {', '.join(names)}", MAX_WIDTH))
        if labels["mixed_up"]:
            columns = {"class": "", "other class": "", "texts": ",", "share": ".1%"}
            _show("classes that are mixed up", labels["mixed_up"], columns)
    columns = {"row": ",", "label": "", "text": ""}
    if found.contradicting is not None:
        _show("near-duplicates with different labels", found.contradicting, columns)
    if found.leaked is not None:
        _show("dev texts like a training text", found.leaked, columns)


# The cell of a finding under each heading.
_CELLS: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "row": lambda one: one["row"],
    "label": lambda one: one["label"],
    "probe says": lambda one: one["suggested"],
    "class": lambda one: one["classes"][0],
    "other class": lambda one: one["classes"][1],
    "texts": lambda one: one["count"],
    "share": lambda one: one["share"],
    "text": lambda one: _beginning(one),
}


def _show(
    title: str, found: Sequence[Mapping[str, Any]], columns: Mapping[str, str], warning: str = ""
) -> None:
    """Print how many findings there are, and the first; a pair is its texts."""
    more = f", the first {_SHOWN}" if len(found) > _SHOWN else ""
    print_line(f"\n{title}: {len(found):,}{more}")
    if warning:
        print_line(warning)
    if rows := [one for each in found[:_SHOWN] for one in each.get("texts", [each])]:
        print_table(columns, [[_CELLS[name](one) for name in columns] for one in rows])


def _beginning(one: Mapping[str, Any]) -> str:
    """The beginning of a text or pair, on one line."""
    parts = [one["text"], *([] if one["text_pair"] is None else ["/", one["text_pair"]])]
    text = " ".join(" ".join(parts).split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


@command("duplicates", "threshold", "model", "out", "text", "format", "device")
class Duplicates(flags.FileArgument, flags.ExamplesFlags):
    """Find groups of texts that say almost the same, by the cosine of their vectors.

    The CSV has a row for each text of a group: group, row, text, nearest (the row of the text that
    is most like it) and cosine. Texts that are alike to one text are in one group.
    """

    PANEL: ClassVar = "Other options"

    model: str = DEFAULT_MODEL
    """``--model MODEL``: Model whose encoder reads the texts."""
    threshold: float = option(0.9, at_least=-1.0, at_most=1.0)
    """Cosine from which two texts are near-duplicates."""
    out: Path | None = None
    """``--out FILE``: CSV to write. If not set: stdout."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.data.corrections import csv_text
        from tidybert.data.features import example_features
        from tidybert.files.reading import ReadReport
        from tidybert.files.text_files import read_examples
        from tidybert.inference import near_duplicates
        from tidybert.inference.embedding import Embedder
        from tidybert.storage.atomic_files import atomic_write_text

        report = ReadReport()
        rows: Any = {"need_label": False, "skip_bad_rows": self.skip_bad_rows, "report": report}
        examples = list(read_examples(self.file, self.read, **rows))
        if any(one.text_pair is not None for one in examples):
            raise UsageError(
                f"{self.file} has pairs of texts: name the column to compare with --text"
            )
        embedder = Embedder(self.model, device=self.device, allow_pickle=self.allow_pickle)
        begun = time.monotonic()
        features = example_features(examples, embedder.tokenizer, embedder.max_seq_length)
        with shown_texts("encoding", len(examples)) as reporter:
            vectors = embedder.vectors(features, reporter)
        with shown_texts("comparing", len(examples)) as reporter:
            directions = near_duplicates.directions(vectors, vectors.mean(axis=0))
            found = near_duplicates.group_alike(directions, self.threshold, reporter)
        grouped = near_duplicates.duplicate_rows(examples, found)
        content = csv_text(grouped, near_duplicates.COLUMNS)
        if self.out is None:
            print_part(content)
        else:
            atomic_write_text(self.out, content)
        cut = f"texts were cut to {embedder.max_seq_length} tokens"
        note_reading(report, sum(one.truncated for one in features), len(examples), cut, embedder)
        groups = count_of(len({row["group"] for row in grouped}), "group")
        note(
            f"{len(grouped):,} of {len(examples):,} texts are in {groups}; "
            f"{clock(time.monotonic() - begun)}"
        )


@command("topics", "out", "topics", "model", "keywords", "text", "format", "json")
class TopicsCommand(flags.FileArgument, flags.ExamplesFlags, flags.JsonFlag):
    """Find what topics are in texts without labels; draw a page, and write CSVs to go on with.

    The same command with another --topics cuts the same tree and reads no text a second time.
    """

    PANEL: ClassVar = "Other options"

    model: str = DEFAULT_MODEL
    """``--model MODEL``: Model whose encoder reads the texts."""
    out: Path
    """``--out DIR``: Directory for topics.html, topics.csv and assigned.csv; of the same texts, it
    may be there already."""
    topics: int | None = option(None, at_least=2)
    """``--topics N``: Number of topics. If not set: as many as the texts show."""
    keywords: int | None = option(None, at_least=1)
    """``--keywords N``: Also write into assigned.csv the N words that say what a text is about."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.data.features import example_features
        from tidybert.files.reading import ReadReport
        from tidybert.files.text_files import read_examples
        from tidybert.inference.embedding import Embedder
        from tidybert.storage.output_lock import output_lock
        from tidybert.unlabelled.topic_tree import TopicTree
        from tidybert.unlabelled.topics import Topics, check_topics_directory, kept_tree

        with output_lock(self.out):
            check_topics_directory(self.out)
            report = ReadReport()
            rows: Any = {"need_label": False, "skip_bad_rows": self.skip_bad_rows}
            reader = read_examples.with_details(need_text=True)
            examples = list(reader(self.file, self.read, report=report, **rows))
            if any(one.text_pair is not None for one in examples):
                raise UsageError(f"{self.file} has pairs of texts: name one column with --text")
            embedder = Embedder(self.model, device=self.device, allow_pickle=self.allow_pickle)
            begun, cut = time.monotonic(), 0
            texts, lines = zip(*((one.text, one.row) for one in examples), strict=True)
            tree = kept_tree(self.out, embedder, texts)
            if tree is None:
                features = example_features(examples, embedder.tokenizer, embedder.max_seq_length)
                cut = sum(one.truncated for one in features)
                with shown_texts("encoding", len(texts)) as reporter:
                    vectors = embedder.vectors(features, reporter)
                with shown_texts("comparing", len(texts)) as reporter:
                    tree = TopicTree.of(vectors, reporter)
            found = Topics(embedder, texts, lines, tree, self.topics)
            keywords: list[list[str]] = []
            if self.keywords is not None:
                with shown_texts("keywords") as reporter:
                    keywords = found.keywords(self.keywords, reporter)
            page = found.save(self.out, self.file, keywords)
        if self.json:
            print_json(found.contents(self.file))
        else:
            columns = {"topic": ",", "texts": ",", "name": "", "words": ""}
            print_table(
                columns,
                [
                    (one["topic"], one["size"], one["name"], ", ".join(one["words"]))
                    for one in found.topics
                ],
            )
        were_cut = f"texts were cut to {embedder.max_seq_length} tokens"
        note_reading(report, cut, len(texts), were_cut, embedder)
        note(f"{len(texts):,} texts, {found.number:,} topics; {clock(time.monotonic() - begun)}")
        named = str(self.out / "topics.csv")
        words = ["tidybert", "predict", self.model, self.file, "--descriptions", named]
        words += [*flags_of(self.read, ReadOptions), *flags_of(self, flags.ExamplesFlags)]
        note(f"page: {page}", f"name the topics in {named}; next: {shlex.join(words)}")


@command(
    "mine", "queries", "texts", "out", "num_negatives", "first_rank", "last_rank", "margin",
    "resume",
)  # fmt: skip
class Mine(flags.ModelArgument, flags.AnswerFlags):
    """Find hard negatives: for each pair the texts nearest to the first that do not belong to it.

    The flags about columns are those of --queries.
    """

    PANEL: ClassVar = "Other options"

    queries: str
    """``--queries FILE``: Pairs of texts that belong together, as finetune embed takes them."""
    texts: str | None = None
    """``--texts FILE``: Texts to find negatives among. If not set: the second ones of --queries."""
    out: Path
    """``--out FILE``: New file of JSON lines with anchor, positive and negatives."""
    num_negatives: int = option(4, at_least=1)
    """``--num-negatives N``: Negatives of each query at most, the nearest first."""
    first_rank: int = option(1, at_least=1)
    """``--first-rank N``: Pass over texts before this rank among those that do not belong to the
    query."""
    last_rank: int = option(100, at_least=1)
    """``--last-rank N``: Pass over texts after this rank."""
    margin: float = 0.05
    """Skip a text unless its cosine is below the positive's by this fraction; a nearer one may
    answer the query too."""
    max_seq_length: int | None = None
    """Most tokens of a text; a longer one is cut. If not set: as MODEL says."""
    resume: bool = False
    """``--resume``: Go on with a stopped run of the same --out."""
    read: ReadOptions

    def run(self) -> None:
        from tidybert.files.text_files import read_examples
        from tidybert.inference.embedding import Embedder
        from tidybert.inference.loading import OpenedModel
        from tidybert.search.hard_negatives import HardNegatives, MiningOptions
        from tidybert.storage.part_file import new_file

        ranks = (self.num_negatives, self.first_rank, self.last_rank, self.margin)
        options, out, skip = MiningOptions(*ranks), self.out, self.skip_bad_rows
        with new_file(out, self.resume):
            pairs = self._pairs()
            texts = [one.texts[1] for one in pairs]
            if self.texts is not None:
                found = read_examples(self.texts, None, need_label=False, skip_bad_rows=skip)
                texts = [one.text for one in found]
            opened = OpenedModel(self.model, **values_of(self, OpeningOptions))
            form = opened.form
            embedder = Embedder.of(
                opened,
                normalize=True,
                prompt_name=form.document_prompt_name,
                max_seq_length=self.max_seq_length,
            )
            query_prompt = form.prompt(name=form.query_prompt_name)
            negatives = HardNegatives(embedder, query_prompt, texts, pairs, options)
            with resumable(out, self.resume), shown_texts("mining", len(pairs)) as reporter:
                written = negatives.write(pairs, out, resume=self.resume, reporter=reporter)
        count = written.num_texts - written.num_resumed
        note(
            f"{count_of(count, 'pair')}, {count_of(len(negatives.texts), 'different text')}; "
            f"{negatives.num_short:,} have fewer than {options.num_negatives} negatives, and "
            f"{negatives.num_without:,} have none"
        )
        words = [self.model, "--train", str(out), *flags_of(self, PickleOption, flags.DeviceFlag)]
        note(f"next: tidybert finetune embed {shlex.join(words)} --dev FILE --out RUN")

    def _pairs(self) -> list[Any]:
        """The pairs of the file; DataError for single texts."""
        from tidybert.files.reading import ReadReport
        from tidybert.tasks.vectors.vector_examples import read_vectors

        report, pairs = ReadReport(), []
        rows: Any = {"need_label": False, "skip_bad_rows": self.skip_bad_rows, "report": report}
        for one in read_vectors(self.queries, self.read, **rows):
            if len(one.texts) < 2:
                raise DataError(
                    f"{self.queries}:{one.row}: a single text; give pairs that belong together "
                    "(columns anchor and positive, or --text and --text-pair)"
                )
            pairs.append(one)
        note(*report.lines(in_shell))
        return pairs


@command(
    "search", "top_k", "where", "words", "meaning", "json", "rerank", "candidates", "model",
    "device",
)  # fmt: skip
class Search(flags.DeviceFlag, flags.PickleFlag, flags.JsonFlag):
    """Show the texts of an index that are nearest to a query, by their words and their meaning.

    --json prints one JSON object for each query: query, and hits with score (the cosine), row,
    text, columns and the id. Searches by words have rank_words, rank_meaning and fused beside.
    """

    PANEL: ClassVar = "Other options"

    directory: str
    """``DIR``: An index that tidybert index wrote."""
    query: str | None = None
    """``QUERY``: What to search for. If not set: each line of standard input is a query."""
    top_k: int | None = option(None, at_least=1)
    """``--top-k K``: Show the K nearest texts. If not set: 10."""
    rerank: str | None = None
    """``--rerank RUN``: Order the nearest texts again by a RUN of regress, or of classify with two
    classes, over pairs of query and text."""
    candidates: int | None = option(None, at_least=1, needs="rerank")
    """``--candidates N``: How many of the nearest texts --rerank reads. If not set: 50."""
    where: list[str] | None = None
    """``--where COLUMN=VALUE``: Search only in texts with this value of a column; also !=, <, <=,
    > and >=. Several must all hold."""
    words: bool = False
    """``--words``: Rank by words alone (BM25): only texts with a word of the query are found."""
    meaning: bool = False
    """``--meaning``: Rank by meaning alone: the cosine of the vectors."""
    exact: bool = False
    """``--exact``: Compare the query with every vector, also in an index of many."""
    model: str | None = None
    """``--model MODEL``: Where the encoder of the index is now. If not set: where it was."""

    def run(self) -> None:
        from tidybert.search.index import CANDIDATES, Index, check_queries

        if self.query is not None:
            check_queries([self.query])
        if self.words and self.meaning:
            raise UsageError("--words and --meaning: give one of them; without, both count")
        opening: Any = {"device": self.device, "allow_pickle": self.allow_pickle}
        index = Index.open(self.directory, self.model, **opening)
        index.count(self.top_k)
        by: Any = "words" if self.words else "meaning" if self.meaning else None
        index.ranking(by)
        reranker = None
        if self.rerank is not None:
            from tidybert.inference.predictor import CrossEncoder

            reranker = CrossEncoder.open(self.rerank, **opening)
        how: Any = {"candidates": CANDIDATES if self.candidates is None else self.candidates}
        how |= {"where": self.where or None, "exact": self.exact, "by": by}
        for each in [self.query] if self.query is not None else _queries(len(index)):
            hits = index.search(each, self.top_k, rerank=reranker, **how)
            if self.json:
                print_json({"query": each, "hits": [hit.to_dict() for hit in hits]})
            else:
                for rank, hit in enumerate(hits, start=1):
                    score = hit.score if hit.rerank_score is None else hit.rerank_score
                    print_line(f"{rank:>3}  {score:.3f}  {hit.text}")
                    if hit.fused is not None:
                        places = (hit.rank_words or "-", hit.rank_meaning or "-")
                        print_line("            by words {}, by meaning {}".format(*places))
                    for name, value in hit.columns.items():
                        print_line(f"            {name}: {value!s:.{_LONGEST_TEXT}}")
            sys.stdout.flush()
            if cut := sum(hit.rerank_truncated for hit in hits):
                note(f"{self.rerank} read only the start of {cut:,} of these texts")


def _queries(num_texts: int) -> Iterator[str]:
    """The lines of standard input; on a terminal it asks for each, and an empty one asks again."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        note(f"{count_of(num_texts, 'text')}; type a query, Ctrl-D ends")
    for number in count(1):
        if is_terminal:
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\r\n")
        elif not is_terminal:
            raise DataError(f"line {number} of standard input is empty: give a query in each line")
