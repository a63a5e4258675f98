"""X, y and sample_weight as users hand them in: checked, with guesses at what went wrong."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tidybert.errors import DataError
from tidybert.files.rows import count_of, json_type
from tidybert.files.text_examples import canonical_label

Text = tuple[str, ...]
"""The one or two texts of an example."""

_TEXTS = (
    "expected texts: a list, array or Series of strings, or for pairs of texts a list of "
    "(text, text_pair) or an array of shape (n, 2)"
)
_INDICATORS = (
    "expected one label an example, or for any number of labels a column of 0 and 1 for each"
)


def read_texts(X: Any) -> list[Text]:
    """The texts of each example, (text,) for all of them or (text, text_pair) for all.

    Raises DataError for anything but strings, missing values and no examples at all.
    """
    rows = _rows(X)
    if not rows:
        raise DataError(f"X is empty: {_TEXTS} (did a filter before drop every row?)")
    texts = [tuple(row) if isinstance(row, list | tuple | np.ndarray) else (row,) for row in rows]
    width = len(texts[0])
    if width not in (1, 2):
        raise DataError(
            f"X[0] holds {width} values: {_TEXTS} (choose the columns with the texts; join "
            "tokens with ' '.join(...))"
        )
    for index, row in enumerate(texts):
        if len(row) != width:
            raise DataError(
                f"X[{index}] holds {len(row)} values, but X[0] holds {width}: give each example "
                "a pair of texts, or none of them"
            )
    cells = ((index, value) for index, row in enumerate(texts) for value in row)
    wrong = [(index, value) for index, value in cells if not isinstance(value, str)]
    missing = [index for index, value in wrong if is_missing(value)]
    if missing:
        raise DataError(
            f"X has {count_of(len(missing), 'missing text')} (None or NaN), the first at "
            f"X[{missing[0]}]: drop these rows from X and y, or fill them, X.fillna('')"
        )
    for index, value in wrong[:1]:
        raise DataError(
            f"X[{index}] is {value!r:.40}, of type {type(value).__name__}: {_TEXTS}; convert with "
            "str, or decode bytes"
        )
    return texts


def check_width(texts: Sequence[Text], expected: int, estimator: str) -> None:
    """Raise DataError for pairs after a fit on single texts, and the other way round."""
    if len(texts[0]) != expected:
        kinds = ("", "single texts", "pairs of texts")
        raise DataError(
            f"X holds {kinds[len(texts[0])]}, but this {estimator} was fitted on {kinds[expected]}"
        )


def column_names(X: Any) -> npt.NDArray[Any] | None:
    """The names of a DataFrame's columns, as scikit-learn's feature_names_in_; None elsewhere."""
    read: Any = BaseEstimator()
    validate_data(read, X, skip_check_array=True, ensure_2d=False)
    found: npt.NDArray[Any] | None = getattr(read, "feature_names_in_", None)
    return found


def check_column_names(estimator: Any, X: Any) -> None:
    """Raise ValueError, from scikit-learn, for other columns, or in another order, than in fit."""
    validate_data(estimator, X, reset=False, skip_check_array=True, ensure_2d=False)


def text_tags(tags: Any) -> Any:
    """scikit-learn's tags of an estimator, changed to say that it takes texts and no numbers."""
    tags.input_tags.string = True
    tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = False
    return tags


def read_column(y: Any, num_texts: int) -> npt.NDArray[Any]:
    """``y`` as an array (n,), of the dtype that NumPy gives it.

    Raises DataError for missing values and another length than X's; ValueError, from scikit-learn,
    for more than one dimension.
    """
    column: npt.NDArray[Any] = column_or_1d(_with_its_types(y), warn=True)
    _check_length(column, num_texts, "value")
    # NumPy would turn the other values of a list with strings into strings: None into "None".
    values = column.tolist() if hasattr(y, "dtype") else np.array(y, dtype=object).ravel().tolist()
    missing = [index for index, value in enumerate(values) if is_missing(value)]
    if missing:
        raise DataError(
            f"y has {count_of(len(missing), 'missing value')} (None or NaN), the first at "
            f"y[{missing[0]}]: drop these rows from X and y"
        )
    for value in values:
        # NumPy makes a text of such a member, "Team.BILLING", and may cut it.
        if isinstance(value, Enum) and not isinstance(value, int) and str(value) != value.value:
            raise DataError(
                f"y holds members of the enum {type(value).__name__}, and NumPy has no such "
                "values: give theirs, [one.value for one in y]; tidybert.finetune takes members"
            )
    kinds = {"str" if isinstance(value, str) else type(value).__name__ for value in values}
    if "str" in kinds and len(kinds) > 1:
        raise DataError(
            f"y mixes values of types {', '.join(sorted(kinds))}: expected values of one type; "
            "convert them all to str"
        )
    return column


