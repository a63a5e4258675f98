"""Scores of answers to questions: exact match and F1 by the official rules of SQuAD 1.1 and 2.0.

The rules are those of the two evaluation scripts (Rajpurkar et al. 2016, section 6; Rajpurkar et
al. 2018), which treat an answer without a word differently.  Scores are shares from 0 to 1; the
scripts print percent.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Final, NamedTuple, Required, TypedDict

import numpy as np
import numpy.typing as npt

from tidybert.metrics.metric import Metric, declared
from tidybert.metrics.text_scores import Floats

Bools = npt.NDArray[np.bool_]

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_SPLIT: Final = ("has_ans", "no_ans")


@declared
class QuestionScores(TypedDict, total=False):
    """SQuAD 1.1's two scores, and 2.0's where a model may give no answer."""

    exact_match: Required[
        Annotated[float, Metric("fraction of the answers that are right to the word")]
    ]
    f1: Required[Annotated[float, Metric("mean overlap in words with the right answer")]]
    has_ans_exact: Annotated[float, Metric("exact match where there is an answer")]
    has_ans_f1: Annotated[float, Metric("F1 where there is an answer")]
    has_ans_total: int
    no_ans_exact: float
    no_ans_f1: Annotated[float, Metric("fraction found to have no answer, of those without")]
    no_ans_total: int
    best_exact: Annotated[float, Metric("exact match with the best threshold for no answer")]
    best_exact_threshold: float
    best_f1: Annotated[float, Metric("F1 with the best threshold for no answer")]
    best_f1_threshold: float


class BestThreshold(NamedTuple):
    """The best score that a threshold can give, and the thresholds that give it.

    A question is answered if its difference is at most the threshold.  Any threshold from ``lower``
    on and below ``upper`` gives the score.  ``lower`` is -inf if no question is answered, and
    ``upper`` inf if all are.
    """

    score: float
    lower: float
    upper: float

    @property
    def official(self) -> float:
        """The script's threshold: ``lower``, or if no question is answered 0 or below."""
        if np.isfinite(self.lower):
            return self.lower
        return 0.0 if self.upper > 0 else self.upper - 1

    @property
    def middle(self) -> float:
        """A threshold between two questions' differences, so that rounding changes no answer."""
        if not np.isfinite(self.lower):
            return self.official
        return self.lower + min(1.0, (self.upper - self.lower) / 2)


def normalize_answer(text: str) -> str:
    """The text in lower case, without ASCII punctuation, articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def answer_scores(
    predictions: Sequence[str], answers: Sequence[Sequence[str]], *, no_answers: bool
) -> Floats:
    """(B, 2) exact match and F1 of each prediction, the best over the right answers.

    ``no_answers``: by SQuAD 2.0, where a right answer without a word (such as "the") does not
    count, and two texts without a word are equal.  Raises ValueError for no answer by 1.1.
    """
    scores = np.zeros((len(predictions), 2))
    for number, (prediction, right) in enumerate(zip(predictions, answers, strict=True)):
        golds = [_words(text) for text in right]
        if no_answers:
            golds = [words for words in golds if words] or [()]
        if not golds:
            raise ValueError(f"question {number} has no answer, which SQuAD 1.1 does not know")
        words = _words(prediction)
        scores[number] = (
            max(words == gold for gold in golds),
            max(_f1(words, gold, empty_alike=no_answers) for gold in golds),
        )
    return scores


def squad_metrics(scores: Floats) -> dict[str, float]:
    """exact_match and f1, the means of (B, 2) ``answer_scores``."""
    exact, f1 = scores.mean(axis=0)
    return {"exact_match": float(exact), "f1": float(f1)}


def no_answer_metrics(
    scores: Floats,
    has_answer: Bools,
    answered: Bools | None = None,
    differences: Floats | None = None,
    threshold: float = 0.0,
) -> dict[str, float]:
    """The metrics of SQuAD 2.0, from (B, 2) ``answer_scores`` without a threshold.

    has_answer, answered: (B,) whether the question, and the model, has one.
    differences: (B,) how much higher "no answer" scores than the answer; above ``threshold`` they
    turn the answer into "no answer".
    """
    given = scores
    if differences is not None:
        given = np.where((differences > threshold)[:, None], ~has_answer[:, None], scores)
    metrics = squad_metrics(given)
    for name, chosen in zip(_SPLIT, (has_answer, ~has_answer), strict=True):
        total = int(chosen.sum())
        exact, f1 = map(float, given[chosen].mean(axis=0)) if total else (0.0, 0.0)
        metrics |= {f"{name}_exact": exact, f"{name}_f1": f1, f"{name}_total": total}
    if differences is not None:
        assert answered is not None
        for name, column in (("exact", 0), ("f1", 1)):
            best = best_threshold(scores[:, column], has_answer, answered, differences)
            metrics |= {f"best_{name}": best.score, f"best_{name}_threshold": best.official}
    return metrics


def best_threshold(
    scores: Floats, has_answer: Bools, answered: Bools, differences: Floats
) -> BestThreshold:
    """The thresholds over ``differences`` with the best mean score; the lowest of equal ones.

    As in the official script, any text for a question without an answer scores 0.  Questions of
    equal difference are answered together; that script may stop between them.
    """
    order = np.argsort(differences, kind="stable")
    sorted_differences = differences[order]
    # Begins with no question answered; an answer adds its gain to the score.
    gains = np.where(has_answer, scores, np.where(answered, -1.0, 0.0))[order]
    totals = np.concatenate([[0.0], np.cumsum(gains)]) + float((~has_answer).sum())
    ends = np.append(np.flatnonzero(np.diff(sorted_differences)) + 1, len(order))
    places = np.concatenate([[0], ends])
    best = int(places[np.argmax(totals[places])])
    return BestThreshold(
        float(totals[best] / len(order)),
        float(sorted_differences[best - 1]) if best else -np.inf,
        float(sorted_differences[best]) if best < len(order) else np.inf,
    )


@lru_cache(maxsize=2**16)
def _words(text: str) -> tuple[str, ...]:
    return tuple(normalize_answer(text).split())


def _f1(words: tuple[str, ...], gold: tuple[str, ...], *, empty_alike: bool) -> float:
    if empty_alike and not (words and gold):
        return float(words == gold)
    common = (Counter(words) & Counter(gold)).total()
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(gold)
    return 2 * precision * recall / (precision + recall)
