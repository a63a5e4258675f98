"""Answers of several lengths, in NumPy's and scikit-learn's hands."""

import numpy as np

from tidybert.estimators.checked_inputs import RaggedRows


def test_a_list_that_numpy_takes_for_objects() -> None:
    rows = RaggedRows([["a"], ["b", "c"]])
    assert rows == [["a"], ["b", "c"]]
    for found in (np.asarray(rows), np.concatenate([rows, RaggedRows([["d"]])])[:2]):
        assert found.dtype == object
        assert found.tolist() == [["a"], ["b", "c"]]
    # Rows of one length are no matrix either.
    assert np.asarray(RaggedRows([["a"], ["b"]])).shape == (2,)