def read_labels(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The classes, sorted, (C,) of the column's dtype, and the class of each example, (n,).

    Raises DataError for labels that cannot be sorted and for fewer than two classes; ValueError,
    from scikit-learn, for continuous values.
    """
    plain = np.asarray(column.tolist()) if column.dtype == object else column
    if plain.dtype.kind in "biufcUS":
        check_classification_targets(plain)
    try:
        classes, ids = np.unique(column, return_inverse=True)
    except TypeError as error:
        raise DataError(
            f"the labels in y cannot be sorted ({error}): expected labels of one type, str, int or "
            "bool"
        ) from error
    if len(classes) < 2:
        raise DataError(
            f"y has one class only, {classes.tolist()[0]!r}: expected at least two (if the data "
            "are sorted by label and then cut, shuffle them first or split with stratify=y; "
            "examples of weight 0 do not count)"
        )
    return classes, ids


def is_matrix(y: Any) -> bool:
    """True if y has several values for an example; a matrix of one column has one."""
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
    values = y.toarray() if issparse(y) else _matrix(y)
    _check_length(values, num_texts, "row")
    if values.shape[1] < 2:
        raise DataError(f"y has the shape {values.shape}: {_INDICATORS}, two labels at least")
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
                f"{_INDICATORS}. For several classes an example (multiclass-multioutput) wrap the "
                "estimator in sklearn.multioutput.MultiOutputClassifier, which fits one a column"
            )
    if not (values == 1).any():
        raise DataError(f"y of shape {values.shape} is 0 everywhere: no example has a label")
    names = getattr(y, "columns", None)
    labels = np.arange(values.shape[1]) if names is None else np.array(list(names))
    return np.asarray(values == 1), labels


def read_scores(column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Finite numbers (n,), not all equal; raises DataError or ValueError for anything else."""
    wrong = [value for value in column.tolist() if isinstance(value, str)]
    if wrong:
        raise DataError(
            f"y holds strings, for example {wrong[0]!r:.40}: expected numbers (for classes take "
            "BertClassifier; turn the text of a number into one with float)"
        )
    try:
        scores = np.array([float(value) for value in column.tolist()])
    except (TypeError, ValueError) as error:
        raise DataError(f"y holds values that are not numbers: {error}") from error
    assert_all_finite(scores, input_name="y")
    if (scores == scores[0]).all():
        raise DataError(
            f"y is {scores[0]:g} in all of {count_of(len(scores), 'sample')}: nothing is left to "
            "learn (is y the right column?)"
        )
    return scores


def read_weights(sample_weight: Any, num_texts: int) -> npt.NDArray[np.float64]:
    """The weight of each example, (n,); 1 for all where ``sample_weight`` is None.

    Raises DataError for another length, negative or infinite weights, and weights that are all 0.
    """
    if sample_weight is None:
        return np.ones(num_texts)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (num_texts,):
        raise DataError(
            f"sample_weight has the shape {weights.shape}: expected ({num_texts},), one weight for "
            "each example of X"
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"sample_weight[{wrong[0]}] is {weights[wrong[0]]}: expected finite numbers of at "
            "least 0"
        )
    if not weights.any():
        raise DataError("every weight in sample_weight is zero: nothing is left to train on")
    return weights


def label_names(classes: npt.NDArray[Any]) -> list[str]:
    """How files and tidybert.json spell each class: 1 and 1.0 are "1", True is "true".

    Raises DataError for two classes with one spelling, and for a class without any.
    """
    names: dict[str, Any] = {}
    for label in classes.tolist():
        name = canonical_label(label)
        if name is None and not isinstance(label, str):
            name = str(label)
        if not name:
            what = "empty: a missing value?"
            if isinstance(label, str) and label.strip():
                what = f"{json_type(label)}."
            raise DataError(
                f"y has the label {label!r}, which is {what} Drop these rows, or give the class a "
                "name"
            )
        if name in names:
            raise DataError(
                f"the labels {names[name]!r} and {label!r} in y look the same: strip white space "
                "from the labels, y.str.strip()"
            )
        names[name] = label
    return list(names)


def _rows(X: Any) -> list[Any]:
    if isinstance(X, str | bytes):
        raise DataError(f"X is one {type(X).__name__}: {_TEXTS}; wrap it in a list, [text]")
    if issparse(X):
        raise DataError(
            f"X is a sparse matrix of shape {X.shape}: {_TEXTS}. Does a vectorizer "
            "(CountVectorizer, TfidfVectorizer) come before? Take it out: BERT has its vocabulary"
        )
    if isinstance(X, Mapping):
        raise DataError(f"X is a {type(X).__name__}: {_TEXTS}; give one column, X['text']")
    if hasattr(X, "__array__"):
        array = np.asarray(X)
        if array.dtype.kind in "biufcmM" and array.size:
            guess = (
                "are X and y swapped?"
                if array.ndim == 1
                else "does a vectorizer or an encoder come before? Take it out"
            )
            raise DataError(
                f"X holds numbers ({array.dtype}, shape {array.shape}): {_TEXTS} ({guess})"
            )
        if array.ndim not in (1, 2):
            raise DataError(f"X has the shape {array.shape}: {_TEXTS}")
        rows: list[Any] = array.tolist()
        return rows
    try:
        return list(X)
    except TypeError:
        raise DataError(f"X is {X!r:.40}, of type {type(X).__name__}: {_TEXTS}") from None


def _with_its_types(y: Any) -> Any:
    """Booleans and integers of pandas' nullable and Arrow types, of which NumPy makes floats."""
    if getattr(y, "ndim", 0) == 1 and not isinstance(y.dtype, np.dtype):
        values = y.tolist()
        if {type(value) for value in values} in ({bool}, {int}):
            return np.array(values)
    return y


def _check_length(y: npt.NDArray[Any], num_texts: int, entry: str) -> None:
    if len(y) != num_texts:
        raise DataError(
            f"X has {num_texts} examples and y has {len(y)}: expected one {entry} of y for each "
            "example of X, in order"
        )


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or one of pandas' marks for a missing value."""
    # Marks of pandas are recognised by name, because pandas need not be installed.
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def _matrix(y: Any) -> npt.NDArray[Any]:
    try:
        values = np.array(y)
    except ValueError:
        values = np.empty(0)
    if values.ndim != 2 or values.dtype.kind in "US":
        raise DataError(
            f"y holds lists: {_INDICATORS}. Lists of labels become such columns with "
            "MultiLabelBinarizer().fit_transform(y)"
        )
    return values


# Answers of different lengths, one an example.

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
