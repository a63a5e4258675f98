"""A cross-encoder scores pairs of texts: it reads both together (Nogueira & Cho 2019)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tidybert.errors import UsageError
from tidybert.inference.predictor import Predictor


class CrossEncoder:
    """A finished RUN over pairs of texts: the score of ``regress``, or a class's probability.

    Args:
        predictor: of ``regress``, or of ``classify`` with two classes, of which the second says
            that the second text answers the first.
        name: the RUN, as messages call it.

    Raises UsageError for a RUN of another task or of single texts.
    """

    def __init__(self, predictor: Predictor[Any], name: str | Path) -> None:
        self.predictor = predictor
        task, inputs = predictor.task, predictor.metadata.inputs
        names = task.names
        is_fit = task.name == "regress" or (task.name == "classify" and len(names) == 2)
        if not is_fit or inputs not in (None, "pair"):
            classes = f" with {len(names)} classes" if names else ""
            of_texts = f" on single inputs ({inputs})" if inputs not in (None, "pair") else ""
            raise UsageError(
                f"{name} was trained to {task.name}{classes}{of_texts}: to score pairs of texts "
                "give a RUN of regress over pairs, or of classify over pairs with two classes"
            )
        self._best = names[1] if task.name == "classify" else None

    @classmethod
    def open(cls, run: str | Path, *, device: str = "auto", allow_pickle: bool = False) -> Self:
        """The cross-encoder in a directory; raises what ``Predictor`` raises too."""
        return cls(Predictor(run, device=device, allow_pickle=allow_pickle), run)

    def score(self, answer: Mapping[str, Any]) -> float:
        """That of a pair, from the predictor's answer to it; higher is better."""
        return float(answer["value"] if self._best is None else answer["scores"][self._best])

    def answers(self, firsts: Sequence[str], seconds: Sequence[str]) -> list[dict[str, Any]]:
        """The predictor's answer to each pair of texts."""
        examples = self.predictor.task.from_texts(firsts, seconds)
        return list(self.predictor.predict_stream(examples))

    def scores(self, firsts: Sequence[str], seconds: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n,) the score of each pair of texts."""
        return np.array([self.score(each) for each in self.answers(firsts, seconds)])
