"""What vectors answer: a vector or a similarity, and how well they find what belongs together.

N examples, H width.  All similarities are cosines.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features
from tidybert.errors import DataError
from tidybert.metrics.retrieval_scores import (
    Floats,
    Ranking,
    mean_scores,
    rank_relevant,
    retrieval_scores,
)
from tidybert.metrics.text_scores import regression_metrics
from tidybert.tasks.answer import Embedded
from tidybert.tasks.answers import Answers, Indices, Judgement, Outputs, Search
from tidybert.tasks.task import AnyTask
from tidybert.tasks.vectors.vector_examples import VectorExample, form_of

Vectors = npt.NDArray[np.float32]


class VectorAnswers(Answers[AnyTask, VectorExample]):
    """Answers from the vectors (n, H) of each example's texts."""

    @cached_property
    def directions(self) -> list[Vectors]:
        """The same, scaled to length 1; a vector of zeros stays as it is."""
        return [_normalized(each) for each in self.outputs]

    def prediction(self, number: int) -> Embedded:
        if len(self.outputs[number]) == 1:
            return Embedded(vector=self.outputs[number][0].tolist())
        return Embedded(similarity=min(max(self.cosine(number), -1.0), 1.0))

    def cosine(self, number: int) -> float:
        """That of an example's first two texts."""
        first, second = self.directions[number][:2]
        return float(first.astype(np.float64) @ second)

    def place(self, number: int) -> dict[str, Any]:
        """The fields of every judgement that do not depend on the answer."""
        return {
            "confidence": None,
            "expected_probability": None,
            "num_tokens": self.first_features[number].num_tokens,
            "row": self.examples[number].row,
        }


class ScoredAnswers(VectorAnswers):
    """Cosines, compared with scores."""

    @cached_property
    def cosines(self) -> Floats:
        return np.array([self.cosine(number) for number in range(len(self.examples))])

    @cached_property
    def scores(self) -> Floats:
        return np.array([one.score for one in self.examples], dtype=np.float64)

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        which = slice(None) if chosen is None else chosen
        found = regression_metrics(self.scores[which], self.cosines[which])
        # A score may have any unit.
        return {name: found[name] for name in ("spearman", "pearson")}

    @cached_property
    def in_their_unit(self) -> Floats:
        """(N,) the cosines on the line that fits the scores best, so that both can be compared."""
        if np.ptp(self.cosines) == 0:
            return np.full(len(self.cosines), self.scores.mean())
        slope, start = np.polyfit(self.cosines, self.scores, 1)
        return np.asarray(slope * self.cosines + start)

    def judgement(self, number: int) -> Judgement:
        return Judgement(
            text="\n".join(self.examples[number].texts),
            expected=repr(float(self.scores[number])),
            predicted=repr(float(self.in_their_unit[number])),
            correct=None,
            **self.place(number),
        )


class RankedAnswers(VectorAnswers):
    """Searches: a query an example, whose right texts are known.

    A subclass gives ``ranking``, and:

    query_of: (N,) the number of each example's query; -1 where nothing belongs to it.
    num_texts: those that are searched.
    """

    ranking: Ranking
    query_of: Indices
    num_texts: int

    def searches(self) -> list[Search]:
        """One a query, where some text is right and some is not."""
        ranking = self.ranking
        names = self.searched_texts()
        return [
            Search(
                self.query_text(number),
                names[int(ranking.nearest_right[number])],
                float(ranking.best_right_score[number]),
                names[int(ranking.best_wrong[number])],
                float(ranking.best_wrong_score[number]),
            )
            for number in range(len(ranking.ranks))
        ]

    def searched_texts(self) -> Sequence[str]:
        """All texts that are searched."""
        raise NotImplementedError

    def query_text(self, number: int) -> str:
        """The text of a query."""
        raise NotImplementedError

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """The scores of each query by name."""
        return retrieval_scores(self.ranking.ranks)

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        if not len(self.ranking.ranks):
            raise DataError("no two examples have one label, so there is nothing to find")
        if chosen is None:
            counts = {"num_queries": len(self.ranking.ranks), "num_texts": self.num_texts}
            return {**mean_scores(self.scores), **counts}
        queries = self.query_of[chosen]
        queries = queries[queries >= 0]
        if not len(queries):
            return dict.fromkeys(self.scores, 0.0)
        # Examples of one query share its weight.
        sizes = np.bincount(self.query_of[self.query_of >= 0])
        drawn = {name: each[queries] for name, each in self.scores.items()}
        return mean_scores(drawn, 1 / sizes[queries])


