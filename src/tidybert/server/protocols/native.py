"""The native routes: every head, with the objects that ``tidybert predict`` prints."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, Union

from fastapi import APIRouter, Depends
from pydantic import Field, create_model

from tidybert.checkpoints.example_kinds import (
    KINDS,
    PAIR,
    QUESTION,
    TEXT,
    TEXT_OR_PAIR,
    ExampleKind,
    name_of,
)
from tidybert.inference.options import RedactOptions
from tidybert.inference.redaction import Redactor
from tidybert.server.answers import JsonAnswer, Refusal, as_refusals
from tidybert.server.bodies import CountedRoute, ListOf
from tidybert.server.engine import AskedModel
from tidybert.server.protocols.protocol import (
    Body,
    ByPath,
    Ids,
    PromptName,
    Protocol,
    names_model,
)
from tidybert.server.served_model import ServedModel
from tidybert.tasks.answer import LabelledAnswer
from tidybert.tasks.task import AnyTask

router = APIRouter(
    route_class=CountedRoute,
    prefix="/v1/models/{name}",
    tags=["native"],
    dependencies=[Depends(names_model)],
)
PROTOCOL: Final = Protocol(router=router)


def _object(kind: ExampleKind) -> type[Body]:
    """The JSON object of an example."""
    fields: Any = {part.key: (ListOf[str] if part.is_list else str, ...) for part in kind.parts}
    return create_model(kind.schema, __base__=Body, __doc__=kind.description, **fields)


OBJECTS: Final = {kind: _object(kind) for kind in KINDS.values() if kind.schema}
"""The classes of the requests' examples, by kind; a kind without one is a text."""
if TYPE_CHECKING:
    Input: TypeAlias = Any
    TextPair: TypeAlias = Any
    Question: TypeAlias = Any
else:
    Input = Union[str, *OBJECTS.values()]
    TextPair, Question = OBJECTS[PAIR], OBJECTS[QUESTION]


Truncate = Annotated[
    bool, Field(description="Cut inputs that are too long. If not set: they get 422.")
]
TopK = Annotated[int | None, Field(ge=1, description="Give only the K likeliest.")]


class PredictBody(Body):
    """Inputs of the kind that the model was trained on: one, or a list."""

    inputs: Input | ListOf[Input]
    truncate: Truncate = False
    top_k: TopK = None
    min_score: Annotated[
        float | None,
        Field(
            ge=0, le=1, description="Give labels and entities from it on. If not set: as trained."
        ),
    ] = None
    redact: Annotated[
        bool, Field(description="Give each text without its entities, and where they were.")
    ] = False
    redact_with: Annotated[
        str | None, Field(description="The text in place of an entity. If not set: [{type}].")
    ] = None
    patterns: Annotated[
        str | None, Field(description="Also redact these, as in email,iban,card.")
    ] = None


class FillMaskBody(Body):
    """Texts with [MASK] in place of a word: one, or a list."""

    inputs: str | ListOf[str]
    top_k: TopK = None
    among: Annotated[ListOf[str] | None, Field(description="Choose from these words only.")] = None


class NextSentenceBody(Body):
    """Pairs of sentences: one, or a list."""

    inputs: TextPair | ListOf[TextPair]
    truncate: Truncate = False


class EmbedBody(Body):
    """Texts, or lists of ids: one, or a list."""

    inputs: str | ListOf[str] | ListOf[Ids]
    truncate: Truncate = False
    normalize: Annotated[
        bool | None,
        Field(description="Scale each vector to length 1. If not set: as the model says."),
    ] = None
    pooling: Annotated[
        str | None, Field(description="mean, max or cls. If not set: as the model says, else mean.")
    ] = None
    prompt_name: PromptName = None


class TokenizeBody(Body):
    """A text, or a list of texts."""

    inputs: str | ListOf[str]
    add_special_tokens: bool = True


@router.post("/predict", summary="Answer inputs by a fine-tuned model")
async def predict(body: PredictBody, asked: ByPath) -> JsonAnswer:
    """An answer an input, as ``tidybert predict`` prints it, with num_tokens and truncated."""
    texts, pairs = split_inputs(asked.model, listed(body.inputs))
    if body.redact or body.patterns or body.redact_with:
        return answered(body.inputs, await redacted(body, asked, texts))
    task = rescored(body, asked)
    answers = await asked.answered(
        texts, pairs, lambda each: each.of(task).predictions(), truncate=body.truncate
    )
    shown = []
    for answer in answers:
        if body.top_k is not None:
            if not isinstance(answer, LabelledAnswer):
                message = "only answers with scores by label have the likeliest"
                raise Refusal(422, message, "top_k")
            answer = answer.likeliest(body.top_k)
        shown.append(answer.as_dict())
    return answered(body.inputs, shown)


