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


# The keys of each task's metrics, for programs and type checkers; loads no torch.
#
# ``tidybert.evaluate`` gives them together with the counts of how the data were read.


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


class ClassMetrics(Counts):
    """classify: see ``metrics.classification_scores``; f1 is that of the second of two classes."""

    accuracy: float
    macro_f1: float
    matthews: float
    f1: NotRequired[float]
    log_loss: float
    confusion_matrix: list[list[int]]
    per_label: dict[str, dict[str, float]]


class LabelSetMetrics(Counts):
    """classify with multi_label: see ``metrics.multi_label_scores``.

    A label's threshold in per_label is None where none was tuned.
    """

    micro_f1: float
    macro_f1: float
    subset_accuracy: float
    hamming_loss: float
    macro_average_precision: float
    per_label: dict[str, dict[str, float | None]]


class ScoreMetrics(Counts):
    """regress: see ``metrics.regression_scores``."""

    pearson: float
    spearman: float
    mse: float


class ChoiceMetrics(Counts):
    """choose: the share of right choices, and the mean loss."""

    accuracy: float
    log_loss: float


class SpanMetrics(Counts):
    """answer: SQuAD 1.1's two metrics, and 2.0's where a model may give no answer."""

    exact_match: float
    f1: float
    has_ans_exact: NotRequired[float]
    has_ans_f1: NotRequired[float]
    has_ans_total: NotRequired[int]
    no_ans_exact: NotRequired[float]
    no_ans_f1: NotRequired[float]
    no_ans_total: NotRequired[int]
    best_exact: NotRequired[float]
    best_exact_threshold: NotRequired[float]
    best_f1: NotRequired[float]
    best_f1_threshold: NotRequired[float]


class TagMetrics(Counts):
    """tag: precision, recall and f1 of entities, or macro_f1 of tags that mark none."""

    accuracy: float
    precision: NotRequired[float]
    recall: NotRequired[float]
    f1: NotRequired[float]
    macro_f1: NotRequired[float]
    per_label: dict[str, dict[str, float]]


class VectorMetrics(Counts):
    """embed: correlations of pairs with scores; else see ``metrics.retrieval_scores``."""

    spearman: NotRequired[float]
    pearson: NotRequired[float]
    accuracy_at_1: NotRequired[float]
    recall_at_1: NotRequired[float]
    recall_at_10: NotRequired[float]
    recall_at_100: NotRequired[float]
    mrr_at_10: NotRequired[float]
    ndcg_at_10: NotRequired[float]
    map: NotRequired[float]
    num_queries: NotRequired[int]
    num_texts: NotRequired[int]
