"""A cross-encoder orders what a search found: it reads query and text together."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidybert.errors import UsageError
from tidybert.inference.predictor import Predictor
from tidybert.search.hit import Hit


class CrossEncoder:
    """A finished RUN over pairs (query, text): the score of ``regress``, or a class's probability.

    Args:
        run: of ``regress``, or of ``classify`` with two classes, of which the second says that the
            text answers the query.
        device, allow_pickle: as ``Predictor`` has them.

    Raises UsageError for a RUN of another task or of single texts, and what ``Predictor`` raises.
    """

    def __init__(
        self, run: str | Path, *, device: str = "auto", allow_pickle: bool = False
    ) -> None:
        self.predictor = Predictor(run, device=device, allow_pickle=allow_pickle)
        task = self.predictor.task
        names = task.names
        is_fit = task.name == "regress" or (task.name == "classify" and len(names) == 2)
        if not is_fit or self.predictor.metadata.inputs not in (None, "pair"):
            classes = f" with {len(names)} classes" if names else ""
            inputs = self.predictor.metadata.inputs
            of_texts = f" on single inputs ({inputs})" if inputs not in (None, "pair") else ""
            raise UsageError(
                f"{run} was trained to {task.name}{classes}{of_texts}: to order texts give a RUN "
                "of regress over pairs (query, text), or of classify over pairs with two classes"
            )
        self._best = names[1] if task.name == "classify" else None

    def scores(self, query: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n,): how well each text answers the query; higher is better."""
        task = self.predictor.task
        examples = task.from_texts([query] * len(texts), list(texts))
        answers = self.predictor.predict_stream(examples)
        if self._best is None:
            return np.array([each["value"] for each in answers], dtype=np.float64)
        return np.array([each["scores"][self._best] for each in answers], dtype=np.float64)

    def ordered(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits with their scores, the best first; equal ones stay in their order."""
        scores = self.scores(query, [each.text for each in hits])
        order = np.argsort(-scores, kind="stable")
        return [replace(hits[at], rerank_score=float(scores[at])) for at in order]
