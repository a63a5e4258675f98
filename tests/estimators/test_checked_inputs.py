"""X, y and sample_weight: what is taken, and what is refused with a guess at the cause."""

from enum import Enum
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning

from tidybert.errors import DataError
from tidybert.estimators.checked_inputs import (
    label_names,
    read_column,
    read_labels,
    read_scores,
    read_texts,
    read_weights,
)

TEXTS = ["a cat", "", "two  dogs"]
PAIRS = [("a", "b"), ("c", "d"), ("e", "")]


@pytest.mark.parametrize(
    "X",
    [
        TEXTS,
        tuple(TEXTS),
        iter(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        np.array(TEXTS, dtype=np.dtypes.StringDType()),
        np.array(TEXTS, dtype=object)[:, None],
        [[text] for text in TEXTS],
    ],
    ids=["list", "tuple", "iterator", "array", "object", "StringDType", "column", "lists"],
)
def test_texts(X: Any) -> None:
    assert read_texts(X) == [("a cat",), ("",), ("two  dogs",)]


@pytest.mark.parametrize(
    "X",
    [PAIRS, [list(pair) for pair in PAIRS], np.array(PAIRS), np.array(PAIRS, dtype=object)],
    ids=["tuples", "lists", "array", "object"],
)
def test_pairs(X: Any) -> None:
    assert read_texts(X) == PAIRS


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    single = [(text,) for text in TEXTS]
    assert read_texts(pandas.Series(TEXTS, index=[7, 8, 9])) == single
    assert read_texts(pandas.Series(TEXTS, dtype="object")) == single
    assert read_texts(pandas.Series(TEXTS, dtype="category")) == single
    assert read_texts(pandas.DataFrame({"text": TEXTS})) == single
    assert read_texts(pandas.DataFrame(PAIRS, columns=["text", "text_pair"])) == PAIRS
    with pytest.raises(DataError, match=r"X has 2 missing texts .*, the first at X\[1\]"):
        read_texts(pandas.Series(["a", None, pandas.NA, "b"], dtype="string"))
    column = read_column(pandas.Series(["a", "b"], dtype="category"), 2)
    assert column.tolist() == ["a", "b"]
    with pytest.raises(DataError, match="y has 1 missing value"):
        read_column(pandas.Series(["a", None], dtype="string"), 2)
    with pytest.raises(DataError, match="y has 1 missing value"):
        read_column(pandas.Series([1, None], dtype="Int64"), 2)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], r"X is empty: .*did a filter before drop every row\?"),
        (np.empty((0, 3)), "X is empty"),
        ("one text", r"X is one str: .*wrap it in a list, \[text\]"),
        (b"bytes", "X is one bytes"),
        (7, "X is 7, of type int"),
        (None, "X is None, of type NoneType"),
        ({"text": TEXTS}, r"X is a dict: .*X\['text'\]"),
        (np.zeros((3, 4)), r"X holds numbers \(float64, shape \(3, 4\)\).*a vectorizer"),
        (np.arange(3), r"X holds numbers \(int64, shape \(3,\)\).*are X and y swapped\?"),
        (np.zeros(3, "datetime64[s]"), "X holds numbers"),
        (scipy.sparse.csr_array(np.eye(3)), r"sparse matrix of shape \(3, 3\).*TfidfVectorizer"),
        (np.full((2, 2, 2), "a"), r"X has the shape \(2, 2, 2\)"),
        (np.array("a"), r"X has the shape \(\)"),
        ([1.5, 2.5], r"X\[0\] is 1.5, of type float"),
        (["a", 5], r"X\[1\] is 5, of type int: .*convert with str"),
        (["a", b"b"], r"X\[1\] is b'b', of type bytes: .*decode bytes"),
        (["a", None, float("nan")], r"2 missing texts \(None or NaN\), the first at X\[1\]"),
        ([("a", None), ("b", "c")], r"1 missing text \(None or NaN\), the first at X\[0\]"),
        ([("a", "b"), "c"], r"X\[1\] holds 1 values, but X\[0\] holds 2: give each example a pair"),
        ([["many", "small", "tokens"]], r"X\[0\] holds 3 values: .*join tokens"),
        ([[1, 2], [3, 4]], r"X\[0\] is 1, of type int"),
    ],
)
def test_what_is_no_text(X: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_texts(X)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([3, -1, 3], [-1, 3]),
        ([True, False, True], [False, True]),
        ([1.0, 0.0, 1.0], [0.0, 1.0]),
        (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
        (np.array([2, 1, 2], dtype=object), [1, 2]),
        (np.array([True, False, True], dtype=object), [False, True]),
        (np.array([2, 1, 2], dtype=np.uint8), [1, 2]),
    ],
)
def test_labels_keep_their_type(y: Any, classes: list[Any]) -> None:
    found, ids = read_labels(read_column(y, 3))
    assert found.tolist() == classes
    assert [type(label) for label in found.tolist()] == [type(label) for label in classes]
    assert ids.tolist() == [1, 0, 1]
    if hasattr(y, "dtype"):
        assert found.dtype == y.dtype


