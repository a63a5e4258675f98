"""X, y and sample_weight as users hand them in: checked, with guesses at what went wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from tidybert.errors import DataError
from tidybert.files.labels import canonical_label
from tidybert.files.wording import count_of, json_type

Text = tuple[str, ...]
"""The one or two texts of an example."""

_EXPECTED = (
    "expected texts: a list, array or Series of strings, or for pairs of texts a list of "
    "(text, text_pair) or an array of shape (n, 2)"
)


def read_texts(X: Any) -> list[Text]:
    """The texts of each example, (text,) for all of them or (text, text_pair) for all.

    Raises DataError for anything but strings, missing values and no examples at all.
    """
    rows = _rows(X)
    if not rows:
        raise DataError(f"X is empty: {_EXPECTED} (did a filter before drop every row?)")
    texts = [tuple(row) if isinstance(row, list | tuple | np.ndarray) else (row,) for row in rows]
    width = len(texts[0])
    if width not in (1, 2):
        raise DataError(
            f"X[0] holds {width} values: {_EXPECTED} (choose the columns with the texts; join "
            "tokens with ' '.join(...))"
        )
    for index, cells in enumerate(texts):
        if len(cells) != width:
            raise DataError(
                f"X[{index}] holds {len(cells)} values, but X[0] holds {width}: give each example "
                "a pair of texts, or none of them"
            )
    _check_strings(texts)
    return texts


def check_width(texts: Sequence[Text], expected: int, estimator: str) -> None:
    """Raise DataError for pairs where single texts were fitted, and the other way round."""
    if len(texts[0]) != expected:
        kinds = ("", "single texts", "pairs of texts")
        raise DataError(
            f"X holds {kinds[len(texts[0])]}, but this {estimator} was fitted on {kinds[expected]}"
        )


def text_tags(tags: Any) -> Any:
    """scikit-learn's tags of an estimator, which say here that it takes texts and no numbers."""
    tags.input_tags.string = True
    tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = False
    return tags


def read_column(y: Any, num_texts: int) -> npt.NDArray[Any]:
    """``y`` as an array (n,), of the dtype that NumPy gives it.

    Raises DataError for missing values and another length than X's; ValueError, from scikit-learn,
    for more than one dimension.
    """
    column: npt.NDArray[Any] = column_or_1d(y, warn=True)
    if len(column) != num_texts:
        raise DataError(
            f"X has {num_texts} examples and y has {len(column)}: expected one value of y for each "
            "example of X, in the same order"
        )
    # NumPy would turn the other values of a list with strings into strings: None into "None".
    values = column.tolist() if hasattr(y, "dtype") else np.array(y, dtype=object).ravel().tolist()
    missing = [index for index, value in enumerate(values) if is_missing(value)]
    if missing:
        raise DataError(
            f"y has {len(missing)} missing values (None or NaN), the first at y[{missing[0]}]: "
            "drop these rows from X and y"
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
            f"y has one class only, {classes.tolist()[0]!r}: expected two at least (if the data "
            "are sorted by label and then cut, shuffle them first or split with stratify=y; "
            "examples of weight 0 do not count)"
        )
    return classes, ids


def read_scores(column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Finite numbers (n,), not all alike; raises DataError or ValueError for anything else."""
    wrong = [value for value in column.tolist() if isinstance(value, str)]
    if wrong:
        raise DataError(
            f"y holds strings, {wrong[0]!r:.40} for one: expected numbers (for classes take "
            "BertClassifier; turn the text of a number into one with float)"
        )
    try:
        scores = np.array([float(value) for value in column.tolist()])
    except (TypeError, ValueError) as error:
        raise DataError(f"y holds values that are not numbers: {error}") from error
    assert_all_finite(scores, input_name="y")
    if (scores == scores[0]).all():
        raise DataError(
            f"y is {scores[0]:g} in all of {count_of(len(scores), 'sample')}: there is nothing to "
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
    """How each class is spelled in tidybert.json and in files: 1 and 1.0 are "1", True is "true".

    Raises DataError where two classes would be spelled alike, or one not at all.
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
                f"the labels {names[name]!r} and {label!r} in y are one to a reader: strip white "
                "space from the labels, y.str.strip()"
            )
        names[name] = label
    return list(names)


def _rows(X: Any) -> list[Any]:
    if isinstance(X, str | bytes):
        raise DataError(f"X is one {type(X).__name__}: {_EXPECTED}; wrap it in a list, [text]")
    if issparse(X):
        raise DataError(
            f"X is a sparse matrix of shape {X.shape}: {_EXPECTED}. Is there a vectorizer "
            "(CountVectorizer, TfidfVectorizer) before? Take it out, BERT has its own vocabulary"
        )
    if isinstance(X, Mapping):
        raise DataError(f"X is a {type(X).__name__}: {_EXPECTED}; give one column, X['text']")
    if hasattr(X, "__array__"):
        array = np.asarray(X)
        if array.dtype.kind in "biufcmM" and array.size:
            guess = (
                "are X and y swapped?"
                if array.ndim == 1
                else "is there a vectorizer or an encoder before? Take it out"
            )
            raise DataError(
                f"X holds numbers ({array.dtype}, shape {array.shape}): {_EXPECTED} ({guess})"
            )
        if array.ndim not in (1, 2):
            raise DataError(f"X has the shape {array.shape}: {_EXPECTED}")
        rows: list[Any] = array.tolist()
        return rows
    try:
        return list(X)
    except TypeError:
        raise DataError(f"X is {X!r:.40}, of type {type(X).__name__}: {_EXPECTED}") from None


def _check_strings(texts: list[Text]) -> None:
    wrong = [
        (index, value)
        for index, cells in enumerate(texts)
        for value in cells
        if not isinstance(value, str)
    ]
    if not wrong:
        return
    missing = [index for index, value in wrong if is_missing(value)]
    if missing:
        raise DataError(
            f"X has {len(missing)} missing texts (None or NaN), the first at X[{missing[0]}]: drop "
            "these rows from X and y, or fill them, X.fillna('')"
        )
    index, value = wrong[0]
    raise DataError(
        f"X[{index}] is {value!r:.40}, of type {type(value).__name__}: {_EXPECTED}; convert with "
        "str, or decode bytes"
    )


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or one of pandas' marks for what is not there."""
    if isinstance(value, float):
        return value != value
    # pandas' own marks are known by name, for pandas need not be installed.
    return value is None or type(value).__name__ in ("NAType", "NaTType")
