"""``tidybert mine``: hard negatives for pairs, to train vectors on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, resumable
from tidybert.cli.progress import shown_texts
from tidybert.errors import in_shell
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import OpeningOptions
from tidybert.options import option, values_of

if TYPE_CHECKING:
    from tidybert.files.reading import ReadReport
    from tidybert.tasks.vectors.vector_examples import VectorExample

MOST_USED: Final = (
    "queries", "texts", "out", "num_negatives", "first_rank", "last_rank", "margin", "resume",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MineFlags(flags.AnswerFlags):
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


@takes(*MOST_USED, given=MineFlags, read=ReadOptions)
def mine(model: flags.ModelArgument, *, given: MineFlags, read: ReadOptions) -> None:
    """Find hard negatives: for each pair the texts nearest to the first that do not belong to it.

    The flags about columns are those of --queries.
    """
    from tidybert.files.reading import ReadReport
    from tidybert.files.text_files import read_examples
    from tidybert.inference.embedding import Embedder
    from tidybert.inference.loading import OpenedModel
    from tidybert.search.hard_negatives import HardNegatives, MiningOptions
    from tidybert.storage.part_file import new_file

    options = MiningOptions(given.num_negatives, given.first_rank, given.last_rank, given.margin)

    with new_file(given.out, given.resume):
        pairs = list(_pairs(given, read, report := ReadReport()))
        for line in report.lines(in_shell):
            note(line)
        if given.texts is None:
            texts = [one.texts[1] for one in pairs]
        else:
            found = read_examples(
                given.texts, None, need_label=False, skip_bad_rows=given.skip_bad_rows
            )
            texts = [one.text for one in found]
        opened = OpenedModel(model, **values_of(given, OpeningOptions))
        form = opened.form
        embedder = Embedder.of(
            opened,
            normalize=True,
            prompt_name=form.document_prompt_name,
            max_seq_length=given.max_seq_length,
        )
        query_prompt = form.prompt(name=form.query_prompt_name)
        negatives = HardNegatives(embedder, query_prompt, texts, pairs, options)
        with resumable(given.out, given.resume), shown_texts("mining", len(pairs)) as reporter:
            written = negatives.write(pairs, given.out, resume=given.resume, reporter=reporter)
    count = written.num_texts - written.num_resumed
    note(
        f"{count:,} pairs, {len(negatives.texts):,} different texts; {negatives.num_short:,} pairs "
        f"have fewer than {options.num_negatives} negatives, and {negatives.num_without:,} have "
        "none"
    )
    note(f"next: tidybert finetune embed {model} --train {given.out} --dev FILE --out RUN")


def _pairs(given: MineFlags, read: ReadOptions, report: "ReadReport") -> "Iterator[VectorExample]":
    """The pairs of the file; DataError for single texts."""
    from tidybert.errors import DataError
    from tidybert.tasks.vectors.vector_examples import read_vectors

    for one in read_vectors(
        given.queries, read, need_label=False, skip_bad_rows=given.skip_bad_rows, report=report
    ):
        if len(one.texts) < 2:
            raise DataError(
                f"{given.queries}:{one.row}: a single text; give pairs that belong together "
                "(columns anchor and positive, or --text and --text-pair)"
            )
        yield one