@pytest.mark.parametrize("dtype", ["{}", "{}[pyarrow]"])
def test_nullable_columns_keep_their_type(dtype: str) -> None:
    pandas = pytest.importorskip("pandas")
    arrow = "arrow" in dtype
    for name, values in (("bool" if arrow else "boolean", [True, False, True]),
                         ("int64" if arrow else "Int64", [2, 1, 2])):  # fmt: skip
        series = pandas.Series(values, dtype=dtype.format(name))
        for given in (series, series.values, pandas.Index(series)):
            column = read_column(given, 3)
            assert column.tolist() == values
            assert column.dtype == np.array(values).dtype


class Team(str, Enum):  # noqa: UP042 (its str is "Team.BILLING")
    BILLING = "billing"
    HARDWARE = "hardware"


def test_members_of_an_enum_are_refused_rather_than_cut() -> None:
    with pytest.raises(DataError, match=r"members of the enum Team, .* \[one.value for one in y"):
        read_column([Team.BILLING, Team.HARDWARE, Team.BILLING], 3)
    assert read_column([one.value for one in Team], 2).tolist() == ["billing", "hardware"]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b"], "X has 3 examples and y has 2: expected one value of y for each"),
        (["a", None, "b"], r"y has 1 missing value \(None or NaN\), the first at y\[1\]"),
        ([1.0, 2.0, float("nan")], r"y has 1 missing value .*, the first at y\[2\]"),
        (["a", float("nan"), "b"], r"y has 1 missing value .*, the first at y\[1\]"),
        (["a", 1, "b"], "y mixes values of types int, str"),
        (np.array(["a", 1, "b"], dtype=object), "y mixes values of types int, str"),
        ([["a", "b"]] * 3, r"y should be a 1d array, got an array of shape \(3, 2\)"),
    ],
)
def test_what_is_no_column_of_labels(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_column(y, 3)


def test_a_column_vector_is_taken_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        assert read_column(np.array([["a"], ["b"]]), 2).tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "a"], "y has one class only, 'a': .*sorted by label"),
        ([0.5, 1.5], "continuous"),
        (np.array([0.5, 1.5], dtype=object), "continuous"),
        (np.array([object(), object()]), "cannot be sorted"),
    ],
)
def test_what_are_no_classes(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_labels(np.asarray(y))


def test_label_names_are_those_that_files_are_read_with() -> None:
    assert label_names(np.array(["b", "a"])) == ["b", "a"]
    assert label_names(np.array([10, 9])) == ["10", "9"]
    assert label_names(np.array([0.0, 1.0])) == ["0", "1"]
    assert label_names(np.array([False, True])) == ["false", "true"]
    assert label_names(np.array(["2026-01-31"], dtype="datetime64[D]")) == ["2026-01-31"]
    with pytest.raises(DataError, match="the labels 'a' and 'a ' in y look the same"):
        label_names(np.array(["a", "a "]))
    with pytest.raises(DataError, match="the label ' ', which is empty: a missing value"):
        label_names(np.array([" ", "a"]))
    with pytest.raises(DataError, match="which is a text with a lone surrogate"):
        label_names(np.array(["\ud83d", "a"]))


def test_scores() -> None:
    assert read_scores(np.array([1, 2])).tolist() == [1.0, 2.0]
    assert read_scores(np.array([1, 2.5], dtype=object)).tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["good", "bad"], "y holds strings, for example 'good': .*take BertClassifier"),
        ([1.0, np.inf], "Input y contains infinity"),
        ([3.0, 3.0], "y is 3 in all of 2 samples: nothing is left to learn"),
        ([1j, 2j], "numbers"),
        (np.array([{}, {}]), "not numbers"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_are_no_scores(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_scores(np.asarray(y))


def test_weights() -> None:
    assert read_weights(None, 2).tolist() == [1.0, 1.0]
    assert read_weights([0, 2], 2).tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"sample_weight has the shape \(1,\): expected \(2,\)"),
        ([[1.0, 1.0]], r"shape \(1, 2\)"),
        ([1.0, -2.0], r"sample_weight\[1\] is -2.0: expected finite numbers of at least 0"),
        ([np.nan, 1.0], r"sample_weight\[0\] is nan"),
        ([0, 0], "every weight in sample_weight is zero"),
    ],
)
def test_what_are_no_weights(weights: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_weights(weights, 2)
