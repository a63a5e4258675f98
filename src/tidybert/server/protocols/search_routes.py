"""``POST /search``: the texts of the server's index that are nearest to a query."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final

from fastapi import APIRouter, Request
from pydantic import Field

from tidybert.search.index import check_queries
from tidybert.search.prompts import query_name
from tidybert.server.door import engine_of
from tidybert.server.faults import Refusal, as_refusals
from tidybert.server.json_answers import JsonAnswer
from tidybert.server.protocols.native import Truncate
from tidybert.server.protocols.protocol import Body, asked_by

router = APIRouter(tags=["native"])

# One search at a time: each computes on all cores.
_THREAD: Final = ThreadPoolExecutor(1, "tidybert-search")


class SearchBody(Body):
    """Queries: one, or a list."""

    inputs: str | list[str]
    top_k: Annotated[
        int | None, Field(ge=1, description="Give the K nearest texts. If not set: 10.")
    ] = None
    truncate: Truncate = False


@router.post("/search", summary="Find the texts of the index that are nearest to a query")
async def search(body: SearchBody, request: Request) -> JsonAnswer:
    """A list of hits for each query: position, row, text, columns and score, a cosine."""
    models = engine_of(request).models.values()
    name = next((each.name for each in models if each.index is not None), None)
    if models and name is None:
        raise Refusal(404, "this server has no index: start it with --index DIR")
    asked = asked_by(request, name)
    index = asked.model.index
    assert index is not None
    queries = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    with as_refusals("inputs"):
        check_queries(queries)
    with as_refusals("top_k"):
        count = index.count(body.top_k)
    found = await asked.embed(
        queries,
        truncate=body.truncate,
        normalize=True,
        pooling=index.settings["pooling"],
        prompt_name=query_name(asked.model.form.prompts),
    )
    hits = await asyncio.get_running_loop().run_in_executor(
        _THREAD, index.nearest, found.vectors, count
    )
    answers = [[hit.to_dict() for hit in each] for each in hits]
    return JsonAnswer(answers if isinstance(body.inputs, list) else answers[0])
