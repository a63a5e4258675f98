"""``tidybert search``: the texts of an index that are nearest to a query."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json, print_line
from tidybert.errors import DataError, UsageError
from tidybert.options import option

if TYPE_CHECKING:
    from tidybert.search.index import Hit, Index

MOST_USED: Final = ("top_k", "where", "json", "rerank", "candidates", "model", "device")
_SHOWN_COLUMNS: Final = 200


@dataclass(frozen=True, kw_only=True)
class SearchFlags(flags.DeviceFlag, flags.PickleFlag, flags.JsonFlag):
    PANEL: ClassVar = "Other options"

    top_k: int | None = option(None, at_least=1)
    """``--top-k K``: Show the K nearest texts. If not set: 10."""
    rerank: str | None = None
    """``--rerank RUN``: Order the nearest texts again by a RUN of regress, or of classify with two
    classes, over pairs of query and text."""
    candidates: int | None = option(None, at_least=1)
    """``--candidates N``: How many of the nearest texts --rerank reads. If not set: 50."""
    where: list[str] | None = None
    """``--where COLUMN=VALUE``: Search only in texts with this value of a column; also !=, <, <=,
    > and >=. Several must all hold."""
    exact: bool = False
    """``--exact``: Compare the query with every vector, also in an index of many."""
    model: str | None = None
    """``--model MODEL``: Where the encoder of the index is now. If not set: where it was."""


@takes(*MOST_USED, given=SearchFlags)
def search(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="An index that tidybert index wrote.")
    ],
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="What to search for. If not set: each line of standard input is a query.",
        ),
    ] = None,
    *,
    given: SearchFlags,
) -> None:
    """Show the texts of an index whose vectors are nearest to a query's.

    --json prints one JSON object for each query: query, and hits with score (the cosine), row,
    text, columns and the id.
    """
    from tidybert.search.index import CANDIDATES, Index, check_queries

    if given.candidates is not None and given.rerank is None:
        raise UsageError("--candidates needs --rerank: without it all texts are compared")
    if query is not None:
        check_queries([query])
    index = Index.open(directory, given.model, device=given.device, allow_pickle=given.allow_pickle)
    index.count(given.top_k)
    reranker = None
    if given.rerank is not None:
        from tidybert.inference.predictor import CrossEncoder

        reranker = CrossEncoder.open(
            given.rerank, device=given.device, allow_pickle=given.allow_pickle
        )
    candidates = CANDIDATES if given.candidates is None else given.candidates
    for each in [query] if query is not None else _queries(index):
        hits = index.search(
            each,
            given.top_k,
            rerank=reranker,
            candidates=candidates,
            where=given.where or None,
            exact=given.exact,
        )
        if given.json:
            print_json({"query": each, "hits": [hit.to_dict() for hit in hits]})
        else:
            _show(hits)
        sys.stdout.flush()
        if cut := sum(hit.rerank_truncated for hit in hits):
            note(f"{given.rerank} read only the start of {cut:,} of these texts")


def _queries(index: "Index") -> Iterator[str]:
    """The lines of standard input; on a terminal it asks for each, and an empty one asks again."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        note(f"{len(index):,} texts; type a query, Ctrl-D ends")
    number = 0
    while True:
        if is_terminal:
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        number += 1
        if not line:
            return
        if line.strip():
            yield line.rstrip("\r\n")
        elif not is_terminal:
            raise DataError(f"line {number} of standard input is empty: give a query in each line")


def _show(hits: "list[Hit]") -> None:
    for rank, hit in enumerate(hits, start=1):
        score = hit.score if hit.rerank_score is None else hit.rerank_score
        print_line(f"{rank:>3}  {score:.3f}  {hit.text}")
        for name, value in hit.columns.items():
            print_line(f"            {name}: {value!s:.{_SHOWN_COLUMNS}}")
