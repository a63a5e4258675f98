"""The keys of each task's answers, for programs and type checkers; loads no torch.

A label is what training was given: a text, or an integer, a boolean, a member of an enum.
"""

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Answer = TypeVar("Answer", default=dict[str, Any])
else:
    from typing import TypeVar

    Answer = TypeVar("Answer")


class Read(TypedDict):
    """How an input was read: its tokens before truncation, and whether it was cut."""

    num_tokens: int
    truncated: bool


class ClassAnswer(Read):
    """classify: the likeliest class, its probability, and that of every class."""

    label: Any
    score: float
    scores: dict[Any, float]
    num_windows: NotRequired[int]


class LabelSetAnswer(Read):
    """classify with multi_label: the labels given, and the probability of every label."""

    labels: list[Any]
    scores: dict[Any, float]
    num_windows: NotRequired[int]


class ScoreAnswer(Read):
    """regress: the number."""

    value: float
    num_windows: NotRequired[int]


class ChoiceAnswer(Read):
    """choose: the place of the likeliest choice, its text, and the probability of each."""

    choice: int
    text: str
    score: float
    scores: list[float]


class RankedSpan(TypedDict):
    """A possible answer to a question, its characters in the text, and its probability."""

    answer: str
    start: int
    end: int
    score: float


class SpanAnswer(Read):
    """answer: the best answer, "" without characters for none, and the next best ones."""

    id: str
    answer: str
    start: int | None
    end: int | None
    score: float
    n_best: list[RankedSpan]
    null_score: NotRequired[float]
    null_score_diff: NotRequired[float | None]


class FoundEntity(TypedDict):
    """An entity, its characters in the text, and the mean probability of its words' tags."""

    type: str
    text: str
    start: int
    end: int
    score: float


class TagAnswer(Read):
    """tag: the words and their tags; entities, or else the probability of each word's tag."""

    words: list[str]
    tags: list[str]
    entities: NotRequired[list[FoundEntity]]
    scores: NotRequired[list[float]]


class VectorAnswer(Read):
    """embed: the vector of a text, or the cosine of two."""

    vector: NotRequired[list[float]]
    similarity: NotRequired[float]