def rescored(body: PredictBody, asked: AskedModel) -> AnyTask | None:
    """The model's task, with the score from which the request wants labels and entities."""
    task = asked.model.task
    with as_refusals("min_score"):
        return None if task is None else task.with_min_score(body.min_score)


async def redacted(body: PredictBody, asked: AskedModel, texts: list[Any]) -> list[dict[str, Any]]:
    """Each text without its entities; Refusal for one of which a part could not be read."""
    with as_refusals("redact"):
        given = RedactOptions(redact=body.redact, patterns=body.patterns)
        redactor = Redactor(
            asked.model.predictor,
            patterns=given.patterns or (),
            redact_with=body.redact_with or given.redact_with,
        )
    task = rescored(body, asked)
    found = await asked.answered(
        texts, None, lambda each: redactor.answered(each.of(task)), truncate=body.truncate
    )
    for number, one in enumerate(found):
        if one.text is None:
            message = "a part of this text could not be read, so nothing is given"
            raise Refusal(422, message, f"inputs.{number}", "unread")
    return [asdict(one) for one in found]


@router.post("/fill-mask", summary="Fill each [MASK]")
async def fill_mask(body: FillMaskBody, asked: ByPath) -> JsonAnswer:
    """An answer a text, as ``tidybert fill-mask --json`` prints it."""
    texts = listed(body.inputs)
    return answered(body.inputs, await asked.fill_mask(texts, top_k=body.top_k, among=body.among))


@router.post("/next-sentence", summary="Say whether a sentence follows another")
async def next_sentence(body: NextSentenceBody, asked: ByPath) -> JsonAnswer:
    """An answer a pair: follows (a probability), num_tokens and truncated."""
    pairs = listed(body.inputs)
    first, second = [one.text for one in pairs], [one.text_pair for one in pairs]
    answers = await asked.next_sentence(first, second, truncate=body.truncate)
    return answered(body.inputs, answers)


@router.post("/embed", summary="Turn inputs into vectors")
async def embed(body: EmbedBody, asked: ByPath) -> JsonAnswer:
    """An object an input: vector, num_tokens and truncated."""
    found = await asked.embed(
        listed(body.inputs),
        truncate=body.truncate,
        normalize=body.normalize,
        pooling=body.pooling,
        prompt_name=body.prompt_name,
    )
    columns = zip(found.vectors, found.num_tokens, found.truncated, strict=True)
    answers = [
        {"vector": vector, "num_tokens": num_tokens, "truncated": truncated}
        for vector, num_tokens, truncated in columns
    ]
    return answered(body.inputs, answers)


@router.post("/tokenize", summary="Show the tokens of texts")
async def tokenize(body: TokenizeBody, asked: ByPath) -> JsonAnswer:
    """An object a text: tokens, input_ids, token_type_ids and offset_mapping, in characters."""
    names = ("tokens", "input_ids", "token_type_ids", "offset_mapping")
    answers = await asked.tokenized(
        listed(body.inputs),
        lambda text, encoding: {name: getattr(encoding, name) for name in names},
        body.add_special_tokens,
    )
    return answered(body.inputs, answers)


@router.get("", summary="Describe a model")
async def model(asked: ByPath) -> JsonAnswer:
    """What a model is and can do."""
    return JsonAnswer(described(asked.model))


def described(model: ServedModel) -> dict[str, Any]:
    """A model as ``GET /v1/models`` lists it; OpenAI's client reads id, object and created."""
    task = model.task
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "tidybert",
        "task": None if task is None else task.name,
        "inputs": name_of(model.inputs),
        "labels": None if task is None or task.label_names is None else list(task.label_names),
        "heads": list(model.heads),
        "max_seq_length": model.max_seq_length,
    }


def split_inputs(model: ServedModel, inputs: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
    """Typed inputs as ``Engine.predict`` takes them; Refusal for one of another kind."""
    kind = model.inputs
    if kind in (None, TEXT_OR_PAIR):
        kind = TEXT if inputs and isinstance(inputs[0], str) else PAIR
    for number, one in enumerate(inputs):
        fits = kind.may_be_text if isinstance(one, str) else type(one) is OBJECTS.get(kind)
        if not fits:
            raise Refusal(422, f"{model.name!r} reads {kind.written}", f"inputs.{number}")
    return kind.of_json(inputs)


def listed(inputs: Any) -> list[Any]:
    """A list as it is, a single input as a list of one."""
    return inputs if isinstance(inputs, list) else [inputs]


def answered(inputs: Any, answers: list[Any]) -> JsonAnswer:
    """All answers to a list, the only one to a single input."""
    return JsonAnswer(answers if isinstance(inputs, list) else answers[0])
