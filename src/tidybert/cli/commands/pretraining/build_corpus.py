"""``tidybert build-corpus``: files of text in, token shards for pre-training out."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.cli.progress import shown_progress, shown_texts
from tidybert.cli.text_job import note_begin, refuse_cluster_flags
from tidybert.corpus.documents import CorpusOptions
from tidybert.errors import UsageError
from tidybert.options import option
from tidybert.system.cores import available_cores

if TYPE_CHECKING:
    from tidybert.corpus.building import Built
    from tidybert.corpus.token_shards import Manifest

# In a smaller corpus, starting other processes costs more time than they save.
SMALL_CORPUS_BYTES: Final = 4_000_000
LEAST_HELD_OUT: Final = 8
"""Fewer documents measure nothing."""


@dataclass(frozen=True, kw_only=True)
class BuildCorpusFlags(flags.HeldOutFlag, flags.JsonFlag, flags.ClusterFlags):
    vocab: str
    """``--vocab MODEL``: Model whose vocabulary is used."""
    out: Path
    """``--out DIR``: Directory to write, or to continue."""
    near_duplicates: float | None = None
    """Leave out documents this like an earlier one (0 to 1, such as 0.8), by MinHash."""
    exclude: list[str] | None = None
    """``--exclude FILE``: Leave out documents that share thirteen words in a row with this
    evaluation file. Give it again for more."""
    workers: int | None = option(None, at_least=0)
    """``--workers N``: Processes that tokenise. If not set: one for each core."""


@takes(given=BuildCorpusFlags, read=CorpusOptions)
def build_corpus(
    corpus: flags.CorpusArgument, *, given: BuildCorpusFlags, read: CorpusOptions
) -> None:
    """Tokenise a corpus once, into shards that training maps into memory.

    tidybert leaves out documents whose text came before, and counts them. The same command goes
    on with a build that was stopped, and ends with the same bytes.
    """
    from tidybert.corpus.building import build_corpus as build
    from tidybert.corpus.documents import CorpusReport, corpus_files
    from tidybert.corpus.screening import RUN, Screening, read_evaluation
    from tidybert.corpus.token_shards import is_corpus
    from tidybert.tokenization import BertTokenizer

    if given.cluster is not None:
        _build_on_cluster(corpus, given, read)
        return
    refuse_cluster_flags(given)
    out, workers = given.out, given.workers
    sources = corpus_files(corpus)
    if workers is None:
        size = sum(source.num_bytes for source in sources)
        workers = available_cores() if size > SMALL_CORPUS_BYTES else 0
    tokenizer = BertTokenizer.from_pretrained(given.vocab)
    evaluation = read_evaluation(given.exclude) if given.exclude else None
    screening = Screening(given.near_duplicates, evaluation)
    if evaluation is not None and evaluation.num_short:
        note(f"{evaluation.num_short:,} texts of --exclude have fewer than {RUN} words: not sought")
    was_finished = is_corpus(out)
    report = CorpusReport()
    with _shown() as progress:
        manifest = build(
            sources,
            tokenizer,
            out,
            options=read,
            held_out=given.held_out,
            least_held_out=LEAST_HELD_OUT,
            screening=screening,
            num_workers=workers,
            report=report,
            progress=progress,
        )
    note(*report.lines(str))
    _note_held_out(manifest, given.held_out)
    if was_finished:
        note(f"the corpus in {out} is finished: there is nothing to do")
    _show(manifest, out, as_json=given.json)


def _note_held_out(manifest: "Manifest", asked: float) -> None:
    """Say where more documents are held out than the share asked for."""
    counts = {
        part: sum(each.num_documents for each in shards) for part, shards in manifest.parts.items()
    }
    if asked and counts["held-out"] == LEAST_HELD_OUT > 2 * asked * sum(counts.values()):
        note(
            f"{LEAST_HELD_OUT} documents are held out, the fewest that tidybert measures on; "
            f"--held-out {asked:g} would have kept fewer apart"
        )


def _build_on_cluster(corpus: list[str], given: BuildCorpusFlags, read: CorpusOptions) -> None:
    from tidybert.cluster.corpus_job import CorpusFileJob, build_corpus_on_cluster
    from tidybert.corpus.documents import CorpusReport

    assert given.cluster is not None
    if given.on_error != "stop":
        raise UsageError("--on-error continue: a corpus has all its files, or is not built")
    if given.workers is not None:
        raise UsageError("--workers is for one machine: give --cluster-workers")
    if given.near_duplicates is not None or given.exclude:
        raise UsageError("--near-duplicates and --exclude are for one machine: leave out --cluster")
    report = CorpusReport()
    with ExitStack() as stack, shown_texts("tokenising") as reporter:
        shown: list[Callable[[Built], None]] = []

        def progress(built: "Built") -> None:
            # The parts are there, and the shards begin.
            if not shown:
                shown.append(stack.enter_context(_shown()))
            shown[0](built)

        manifest = build_corpus_on_cluster(
            corpus,
            CorpusFileJob(model=given.vocab, corpus=read),
            given.out,
            cluster=given.cluster,
            num_workers=given.cluster_workers,
            held_out=given.held_out,
            least_held_out=LEAST_HELD_OUT,
            report=report,
            reporter=replace(reporter, begun=note_begin),
            progress=progress,
        )
    note(*report.lines(str))
    _note_held_out(manifest, given.held_out)
    _show(manifest, given.out, as_json=given.json)


def _show(manifest: "Manifest", out: Path, *, as_json: bool) -> None:
    counts = manifest.counts
    parts = {
        part: {
            "documents": sum(shard.num_documents for shard in shards),
            "sentences": sum(shard.num_sentences for shard in shards),
            "tokens": sum(shard.num_tokens for shard in shards),
            "shards": len(shards),
        }
        for part, shards in manifest.parts.items()
    }
    if as_json:
        print_json({"corpus": str(out), "counts": counts, "parts": parts})
        return
    print_table(
        {"part": "left", **dict.fromkeys(next(iter(parts.values())), "right")},
        [(part, *(f"{number:,}" for number in row.values())) for part, row in parts.items()],
    )
    print_line(
        f"{counts['documents']:,} documents read: {counts['duplicates']:,} had come before, "
        f"{counts['without_tokens']:,} had no token"
    )
    # A corpus of an earlier version has no such counts.
    if counts.get("near_duplicates"):
        print_line(f"{counts['near_duplicates']:,} were like one before, and are left out")
    if counts.get("excluded"):
        from tidybert.corpus.building import EXCLUDED_FILE

        print_line(
            f"{counts['excluded']:,} quote evaluation data, and are left out: {out / EXCLUDED_FILE}"
        )
    note(f"next: tidybert inspect {out}")


@contextmanager
def _shown() -> "Iterator[Callable[[Built], None]]":
    """A function that shows a build's progress, its rate and the time left."""
    first: Built | None = None
    with shown_progress("building") as show:

        def follow(built: "Built") -> None:
            nonlocal first
            first = first or built
            megabytes = (built.num_bytes - first.num_bytes) / 1e6
            show(
                built.bytes_read,
                built.total_bytes,
                lambda seconds, _rate: (
                    f"{built.num_documents:,} documents, {built.num_tokens / 1e6:,.1f} M tokens, "
                    f"{megabytes / seconds:.1f} MB/s"
                ),
            )

        yield follow
