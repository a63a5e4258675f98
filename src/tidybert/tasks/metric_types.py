"""The keys of each task's metrics, for programs and type checkers; loads no torch.

``tidybert.evaluate`` gives them together with the counts of how the data were read.
"""

from typing import NotRequired, TypedDict


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
