"""Protocol: routes that clients know, and how they see an error; and what all routes share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from tidybert.server.answers import (
    WRONG_TASK,
    Error,
    JsonAnswer,
    Refusal,
    Shape,
    native_shape,
)
from tidybert.server.bodies import FLAT_IDS, ListOf, furthest
from tidybert.server.engine import AskedModel
from tidybert.server.middleware import client_of, engine_of
from tidybert.tasks.answer import TaskAnswer


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What the app needs to know of a protocol.

    Args:
        router: the routes, with the types of their requests and answers.
        shape: how its clients see a Refusal.
        error: the type of that, for the OpenAPI document.
        by_name: whether each route is also below /models/{name}, for the model of that name.
        is_open: whether a request of this method for this path needs no API key.
    """

    router: APIRouter
    shape: Shape = native_shape
    error: Any = Error
    by_name: bool = False
    is_open: Callable[[str, str], bool] = lambda method, path: False


TRUNCATED_HEADER: Final = "X-Truncated"
"""How many inputs of a request were cut, for answers whose shape has no room for it."""


def _begun_by_a_number(given: list[Any]) -> list[Any]:
    if given and type(given[0]) is not int:
        raise ValueError("expected a list of token ids")
    return given


Ids = Annotated[
    list[Any],
    AfterValidator(_begun_by_a_number),
    WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}}),
]
"""Ids, of which only the first is looked at here: a thread compares all with the vocabulary."""


class Body(BaseModel):
    """A request; a field that tidybert does not serve is an error and never ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


def one_of(expected: str) -> WrapValidator:
    """Gives a value of several types one message, in place of one message a type."""

    def validate(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            if isinstance(value, list) and furthest(error.errors(), value)[0]:
                # One of its items is wrong, and it says which.
                raise
            raise PydanticCustomError("one_of", f"expected {expected}") from None

    return WrapValidator(validate)


TextsOrIds = Annotated[
    str | ListOf[str] | Ids | ListOf[Ids],
    one_of("a text, a list of texts, a list of token ids, or a list of such lists"),
    FLAT_IDS,
]
Dimensions = Annotated[int | None, Field(ge=1)]
PromptName = Annotated[
    str | None,
    Field(
        description="Put the model's prompt of this name before each text. If not set: the model's "
        "default prompt, if it has one."
    ),
]


async def names_model(name: str) -> None:
    """Declares the {name} of a path, for the OpenAPI document."""


def asked_by(request: Request, name: str | None) -> AskedModel:
    """The model of that name, None for the first one, as a client asks it; Refusal 404."""
    engine = engine_of(request)
    return AskedModel(engine, engine.model(name), client_of(request))


async def _by_path(request: Request) -> AskedModel:
    return asked_by(request, request.path_params.get("name"))


ByPath = Annotated[AskedModel, Depends(_by_path)]
"""The model that the path names, or the first one."""


def several(asked: AskedModel, given: Any, field: str) -> Sequence[Any]:
    """Each of the inputs; a single text, or a single list of ids, is one.

    Raises Refusal for none (400) or too many (413).
    """
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        return [given]
    if not given:
        raise Refusal(400, f"{field} is empty: give one input or more", field)
    most = asked.engine.settings.max_inputs
    if len(given) > most:
        raise Refusal(413, f"{field} has {len(given):,} inputs: give {most:,} at most", field)
    found: Sequence[Any] = given
    return found


def wrong_task(asked: AskedModel, needed: str) -> Refusal:
    """What to raise where the model's task does not give what is ``needed``."""
    task = asked.model.task
    does = "has no task" if task is None else f"was trained to {task.name}"
    message = f"{asked.model.name!r} {does}, and this path needs {needed}"
    return Refusal(422, message, "model", WRONG_TASK)


def with_truncation(content: Any, num_truncated: int) -> JsonAnswer:
    """An answer, and how many of its inputs were cut in the header."""
    return JsonAnswer(content, headers={TRUNCATED_HEADER: str(num_truncated)})


def num_truncated(answers: Sequence[TaskAnswer]) -> int:
    """How many answers are on a text that was cut."""
    return sum(one.read.truncated for one in answers)
