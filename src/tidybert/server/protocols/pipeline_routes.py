"""POST / and /models/NAME: the answers that transformers' pipelines print.

The request is that of Hugging Face's inference API, which its ``InferenceClient`` sends to any
address.  The model's task decides the shape of the answer; a MODEL without a task embeds.
"""

from collections.abc import Callable, Set
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends
from pydantic import Field, ValidationError

from tidybert.server.engine import AskedModel
from tidybert.server.faults import Refusal
from tidybert.server.json_answers import JsonAnswer
from tidybert.server.protocols.native import Question, TextPair, split_inputs
from tidybert.server.protocols.protocol import (
    Body,
    ByPath,
    Dimensions,
    names_model,
    num_truncated,
    one_of,
    several,
    with_truncation,
    wrong_task,
)
from tidybert.server.protocols.shapes import (
    answers_to_question,
    entity_groups,
    label_scores,
)
from tidybert.server.protocols.tei_routes import (
    EmbedRequest,
    Options,
    SimilarityInputs,
    SimilarityRequest,
    embed,
    similarity,
)
from tidybert.tasks.answer import (
    Answered,
    Classified,
    LabelledAnswer,
    LabelSet,
    Scored,
    Tagged,
    TaskAnswer,
)
from tidybert.tokenization.tokenizer import Encoding

router = APIRouter(tags=["pipelines"])

_SUMMARY: Final = "Answer as transformers' pipelines do"
Inputs = Annotated[
    str | list[str] | TextPair | list[TextPair] | Question | list[Question] | SimilarityInputs,
    one_of(
        "a text, an object with text and text_pair, one with question and context, a list of one "
        "kind of these, or an object with source_sentence and sentences"
    ),
]


class Parameters(Body):
    """The parameters of all pipelines; a request gives those of its own alone."""

    truncate: bool = False
    top_k: Annotated[int | None, Field(ge=1)] = None
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None
    # A word has the tag of its first piece, so that "simple" and "first" are one.
    aggregation_strategy: Literal["simple", "first"] | None = None
    handle_impossible_answer: bool | None = None


class PipelineRequest(Options):
    """Feature extraction has its parameters beside ``inputs``, the others in ``parameters``."""

    inputs: Inputs
    parameters: Parameters = Parameters()
    normalize: bool | None = None
    dimensions: Dimensions = None


@router.post("/models/{name}", summary=_SUMMARY, dependencies=[Depends(names_model)])
@router.post("/", summary=_SUMMARY)
async def pipeline(body: PipelineRequest, asked: ByPath) -> JsonAnswer:
    """What the pipeline of the model's task gives, or vectors of a MODEL without a task.

    Each of several inputs has its answer, in order.  {"source_sentence", "sentences"} have their
    cosines with every model.
    """
    task = asked.model.task
    if isinstance(body.inputs, SimilarityInputs):
        _refuse_others(body.parameters, "parameters.", set())
        return await similarity(SimilarityRequest(inputs=body.inputs), asked)
    if task is None:
        return await _vectors(body, asked)
    if task.answer not in _PIPELINES:
        raise wrong_task(asked, "labels, tags or answers; /v1/models/NAME/predict serves all tasks")
    answer, names = _PIPELINES[task.answer]
    _refuse_others(body, "", {"inputs", "parameters"})
    _refuse_others(body.parameters, "parameters.", {"truncate", *names})
    is_list = isinstance(body.inputs, list)
    inputs = several(asked, body.inputs if is_list else [body.inputs], "inputs")
    texts, pairs = split_inputs(asked.model, inputs)
    answers = await asked.predict(texts, pairs, truncate=body.parameters.truncate)
    found = [
        answer(asked, one, each, body.parameters) for one, each in zip(inputs, answers, strict=True)
    ]
    # The pipeline puts the labels of a single text into a list too.
    is_nested = is_list or answer is _labels
    return with_truncation(found if is_nested else found[0], num_truncated(answers))


async def _vectors(body: PipelineRequest, asked: AskedModel) -> JsonAnswer:
    _refuse_others(body.parameters, "parameters.", set())
    try:
        fields = body.model_dump(exclude={"parameters"}, exclude_unset=True)
        request = EmbedRequest(**fields)
    except ValidationError:
        raise Refusal(422, "the model embeds texts: expected a text or a list", "inputs") from None
    return await embed(request, asked)


def _labels(asked: AskedModel, given: Any, answer: TaskAnswer, parameters: Parameters) -> Any:
    """{"label", "score"} by falling score, as TextClassificationPipeline with all labels."""
    wanted = parameters.function_to_apply
    function = answer.function if isinstance(answer, LabelledAnswer) else "none"
    if wanted not in (None, "none", function):
        message = f"the scores of this model come from {function}; or ask for none"
        raise Refusal(422, message, "parameters.function_to_apply")
    return label_scores(answer, raw=wanted == "none", top_k=parameters.top_k)


def _entities(asked: AskedModel, given: Any, answer: Tagged, parameters: Parameters) -> Any:
    """{"entity_group", "score", "word", "start", "end"} of each entity."""

    def encode(text: str) -> Encoding:
        return asked.tokenize(text, add_special_tokens=False)

    return entity_groups(answer, given, encode)


def _spans(asked: AskedModel, given: Any, answer: Answered, parameters: Parameters) -> Any:
    """{"score", "start", "end", "answer"}; a list of them for ``top_k`` above 1."""
    top_k = parameters.top_k or 1
    allow_none = parameters.handle_impossible_answer is not False
    found = answers_to_question(answer, top_k=top_k, allow_none=allow_none)
    return found if top_k > 1 else found[0]


_Pipeline = Callable[[AskedModel, Any, Any, Parameters], Any]
# What makes the shape of each kind of answer, and the parameters that it has.
_PIPELINES: Final[dict[type[TaskAnswer], tuple[_Pipeline, set[str]]]] = {
    **dict.fromkeys((Classified, LabelSet, Scored), (_labels, {"top_k", "function_to_apply"})),
    Tagged: (_entities, {"aggregation_strategy"}),
    Answered: (_spans, {"top_k", "handle_impossible_answer"}),
}


def _refuse_others(given: Body, prefix: str, known: Set[str]) -> None:
    """Raise Refusal for a field that only other pipelines have."""
    for name in sorted(given.model_fields_set - known):
        raise Refusal(422, "the pipeline of this model does not have it", f"{prefix}{name}")