class PairAnswers(RankedAnswers):
    """The first text of each pair is a query among all other texts of all examples."""

    def __init__(
        self,
        task: AnyTask,
        outputs: Outputs,
        features: Sequence[Features],
        examples: Sequence[VectorExample],
    ) -> None:
        super().__init__(task, outputs, features, examples)
        queries = dict.fromkeys(one.texts[0] for one in examples)
        texts = dict.fromkeys(text for one in examples for text in one.texts[1:])
        #: Each query, and each text that is searched, once.
        self.queries, self.texts = list(queries), list(texts)
        self.num_texts = len(texts)
        query_numbers = {text: number for number, text in enumerate(queries)}
        self._number_of = {text: number for number, text in enumerate(texts)}
        self.query_of = np.array([query_numbers[one.texts[0]] for one in examples])
        self.right: list[list[int]] = [[] for _ in queries]
        for one, query in zip(examples, self.query_of, strict=True):
            number = self._number_of[one.texts[1]]
            if number not in self.right[query]:
                self.right[query].append(number)
        self._more: list[Vectors] = []

    def add_texts(self, texts: Sequence[str], vectors: Sequence[Vectors]) -> int:
        """Search among more texts, of vectors (1, H) each, and return how many are new."""
        before = len(self.texts)
        for text, vector in zip(texts, vectors, strict=True):
            if text not in self._number_of:
                self._number_of[text] = len(self.texts)
                self.texts.append(text)
                self._more.append(_normalized(vector))
        self.num_texts = len(self.texts)
        return self.num_texts - before

    @cached_property
    def ranking(self) -> Ranking:  # type: ignore[override]
        width = self.outputs[0].shape[1]
        queries = np.empty((len(self.queries), width), dtype=np.float32)
        texts = np.empty((len(self.texts), width), dtype=np.float32)
        for one, query, each in zip(self.examples, self.query_of, self.directions, strict=True):
            queries[query] = each[0]
            texts[[self._number_of[text] for text in one.texts[1:]]] = each[1:]
        if self._more:
            texts[-len(self._more) :] = np.concatenate(self._more)
        return rank_relevant(queries, texts, self.right)

    def judgement(self, number: int) -> Judgement:
        one, query = self.examples[number], int(self.query_of[number])
        nearest = int(self.ranking.nearest[query])
        return Judgement(
            text=one.texts[0],
            expected=one.texts[1],
            predicted=self.texts[nearest],
            correct=float(nearest in self.right[query]),
            **self.place(number),
        )

    def searched_texts(self) -> Sequence[str]:
        return self.texts

    def query_text(self, number: int) -> str:
        return self.queries[number]


class LabelAnswers(RankedAnswers):
    """Each text is a query among all others, and those with its label are right."""

    def __init__(
        self,
        task: AnyTask,
        outputs: Outputs,
        features: Sequence[Features],
        examples: Sequence[VectorExample],
    ) -> None:
        super().__init__(task, outputs, features, examples)
        self.num_texts = len(examples)
        members: dict[str | None, list[int]] = {}
        for number, one in enumerate(examples):
            members.setdefault(one.label, []).append(number)
        self._asking = [n for n, one in enumerate(examples) if len(members[one.label]) > 1]
        self.query_of = np.full(len(examples), -1)
        self.query_of[self._asking] = np.arange(len(self._asking))
        self.right = [
            [each for each in members[examples[number].label] if each != number]
            for number in self._asking
        ]

    @cached_property
    def ranking(self) -> Ranking:  # type: ignore[override]
        vectors = np.concatenate(self.directions)
        return rank_relevant(vectors[self._asking], vectors, self.right, self._asking)

    def judgement(self, number: int) -> Judgement:
        one, query = self.examples[number], int(self.query_of[number])
        nearest = None if query < 0 else self.examples[int(self.ranking.nearest[query])].label
        return Judgement(
            text=one.texts[0],
            expected=str(one.label),
            predicted=str(nearest),
            correct=float(nearest == one.label),
            **self.place(number),
        )

    def searched_texts(self) -> Sequence[str]:
        return [one.texts[0] for one in self.examples]

    def query_text(self, number: int) -> str:
        return self.examples[self._asking[number]].texts[0]


def answers_of(
    task: AnyTask,
    outputs: Outputs,
    features: Sequence[Features],
    examples: Sequence[VectorExample],
) -> VectorAnswers:
    """The answers to examples, by what they hold."""
    kinds: dict[str, type[VectorAnswers]] = {
        "pairs": PairAnswers,
        "scores": ScoredAnswers,
        "labels": LabelAnswers,
        "texts": LabelAnswers,
    }
    return kinds[form_of(examples)](task, outputs, features, examples)


def _normalized(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions: Vectors = vectors / np.maximum(lengths, 1e-12)
    return directions
