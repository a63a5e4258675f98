"""POST / and /models/NAME: the answers that transformers' pipelines print.

The request is that of Hugging Face's inference API, which its ``InferenceClient`` sends to any
address.  The model's task decides the shape of the answer; a MODEL without a task embeds.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends
from pydantic import Field, ValidationError

from tidybert.server.answers import JsonAnswer, Refusal
from tidybert.server.bodies import ClientRoute, ListOf
from tidybert.server.engine import AskedModel
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
from tidybert.server.protocols.tei_routes import PROTOCOL as TEI
from tidybert.server.protocols.tei_routes import (
    EmbedRequest,
    Options,
    SimilarityInputs,
    SimilarityRequest,
    embed,
    label_scores,
    similarity,
)
from tidybert.tasks.answer import (
    ABSENT,
    Answered,
    Classified,
    LabelledAnswer,
    LabelSet,
    Scored,
    Tagged,
    TaskAnswer,
)
from tidybert.tasks.tags.tag_files import split_text
from tidybert.tokenization.tokenizer import BertTokenizer, LibraryTokenizer
from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN

router = APIRouter(route_class=ClientRoute, tags=["pipelines"])
PROTOCOL: Final = replace(TEI, router=router, by_name=False)

_SUMMARY: Final = "Answer as transformers' pipelines do"
Inputs = Annotated[
    str
    | ListOf[str]
    | TextPair
    | ListOf[TextPair]
    | Question
    | ListOf[Question]
    | SimilarityInputs,
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
    return entity_groups(answer, given, asked.model.tokenizer)


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


# Answers as transformers' pipelines print them: TextClassificationPipeline,
# TokenClassificationPipeline with aggregation_strategy="simple", and the QuestionAnsweringPipeline
# that transformers removed in 5.3.

OUTSIDE: Final = "O"
# Only these tokens lose the space before them when transformers joins pieces.
_NO_SPACE_BEFORE: Final = frozenset(".?!,")


def answers_to_question(
    answer: Answered, *, top_k: int = 1, allow_none: bool = True
) -> list[dict[str, Any]]:
    """{"score", "start", "end", "answer"} of the best answers, at most ``top_k``, at least one.

    "No answer" has the answer "" and is from 0 to 0.  It is first where the model prefers it; with
    ``allow_none`` false it is there only if the text has no other.
    """
    keys: Final = ("score", "start", "end", "answer")
    spans: list[dict[str, Any]] = [{key: one[key] for key in keys} for one in answer.n_best]
    if not answer.answer and (allow_none or not spans):
        spans.insert(0, {"score": answer.score, "start": 0, "end": 0, "answer": ""})
    return spans[:top_k]


def entity_groups(answer: Tagged, text: str, tokenizer: BertTokenizer) -> list[dict[str, Any]]:
    """{"entity_group", "score", "word", "start", "end"} of each group of words with one tag.

    A group is an entity where tags mark entities, and else the neighbouring words with the same
    tag, without those of the tag O.

    Args:
        text: the text as it was given.
        tokenizer: the model's, for "word".
    """
    return [
        {
            "entity_group": name,
            "score": score,
            "word": joined_pieces(tokenizer, text[start:end]),
            "start": start,
            "end": end,
        }
        for name, score, start, end in _groups(answer, text)
    ]


def joined_pieces(tokenizer: BertTokenizer, text: str) -> str:
    """The pieces of a text as transformers joins them: a space before each word, as the model reads
    it (lower-cased by an uncased model); an unknown word is as in the text."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    if isinstance(tokenizer, LibraryTokenizer):
        return tokenizer.decode(encoding.input_ids).strip()
    joined = ""
    for token, (start, end) in zip(encoding.tokens, encoding.offset_mapping, strict=True):
        if token.startswith(CONTINUATION):
            joined += token.removeprefix(CONTINUATION)
        else:
            word = text[start:end] if token == UNK_TOKEN else token
            joined += word if not joined or word in _NO_SPACE_BEFORE else f" {word}"
    return joined


def _groups(answer: Tagged, text: str) -> Iterable[tuple[str, float, int, int]]:
    """Name, score, start and end."""
    if answer.entities is not ABSENT:
        for one in answer.entities:
            yield one["type"], one["score"], one["start"], one["end"]
        return
    _, spans = split_text(text)
    words = zip(answer.tags, answer.scores, spans, strict=True)
    for tag, group in groupby(words, key=lambda word: word[0]):
        if tag != OUTSIDE:
            _, scores, places = zip(*group, strict=True)
            yield tag, sum(scores) / len(scores), places[0][0], places[-1][1]
