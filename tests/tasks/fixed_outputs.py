"""Features without texts, and a model whose outputs are given."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from tidybert.data.features import Features
from tidybert.files.text_examples import TextExample
from tidybert.tasks.answers import Answers


class FixedLogits(nn.Module):
    """Stands for a model: it gives these logits whatever the rows."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, _rows: Any, lower_states: Any = None) -> Tensor:
        return self.logits


def make_features(count: int) -> list[Features]:
    ids, types = np.array([2, 3], dtype=np.int32), np.zeros(2, dtype=np.uint8)
    return [Features(ids, types, 2, example=number) for number in range(count)]


def examples_of(*labels: str | None) -> list[TextExample]:
    """Examples with these labels, from line 2 on."""
    return [TextExample("text", None, label, row) for row, label in enumerate(labels, start=2)]


def rows_of(outputs: Sequence[Sequence[float]]) -> list[npt.NDArray[np.float32]]:
    """The outputs of features, one row each."""
    return [np.array([each], dtype=np.float32) for each in outputs]


def dicts_of(answers: Answers[Any, Any]) -> list[dict[str, Any]]:
    """The keys of each answer, without how its example was read."""
    return [each.own() for each in answers.predictions()]
