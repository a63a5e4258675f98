"""Y as users hand it in for any number of labels a text: a column of 0 and 1 for each label."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from tidybert.errors import DataError
from tidybert.estimators.checked_inputs import is_missing

_EXPECTED = (
    "expected one label an example, or for any number of labels a column of 0 and 1 for each"
)


def is_matrix(y: Any) -> bool:
    """Whether y has several values for an example; a matrix of one column is a column."""
    shape = getattr(y, "shape", None)
    if shape is not None:
        return len(shape) == 2 and (issparse(y) or shape[1] != 1)
    rows = list(y) if isinstance(y, list | tuple) else []
    return any(isinstance(row, list | tuple | set | np.ndarray) and len(row) != 1 for row in rows)


def read_indicators(y: Any, num_texts: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """The indicators (n, L) of a matrix, and its labels (L,), as ``classes_`` has them.

    The labels are the names of a DataFrame's columns, else 0 to L - 1, as in scikit-learn.  Raises
    DataError for other values than 0 and 1, another length than X's, and a matrix without a 1.
    """
    values = y.toarray() if issparse(y) else _array(y)
    if len(values) != num_texts:
        raise DataError(
            f"X has {num_texts} examples and y has {len(values)}: expected one row of y for each "
            "example of X, in the same order"
        )
    if values.shape[1] < 2:
        raise DataError(f"y is a matrix of shape {values.shape}: {_EXPECTED}, two labels at least")
    cells = values.tolist()
    for row, column in np.ndindex(values.shape):
        cell = cells[row][column]
        if is_missing(cell):
            raise DataError(
                f"y[{row}, {column}] is missing (None or NaN): drop such rows from X and y"
            )
        if cell not in (0, 1):
            raise DataError(
                f"y has the shape {values.shape} and y[{row}, {column}] is {cell!r:.40}: "
                f"{_EXPECTED}. For several classes an example (multiclass-multioutput) wrap the "
                "estimator in sklearn.multioutput.MultiOutputClassifier, which fits one a column"
            )
    if not (values == 1).any():
        raise DataError(f"y of shape {values.shape} is 0 everywhere: no example has a label")
    names = getattr(y, "columns", None)
    labels = np.arange(values.shape[1]) if names is None else np.array(list(names))
    return np.asarray(values == 1), labels


def _array(y: Any) -> npt.NDArray[Any]:
    try:
        values = np.array(y)
    except ValueError:
        values = np.empty(0)
    if values.ndim != 2 or values.dtype.kind in "US":
        raise DataError(
            f"y holds lists: {_EXPECTED}. Lists of labels become such columns with "
            "MultiLabelBinarizer().fit_transform(y)"
        )
    return values
