"""Answers of different lengths, one an example."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


class RaggedRows(list[T]):
    """A list that NumPy takes for an array (n,) of objects.

    So scikit-learn can put the answers of several folds together.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = np.empty(len(self), dtype=object)
        for place, row in enumerate(self):
            found[place] = row
        return found
