"""Scores of a search: where the relevant texts of each query are among all texts.

Exact, from all products.  The scores are those of trec_eval and of sentence-transformers'
InformationRetrievalEvaluator, for texts that are relevant or not.  Q queries, N texts, d width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

import numpy as np
import numpy.typing as npt

from tidybert.metrics.metric import Metric, declared

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

RECALLS: Final = (1, 10, 100)
CUT: Final = 10
"""Texts that MRR@10 and nDCG@10 look at."""
_QUERIES_AT_ONCE: Final = 256


@declared
class VectorScores(TypedDict, total=False):
    """Correlations of pairs with scores; otherwise the scores of a search."""

    spearman: Annotated[
        float,
        Metric("correlation of the ranks of cosines and scores; 0 is chance, 1 is perfect", -1),
    ]
    pearson: Annotated[float, Metric("linear correlation of cosines and scores", -1)]
    ndcg_at_10: Annotated[
        float, Metric("gain of the right texts among the nearest 10, discounted by rank")
    ]
    mrr_at_10: Annotated[
        float, Metric("mean of 1 / rank of the first right text, 0 beyond the nearest 10")
    ]
    map: Annotated[float, Metric("mean average precision over the ranks of all right texts")]
    accuracy_at_1: Annotated[float, Metric("share of the queries whose nearest text is right")]
    recall_at_1: Annotated[float, Metric("share of the right texts that are the nearest")]
    recall_at_10: Annotated[float, Metric("share of the right texts among the nearest 10")]
    recall_at_100: Annotated[float, Metric("share of the right texts among the nearest 100")]
    num_queries: int
    num_texts: int


@dataclass(frozen=True)
class Ranking:
    """Where a search finds the relevant texts of Q queries, (Q,) each but the ranks, from 1.

    A score is -inf where all texts are relevant.
    """

    ranks: Sequence[Indices]
    nearest: Indices
    nearest_right: Indices
    best_wrong: Indices
    best_wrong_score: Floats
    best_right_score: Floats


def rank_relevant(
    queries: npt.NDArray[np.float32],
    texts: npt.NDArray[np.float32],
    relevant: Sequence[Sequence[int]],
    itself: Sequence[int] | None = None,
) -> Ranking:
    """Rank all texts (N, d) for each query (Q, d) by product; of equal ones the first comes first.

    relevant: of each query, one at least.  itself: (Q,) the text that is the query, not searched.
    """
    ranks: list[Indices] = []
    nearest, right, wrong = np.zeros((3, len(queries)), dtype=np.int64)
    best_wrong, best_right = np.zeros((2, len(queries)))
    for begin in range(0, len(queries), _QUERIES_AT_ONCE):
        block = queries[begin : begin + _QUERIES_AT_ONCE] @ texts.T
        for number, scores in enumerate(block, start=begin):
            if itself is not None:
                scores[itself[number]] = -np.inf
            places = np.array(relevant[number], dtype=np.int64)
            found = [
                1
                + np.count_nonzero(scores > scores[place])
                + np.count_nonzero(scores[:place] == scores[place])
                for place in places
            ]
            ranks.append(np.sort(np.array(found, dtype=np.int64)))
            nearest[number] = scores.argmax()
            right[number] = places[scores[places].argmax()]
            best_right[number] = scores[right[number]]
            scores[places] = -np.inf
            wrong[number], best_wrong[number] = scores.argmax(), scores.max()
    return Ranking(ranks, nearest, right, wrong, best_wrong, best_right)


def retrieval_scores(ranks: Sequence[Indices]) -> dict[str, Floats]:
    """The scores (Q,) by name, from ascending ranks; their means are the VectorScores."""
    discounts = 1 / np.log2(np.arange(2, CUT + 2))
    best = np.cumsum(discounts)
    scores: dict[str, list[float]] = {
        "accuracy_at_1": [],
        **{f"recall_at_{k}": [] for k in RECALLS},
        f"mrr_at_{CUT}": [],
        f"ndcg_at_{CUT}": [],
        "map": [],
    }
    for each in ranks:
        first, seen = int(each[0]), each[each <= CUT]
        scores["accuracy_at_1"].append(float(first == 1))
        for k in RECALLS:
            scores[f"recall_at_{k}"].append(float(np.mean(each <= k)))
        scores[f"mrr_at_{CUT}"].append(1 / first if first <= CUT else 0.0)
        gain = discounts[seen - 1].sum()
        scores[f"ndcg_at_{CUT}"].append(float(gain / best[min(len(each), CUT) - 1]))
        scores["map"].append(float(np.mean(np.arange(1, len(each) + 1) / each)))
    return {name: np.array(values) for name, values in scores.items()}


def mean_scores(scores: Mapping[str, Floats], weights: Floats | None = None) -> dict[str, float]:
    """The (weighted) mean over the queries of each score."""
    return {name: float(np.average(each, weights=weights)) for name, each in scores.items()}
