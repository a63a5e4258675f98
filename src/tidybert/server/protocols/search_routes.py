"""``POST /search``: the texts of the server's index that are nearest to a query."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Request
from pydantic import Field

from tidybert.errors import UsageError
from tidybert.inference.predictor import CrossEncoder
from tidybert.search.index import CANDIDATES, By, Hit, check_queries, reordered
from tidybert.server.answers import WRONG_TASK, JsonAnswer, Refusal, as_refusals
from tidybert.server.bodies import CountedRoute, ListOf
from tidybert.server.engine import AskedModel
from tidybert.server.middleware import engine_of
from tidybert.server.protocols.native import Truncate, answered, listed
from tidybert.server.protocols.protocol import Body, Protocol, asked_by
from tidybert.server.work_queue import SLICE

router = APIRouter(route_class=CountedRoute, tags=["native"])
PROTOCOL: Final = Protocol(router=router)

# Each filter is compared with every text.
_MOST_FILTERS: Final = 64
# Texts that a request finds, for each input that the server takes.
_HITS_PER_INPUT: Final = 50
# One search at a time: each computes on all cores.
_THREAD: Final = ThreadPoolExecutor(1, "tidybert-search")


class SearchBody(Body):
    """Queries: one, or a list."""

    inputs: str | ListOf[str]
    top_k: Annotated[
        int | None, Field(ge=1, description="Give the K nearest texts. If not set: 10.")
    ] = None
    rerank: Annotated[
        str | None,
        Field(
            description="Order the nearest texts again by this served model, which was trained to "
            "regress, or to classify into two classes, over pairs of query and text."
        ),
    ] = None
    candidates: Annotated[
        int | None,
        Field(ge=1, description="How many of the nearest texts it reads. If not set: 50."),
    ] = None
    where: Annotated[
        str | ListOf[str] | None,
        Field(description="Search only in texts with label=billing; also !=, <, <=, > and >=."),
    ] = None
    exact: Annotated[bool, Field(description="Compare with every vector, also of many.")] = False
    by: Annotated[
        By | None,
        Field(description="Rank by words or by meaning alone. If not set: by both, fused."),
    ] = None
    truncate: Truncate = False


@router.post("/search", summary="Find the texts of the index that are nearest to a query")
async def search(body: SearchBody, request: Request) -> JsonAnswer:
    """A list of hits for each query: position, row, text, columns, id and score, a cosine.

    Those of an index with words also have rank_words, rank_meaning and fused, which orders them.
    With ``rerank`` each hit has rerank_score, and rerank_truncated where that model read only the
    start of query and text.
    """
    models = engine_of(request).models.values()
    name = next((each.name for each in models if each.index is not None), None)
    if models and name is None:
        raise Refusal(404, "this server has no index: start it with --index DIR")
    asked = asked_by(request, name)
    index = asked.model.index
    assert index is not None
    queries = listed(body.inputs)
    with as_refusals("inputs"):
        check_queries(queries)
    if isinstance(body.where, list) and len(body.where) > _MOST_FILTERS:
        message = f"{len(body.where):,} filters; at most {_MOST_FILTERS} are taken"
        raise Refusal(422, message, "where")
    with as_refusals("by"):
        index.ranking(body.by)
    with as_refusals("top_k"):
        count = index.count(body.top_k)
    wanted = count
    most = asked.engine.settings.max_inputs
    if len(queries) * wanted > _HITS_PER_INPUT * most:
        raise Refusal(
            422,
            f"{wanted:,} texts for each query, of which there are {len(queries):,}; at most "
            f"{_HITS_PER_INPUT * most:,} texts are found: send fewer queries, or a lower top_k",
            "top_k",
        )
    judge = _judge(body, request)
    if judge is not None:
        wanted = min(len(index), max(count, body.candidates or CANDIDATES))
        if len(queries) * wanted > most:
            raise Refusal(
                422,
                f"{wanted:,} candidates for each query, of which there are {len(queries):,}; at "
                f"most {most:,} pairs are taken: send fewer queries, or name fewer candidates",
                "candidates",
            )
    found = await asked.embed(
        queries,
        truncate=body.truncate,
        normalize=True,
        pooling=index.query_pooling,
        prompt_name=asked.model.form.query_prompt_name,
    )
    search = partial(
        index.find, top_k=wanted, where=body.where or None, exact=body.exact, by=body.by
    )
    hits: list[list[Hit]] = []
    for start in range(0, len(queries), SLICE):
        part = slice(start, start + SLICE)
        asking = partial(search, queries[part], found.vectors[part])
        with as_refusals("where"):
            hits += await asyncio.get_running_loop().run_in_executor(_THREAD, asking)
    if judge is not None:
        hits = [each[:count] for each in await _reranked(*judge, queries, hits)]
    return answered(body.inputs, [[hit.to_dict() for hit in each] for each in hits])


def _judge(body: SearchBody, request: Request) -> tuple[AskedModel, CrossEncoder] | None:
    """The model that orders again, if a request names one; Refusal for one that cannot."""
    if body.rerank is None:
        if body.candidates is not None:
            raise Refusal(422, "candidates needs rerank, the name of a model", "candidates")
        return None
    try:
        asked = asked_by(request, body.rerank)
    except Refusal as error:
        raise Refusal(error.status, error.message, "rerank") from None
    predictor = asked.model.predictor
    try:
        if predictor is None:
            raise UsageError(f"{body.rerank} has no task: to score pairs of texts name a RUN")
        return asked, CrossEncoder(predictor, body.rerank)
    except UsageError as error:
        raise Refusal(422, error.message, "rerank", WRONG_TASK) from None


async def _reranked(
    judge: AskedModel,
    encoder: CrossEncoder,
    queries: Sequence[str],
    found: Sequence[Sequence[Hit]],
) -> list[list[Hit]]:
    """The hits of each query in the order of the cross-encoder; texts that are too long are cut."""
    firsts = [query for query, hits in zip(queries, found, strict=True) for _ in hits]
    seconds = [hit.text for hits in found for hit in hits]
    answers = iter(await judge.predict(firsts, seconds, truncate=True))
    return [reordered(hits, list(islice(answers, len(hits)))) for hits in found]
