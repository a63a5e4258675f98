"""POST /v1/embeddings as OpenAI's API reference has it; GET /v1/models is in ``admin``."""

import re
from base64 import b64encode
from typing import Final, Literal

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from tidybert.server.answers import UNKNOWN_FIELD, JsonAnswer, Refusal
from tidybert.server.bodies import ClientRoute
from tidybert.server.protocols.protocol import (
    Body,
    Dimensions,
    Protocol,
    TextsOrIds,
    asked_by,
    several,
)

_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class EmbeddingRequest(Body):
    """OpenAI's fields, and ``truncate``, which is tidybert's own."""

    input: TextsOrIds
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Dimensions = None
    user: str | None = None
    truncate: bool = False


class Embedding(TypedDict):
    """A vector, as numbers or in base64, and whether its input was cut."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: bool


class Usage(TypedDict):
    """The tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    """The vectors of a request."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class OpenAIErrorDetail(TypedDict):
    """Why a request has no answer."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(TypedDict):
    """An error in OpenAI's shape."""

    error: OpenAIErrorDetail


def _shape(refusal: Refusal) -> tuple[int, OpenAIError]:
    """The status and JSON of a Refusal; their clients choose an exception by the status.

    OpenAI has 400 for every wrong request, so 422 becomes 400 here.
    """
    status = 400 if refusal.status == 422 else refusal.status
    default = "invalid_request_error" if status < 500 else "server_error"
    param = refusal.param
    # The engine speaks of inputs, OpenAI of input.
    if param is not None and refusal.kind != UNKNOWN_FIELD:
        param = re.sub(r"^inputs\b", "input", param)
    error_type = _ERROR_TYPES.get(status, default)
    detail = OpenAIErrorDetail(
        message=refusal.message, type=error_type, param=param, code=refusal.kind
    )
    return status, OpenAIError(error=detail)


_IDS: Final = (
    "the input is token ids, which a client makes with a tokenizer of its own: have it send texts "
    "(LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False)); if it has the tokenizer of "
    "this model, start the server with --allow-token-ids"
)
router = APIRouter(route_class=ClientRoute, tags=["OpenAI"])
PROTOCOL: Final = Protocol(router=router, shape=_shape, error=OpenAIError)


@router.post(
    "/v1/embeddings",
    response_model=EmbeddingList,
    summary="Turn inputs into vectors, as OpenAI's API does",
)
async def embeddings(body: EmbeddingRequest, request: Request) -> JsonAnswer:
    """A vector of length 1 for each input; each object also says whether its input was cut."""
    asked = asked_by(request, body.model)
    inputs = several(asked, body.input, "input")
    if not isinstance(inputs[0], str) and not asked.engine.settings.allow_token_ids:
        raise Refusal(422, _IDS, "input")
    found = await asked.embed(
        inputs, truncate=body.truncate, normalize=True, dimensions=body.dimensions
    )
    in_base_64 = body.encoding_format == "base64"
    data: list[Embedding] = [
        {
            "object": "embedding",
            "index": index,
            "embedding": b64encode(vector.astype("<f4")).decode() if in_base_64 else vector,
            "truncated": truncated,
        }
        for index, (vector, truncated) in enumerate(
            zip(found.vectors, found.truncated, strict=True)
        )
    ]
    num_read = sum(min(each, asked.model.embedding_length) for each in found.num_tokens)
    usage = Usage(prompt_tokens=num_read, total_tokens=num_read)
    name = asked.model.name
    return JsonAnswer(EmbeddingList(object="list", data=data, model=name, usage=usage))
