"""The routes of text-embeddings-inference, with the objects of its OpenAPI document.

They act on the first model, and below /models/NAME on that model.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any, Final, Literal, NotRequired

from fastapi import APIRouter, Response
from typing_extensions import TypedDict

from tidybert import __version__
from tidybert.checkpoints.example_kinds import PAIR
from tidybert.server.answers import WRONG_TASK, JsonAnswer, Refusal
from tidybert.server.bodies import FLAT_IDS, ClientRoute, ListOf
from tidybert.server.engine import AskedModel
from tidybert.server.protocols.protocol import (
    Body,
    ByPath,
    Dimensions,
    Ids,
    PromptName,
    Protocol,
    TextsOrIds,
    num_truncated,
    one_of,
    several,
    with_truncation,
    wrong_task,
)
from tidybert.server.served_model import ServedModel
from tidybert.tasks.answer import ONLY_LABEL, LabelSet, TaskAnswer
from tidybert.tokenization.tokenizer import Encoding

# The requests and answers of text-embeddings-inference, as its OpenAPI document has them.


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
    sentences: ListOf[str]


class SimilarityOptions(Options):
    prompt_name: PromptName = None


class SimilarityRequest(Body):
    inputs: SimilarityInputs
    parameters: SimilarityOptions | None = None


class PredictRequest(Options):
    inputs: Annotated[
        str | ListOf[str] | ListOf[ListOf[str]],
        one_of("a text, a pair [text, text], or a list of [text] and [text, text]"),
    ]
    raw_scores: bool = False


class RerankRequest(Options):
    query: str
    texts: ListOf[str]
    raw_scores: bool = False
    return_text: bool = False


class TokenizeRequest(Body):
    inputs: Annotated[str | ListOf[str], one_of("a text or a list of texts")]
    add_special_tokens: bool = True


class DecodeRequest(Body):
    ids: Annotated[
        Ids | ListOf[Ids], one_of("a list of token ids or a list of such lists"), FLAT_IDS
    ]
    skip_special_tokens: bool = True


class TeiError(TypedDict):
    """Why a request has no answer."""

    error: str
    error_type: str


class Label(TypedDict):
    """A label and its score."""

    label: str
    score: float


class Rank(TypedDict):
    """A text, by its place in the request, and its score."""

    index: int
    text: NotRequired[str | None]
    score: float


class Token(TypedDict):
    """A token, and its place in bytes of UTF-8."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Info(TypedDict):
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


_ERROR_TYPES: Final = {
    400: "empty",
    413: "validation",
    422: "tokenizer",
    424: "backend",
    429: "overloaded",
    503: "unhealthy",
}


def _shape(refusal: Refusal) -> tuple[int, TeiError]:
    """The status and JSON of a Refusal; 424 says that the model has no head of the kind."""
    status = 424 if refusal.kind == WRONG_TASK else refusal.status
    error_type = _ERROR_TYPES.get(status, refusal.kind)
    message, field = refusal.message, refusal.param
    # The shape has no place for the field.
    if field is not None and field not in message:
        message = f"{field}: {message}"
    return status, TeiError(error=message, error_type=error_type)


router = APIRouter(route_class=ClientRoute, tags=["text-embeddings-inference"])
PROTOCOL: Final = Protocol(router=router, shape=_shape, error=TeiError, by_name=True)


@router.post("/embed", response_model=list[list[float]], summary="Turn inputs into vectors")
async def embed(body: EmbedRequest, asked: ByPath) -> JsonAnswer:
    """A vector for each input, of length 1 unless ``normalize`` is false."""
    inputs = several(asked, body.inputs, "inputs")
    found = await asked.embed(
        inputs,
        truncate=bool(body.truncate),
        # False leaves the vectors as the model's modules give them.
        normalize=None if body.normalize is False else True,
        prompt_name=body.prompt_name,
        dimensions=body.dimensions,
    )
    return with_truncation(found.vectors, sum(found.truncated))


@router.post("/similarity", response_model=list[float], summary="Compare a text with others")
async def similarity(body: SimilarityRequest, asked: ByPath) -> JsonAnswer:
    """The cosine of the source sentence with each of the others."""
    texts = several(asked, body.inputs.sentences, "inputs.sentences")
    options = body.parameters or SimilarityOptions()
    found = await asked.embed(
        [body.inputs.source_sentence, *texts],
        normalize=True,
        truncate=bool(options.truncate),
        prompt_name=options.prompt_name,
    )
    cosines = (found.vectors[1:] @ found.vectors[0]).clip(-1, 1).tolist()
    return with_truncation(cosines, sum(found.truncated))


@router.post("/predict", response_model=list[Label] | list[list[Label]], summary="Score labels")
async def predict(body: PredictRequest, asked: ByPath) -> JsonAnswer:
    """{"label", "score"} of each label by falling score; a list of such lists for a batch.

    Each score is from a softmax; of a model that gives several labels, from the label's sigmoid.
    """
    batch, texts, pairs = sequences(asked, body.inputs)
    answers = await asked.predict(texts, pairs, truncate=bool(body.truncate))
    found = [label_scores(one, raw=body.raw_scores) for one in answers]
    if None in found:
        raise wrong_task(asked, "a score for each label")
    return with_truncation(found if batch else found[0], num_truncated(answers))


