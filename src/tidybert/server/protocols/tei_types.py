"""The requests and answers of text-embeddings-inference, as its OpenAPI document has them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel

from tidybert.server.protocols.protocol import Body, Dimensions, Ids, PromptName, TextsOrIds, one_of


class Options(Body):
    """What most requests have beside their inputs."""

    truncate: bool | None = None
    # tidybert cuts the end of a text; text-embeddings-inference can also cut its beginning.
    truncation_direction: Literal["right", "Right"] = "right"


class EmbedRequest(Options):
    inputs: TextsOrIds
    normalize: bool | None = None
    prompt_name: PromptName = None
    dimensions: Dimensions = None


class SimilarityInputs(Body):
    source_sentence: str
    sentences: list[str]


class SimilarityOptions(Options):
    prompt_name: PromptName = None


class SimilarityRequest(Body):
    inputs: SimilarityInputs
    parameters: SimilarityOptions | None = None


class PredictRequest(Options):
    inputs: Annotated[
        str | list[str] | list[list[str]],
        one_of("a text, a pair [text, text], or a list of [text] and [text, text]"),
    ]
    raw_scores: bool = False


class RerankRequest(Options):
    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False


class TokenizeRequest(Body):
    inputs: Annotated[str | list[str], one_of("a text or a list of texts")]
    add_special_tokens: bool = True


class DecodeRequest(Body):
    ids: Annotated[Ids | list[Ids], one_of("a list of token ids or a list of such lists")]
    skip_special_tokens: bool = True


class TeiError(BaseModel):
    """Why a request has no answer."""

    error: str
    error_type: str


class Label(BaseModel):
    """A label and its score."""

    label: str
    score: float


class Rank(BaseModel):
    """A text, by its place in the request, and its score."""

    index: int
    text: str | None = None
    score: float


class Token(BaseModel):
    """A token, and its place in bytes of UTF-8."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Info(BaseModel):
    """A model, and the limits of the server."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
