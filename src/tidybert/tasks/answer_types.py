"""The keys of each task's answers and metrics, for programs and type checkers; loads no torch.

A label is what training was given: a text, or an integer, a boolean, a member of an enum.
"""

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from tidybert.metrics.entity_scores import TagScores
from tidybert.metrics.retrieval_scores import VectorScores
from tidybert.metrics.squad_scores import QuestionScores
from tidybert.metrics.text_scores import ChoiceScores, ClassScores, LabelSetScores, NumberScores
from tidybert.tasks.answer import FoundEntity, RankedSpan

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Answer = TypeVar("Answer", default=dict[str, Any])
else:
    from typing import TypeVar

    Answer = TypeVar("Answer")

# --- answers, written from tasks/answer.py


class Read(TypedDict):
    """How an input was read: its tokens before truncation, and whether it was cut."""

    num_tokens: int
    truncated: bool


class ClassAnswer(Read):
    """classify: the likeliest class, or None, its probability, and that of every class."""

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


# --- metrics


class Counts(TypedDict):
    """How many examples there were, and how many of them were cut or read in windows.

    num_trained_on: those among them that trained the model, where a RUN recorded it.  computed_in:
    float32, bfloat16 or float16.
    """

    num_examples: int
    num_truncated: int
    num_windowed: int
    num_windows: int
    num_trained_on: NotRequired[int]
    computed_in: str


class ClassMetrics(ClassScores, Counts):
    """classify: f1 is that of the second of two classes."""


class LabelSetMetrics(LabelSetScores, Counts):
    """classify with multi_label: a label's threshold is None where none was tuned."""


class ScoreMetrics(NumberScores, Counts):
    """regress: correlations, and the error."""


class ChoiceMetrics(ChoiceScores, Counts):
    """choose: the share of right choices, and the mean loss."""


class SpanMetrics(QuestionScores, Counts):
    """answer: SQuAD 1.1's two metrics, and 2.0's where a model may give no answer."""


class TagMetrics(TagScores, Counts):
    """tag: precision, recall and f1 of entities, or macro_f1 of tags that mark none."""


class VectorMetrics(VectorScores, Counts):
    """embed: correlations of pairs with scores; else the scores of a search."""
