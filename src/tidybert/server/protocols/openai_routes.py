"""POST /v1/embeddings as OpenAI's API reference has it; GET /v1/models is in ``admin``."""

import re
from typing import Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from tidybert.server.faults import UNKNOWN_FIELD, Refusal
from tidybert.server.json_answers import JsonAnswer
from tidybert.server.protocols.protocol import (
    Body,
    Dimensions,
    TextsOrIds,
    asked_by,
    fitting,
    several,
)
from tidybert.server.protocols.shapes import fitted, in_base64

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


class Embedding(BaseModel):
    """A vector, as numbers or in base64, and whether its input was cut."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: bool


class Usage(BaseModel):
    """The tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors of a request."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class OpenAIErrorDetail(BaseModel):
    """Why a request has no answer."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(BaseModel):
    """An error in OpenAI's shape."""

    error: OpenAIErrorDetail


router = APIRouter(tags=["OpenAI"])


@router.post(
    "/v1/embeddings",
    response_model=EmbeddingList,
    summary="Turn inputs into vectors, as OpenAI's API does",
)
async def embeddings(body: EmbeddingRequest, request: Request) -> JsonAnswer:
    """A vector of length 1 for each input; each object also says whether its input was cut."""
    asked = asked_by(request, body.model)
    inputs = several(asked, body.input, "input")
    dimensions = fitting(asked, body.dimensions)
    found = await asked.embed(inputs, truncate=body.truncate)
    vectors = fitted(found.vectors, dimensions, normalize=True)
    in_base_64 = body.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": in_base64(vector) if in_base_64 else vector,
            "truncated": truncated,
        }
        for index, (vector, truncated) in enumerate(zip(vectors, found.truncated, strict=True))
    ]
    num_read = sum(min(each, asked.model.embedding_length) for each in found.num_tokens)
    usage = {"prompt_tokens": num_read, "total_tokens": num_read}
    name = asked.model.name
    return JsonAnswer({"object": "list", "data": data, "model": name, "usage": usage})


def openai_shape(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    """The status and JSON of a Refusal; their clients choose an exception by the status.

    OpenAI has 400 for every wrong request, so 422 becomes 400 here.
    """
    status = 400 if refusal.status == 422 else refusal.status
    default = "invalid_request_error" if status < 500 else "server_error"
    param = refusal.param
    # The engine speaks of inputs, OpenAI of input.
    if param is not None and refusal.kind != UNKNOWN_FIELD:
        param = re.sub(r"^inputs\b", "input", param)
    error = {
        "message": refusal.message,
        "type": _ERROR_TYPES.get(status, default),
        "param": param,
        "code": refusal.kind,
    }
    return status, {"error": error}
