"""How a report on data reads, whatever is in it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.data.data_report import DataReport, listed, short
from tidybert.errors import DataError

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), min_size=1, max_size=90)


@settings(max_examples=80, deadline=None)
@given(
    counts=st.dictionaries(TEXT, st.integers(1, 10**6), max_size=20),
    told=st.lists(TEXT, max_size=4),
    longest=st.integers(0, 3000),
    num_dev=st.none() | st.integers(0, 9),
)
def test_any_report_fits_80_columns_and_json(counts, told, longest, num_dev):
    names = {name[:40].replace(" ", "_"): count for name, count in counts.items()}
    words = [" ".join(each[at : at + 60] for at in range(0, len(each), 60)) for each in told]
    report = DataReport("classify", 9, num_dev, names, (0.0, 1.5), {"train": {"max": longest}})
    report.facts = report.errors = report.warnings = words
    assert max(len(line) for line in report.lines()) <= 80
    json.loads(json.dumps(report.to_dict(), allow_nan=False))


def test_errors_are_raised_together():
    report = DataReport("classify", 1, None, errors=["one", "two"])
    with pytest.raises(DataError, match="these data cannot be trained on:\none\ntwo"):
        report.raise_on_errors()
    DataReport("classify", 1, None, warnings=["one"]).raise_on_errors()


def test_labels_are_shortened_and_counted():
    assert short("x" * 40) == repr("x" * 29 + "…")
    assert listed({"a": 1000, "b": 2, "c": 1}, 2) == "'a' 1,000, 'b' 2 and 1 more"
