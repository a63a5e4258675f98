"""The confusion matrix as text, whatever the names and counts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.metrics.text_scores import confusion_table


def test_confusion_table():
    matrix = np.array([[1038, 2, 0], [1, 17, 4], [0, 0, 9]])
    names = ["hardware", "软件", "billing and payments"]
    assert confusion_table(matrix, names).splitlines() == [
        "true \\ predicted  hardware  软件  billing and pay…",
        "hardware             1,038     2                 0",
        "软件                     1    17                 4",
        "billing and pay…         0     0                 9",
    ]


def test_many_labels_show_the_top_confusions():
    names = [f"intent_number_{at}" for at in range(30)]
    matrix = np.diag(np.full(30, 5))
    assert confusion_table(matrix, names) == "no confusion among 30 classes"
    matrix[3, 4], matrix[4, 3], matrix[0, 1] = 12, 3, 3
    assert confusion_table(matrix, names).splitlines() == [
        "12  intent_number_3 taken for intent_number_4",
        " 3  intent_number_0 taken for intent_number_1",
        " 3  intent_number_4 taken for intent_number_3",
    ]
    assert "and 860 more confusions" in confusion_table(np.ones((30, 30), dtype=int), names)


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(
        st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), max_size=60),
        min_size=2,
        max_size=20,
    ),
    count=st.integers(0, 10**9),
)
def test_any_table_fits_80_columns(names, count):
    matrix = np.full((len(names), len(names)), count)
    assert max(len(line) for line in confusion_table(matrix, names).splitlines()) <= 80