@router.post("/rerank", response_model=list[Rank], summary="Order texts by how well they fit")
async def rerank(body: RerankRequest, asked: ByPath) -> JsonAnswer:
    """{"index", "score"} of each text by falling score, from a model that reads pairs of texts.

    The score is the value of a regression, or the probability of the second of two classes.
    """
    texts = several(asked, body.texts, "texts")
    answers = await asked.predict([body.query] * len(texts), texts, truncate=bool(body.truncate))
    found: list[Rank] = []
    for index, (text, answer) in enumerate(zip(texts, answers, strict=True)):
        score = answer.relevance(raw=body.raw_scores)
        if score is None:
            raise wrong_task(asked, "one score a pair: a regression, or two classes")
        found.append(Rank(index=index, text=text, score=score))
        if not body.return_text:
            del found[-1]["text"]
    found.sort(key=lambda one: -one["score"])
    return with_truncation(found, num_truncated(answers))


@router.post("/tokenize", response_model=list[list[Token]], summary="Show tokens and their bytes")
async def tokenize(body: TokenizeRequest, asked: ByPath) -> JsonAnswer:
    """The tokens of each text, whose places are bytes of UTF-8."""
    texts = several(asked, body.inputs, "inputs")
    return JsonAnswer(await asked.tokenized(texts, simple_tokens, body.add_special_tokens))


@router.post("/decode", response_model=list[str], summary="Turn ids into text")
async def decode(body: DecodeRequest, asked: ByPath) -> JsonAnswer:
    """The text of each list of ids."""
    lists = several(asked, body.ids, "ids")
    return JsonAnswer(await asked.decoded(lists, body.skip_special_tokens))


@router.get("/health", summary="Whether the models are warm", response_class=Response)
async def health(asked: ByPath) -> Response:
    """200 and nothing else; 503 before the models are ready, and while the server ends."""
    if not asked.engine.is_ready:
        raise Refusal(503, "the server is not ready", retry_after=1)
    return Response()


@router.get("/info", response_model=Info, summary="Describe a model and the limits")
async def info(asked: ByPath) -> JsonAnswer:
    """The model and the limits."""
    model, settings = asked.model, asked.engine.settings
    found = Info(
        model_id=model.name,
        model_sha=None,
        model_dtype=model.precision,
        model_type=model_type(model),
        max_concurrent_requests=settings.queue_inputs,
        max_input_length=(
            model.embedding_length if model.predictor is None else model.max_seq_length
        ),
        max_batch_tokens=asked.engine.batch_tokens,
        max_batch_requests=None,
        max_client_batch_size=settings.max_inputs,
        auto_truncate=False,
        tokenization_workers=1,
        version=__version__,
        sha=None,
        docker_label=None,
    )
    return JsonAnswer(found)


def label_scores(
    answer: TaskAnswer, *, raw: bool = False, top_k: int | None = None
) -> list[Label] | None:
    """{"label", "score"} of each label, or of ``top_k``, the highest first; None without labels."""
    scores = answer.label_scores(raw=raw)
    if scores is None:
        return None
    ranked = sorted(scores.items(), key=lambda pair: -pair[1])
    return [Label(label=label, score=score) for label, score in ranked[:top_k]]


def simple_tokens(text: str, encoding: Encoding) -> list[Token]:
    """{"id", "text", "special", "start", "stop"} of each token.

    "text" is the token's part of the text, from byte "start" to byte "stop" in UTF-8.  A special
    token around the text has its name and no place.
    """
    places = byte_places(text)
    found: list[Token] = []
    for token, number, sequence, (start, end) in zip(
        encoding.tokens,
        encoding.input_ids,
        encoding.sequence_ids,
        encoding.offset_mapping,
        strict=True,
    ):
        special = sequence is None
        found.append(
            {
                "id": number,
                "text": token if special else text[start:end],
                "special": special,
                "start": None if special else places[start],
                "stop": None if special else places[end],
            }
        )
    return found


def byte_places(text: str) -> range | list[int]:
    """(len(text) + 1,) the byte in UTF-8 where each character begins, and the end."""
    if text.isascii():
        return range(len(text) + 1)
    return list(accumulate((len(each.encode()) for each in text), initial=0))


def sequences(
    asked: AskedModel,
    inputs: str | list[str] | list[list[str]],
) -> tuple[bool, list[str], list[str] | None]:
    """Whether ``inputs`` is a batch, its texts, and their second texts or None.

    ["a", "b"] is one pair, [["a"], ["b", "c"]] a batch.  Raises Refusal for another number of
    texts, and for a batch of pairs and single texts.
    """
    if isinstance(inputs, str):
        return False, [inputs], None
    is_batch = not inputs or isinstance(inputs[0], list)
    lists: Sequence[Any] = several(asked, inputs, "inputs") if is_batch else [inputs]
    for number, one in enumerate(lists):
        if len(one) not in (1, 2):
            where = f"inputs.{number}" if is_batch else "inputs"
            message = f"{where} has {len(one)} texts: give one text, or a pair of two"
            raise Refusal(422, message, where)
    if len({len(one) for one in lists}) > 1:
        raise Refusal(
            422, "inputs has single texts and pairs: the model reads one of the two", "inputs"
        )
    pairs = [one[1] for one in lists] if len(lists[0]) == 2 else None
    return is_batch, [one[0] for one in lists], pairs


def model_type(model: ServedModel) -> dict[str, Any]:
    """What the model is, in the words of text-embeddings-inference.

    A model that text-embeddings-inference does not know, one that tags for example, is an embedding
    model: that is what its encoder can do on these paths.
    """
    task = model.task
    if task is None or task.architecture != "BertForSequenceClassification":
        return {"embedding": {"pooling": model.form.pooling}}
    names = task.names or (ONLY_LABEL,)
    ids = {
        "id2label": {str(number): label for number, label in enumerate(names)},
        "label2id": {label: number for number, label in enumerate(names)},
    }
    is_reranker = model.inputs == PAIR and len(names) <= 2 and task.answer is not LabelSet
    return {"reranker" if is_reranker else "classifier": ids}
