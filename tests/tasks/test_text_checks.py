"""Checks of texts before training: what stops it, what is only said, and how it reads."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features
from tidybert.errors import DataError, in_python, in_shell
from tidybert.files.text_examples import TextExample
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification
from tidybert.tasks.regression import Regression
from tidybert.tasks.text_task import TextTask

TASKS: dict[TextTask] = {
    "class": Classification(["x", "y"]),
    "set": MultiLabelClassification(["x", "y"]),
    "score": Regression(),
}


def examples(*pairs: tuple[str, str], start: int = 2) -> list[TextExample]:
    return [TextExample(text, None, label, row) for row, (text, label) in enumerate(pairs, start)]


def features_of(lengths: Sequence[int]) -> list[Features]:
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8)
    return [Features(*nothing, length, example=number) for number, length in enumerate(lengths)]


def check(
    train: Sequence[TextExample],
    dev: Sequence[TextExample] | None = None,
    kind: str = "class",
) -> DataReport:
    train_features, dev_features = (features_of([10] * len(part)) for part in (train, dev or ()))
    return TASKS[kind].check(TrainingData(train, dev, train_features, dev_features, 128))


TRAIN = examples(("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"))
DEV = examples(("e", "x"), ("f", "y"))


def test_good_data_have_nothing_to_tell():
    report = check(TRAIN, DEV)
    assert (report.errors, report.warnings) == ([], [])
    assert report.label_counts == {"x": 2, "y": 2}
    assert report.num_tokens["dev"] == {"50": 10, "90": 10, "95": 10, "99": 10, "max": 10}
    report.raise_on_errors()
    assert report.lines() == [
        "4 examples to train, 2 to evaluate",
        "classes: 'x' 2, 'y' 2",
        "tokens, train: 10 (50%), 10 (90%), 10 (95%), 10 (99%), 10 (max)",
        "tokens, dev: 10 (50%), 10 (90%), 10 (95%), 10 (99%), 10 (max)",
    ]


def test_errors_stop_training():
    with pytest.raises(DataError, match="the training data hold no example"):
        check([]).raise_on_errors()
    with pytest.raises(DataError, match="the dev data hold no example"):
        check(TRAIN, []).raise_on_errors()
    with pytest.raises(DataError, match="every training example has the label 'x'"):
        check(examples(("a", "x"), ("b", "x"))).raise_on_errors()
    with pytest.raises(DataError, match="no training example has: '10' 1, 'z' 2"):
        check(TRAIN, [*DEV, *examples(("g", "z"), ("h", "z"), ("i", "10"))]).raise_on_errors()
    with pytest.raises(DataError, match="line 3: the example has no label"):
        check([TextExample("a", None, "x", 2), TextExample("a", None, None, 3)])


def test_empty_texts_are_counted_with_their_rows():
    pair = TextExample("a", " ", "x", 9)
    report = check([*TRAIN, *examples((" \n", "x"), start=6), pair], DEV)
    assert [*map(in_python, report.warnings)] == [
        "2 training examples with an empty text (lines 6, 9); remove them, or fill them in"
    ]


def test_duplicates_and_contradictions():
    train = [*TRAIN, *examples(("a", "x"), ("a", "x"), ("b", "x"), start=6)]
    dev = [*DEV, *examples(("c", "x"), ("d", "x"), start=4)]
    report = check(train, dev)
    told = [
        warning.split(";")[0].split(" (lines 4")[0] for warning in map(in_python, report.warnings)
    ]
    assert told == [
        "2 training examples repeating an earlier one, text and label (lines 6, 7)",
        "1 text with contradictory labels, in 2 training examples (lines 3, 8)",
        "2 dev examples of 4 with a text that a training example has too",
    ]


def test_a_pair_is_no_duplicate_of_its_first_text():
    pairs = [TextExample("a", "b", "x", 2), TextExample("a", "c", "y", 3)]
    assert (
        check([*pairs, TextExample("a", None, "x", 4), TextExample("z", "b", "y", 5)]).warnings
        == []
    )


def test_unbalanced_and_lone_classes():
    train = examples(*((f"t{at}", "common") for at in range(10)), ("u", "rare"))
    warnings = check(train, DEV[:0] or None).warnings
    assert "labels with a single training example: 'rare'" in warnings[0]
    assert "'common' has 10 examples, 'rare' 1" in warnings[1]
    assert "class_weight='balanced'" in in_python(warnings[1])


def test_one_class_in_dev_is_a_warning():
    assert "say nothing about the other classes" in check(TRAIN, DEV[:1]).warnings[0]


def test_scores():
    train = examples(("a", "1"), ("b", "2.5"), ("c", "-1e0"))
    report = check(train, kind="score")
    assert (report.errors, report.warnings) == ([], [])
    assert report.score_range == (-1.0, 2.5)
    assert "scores from -1 to 2.5" in report.lines()
    alike = check(examples(("a", "5.0"), ("b", "5.000")), kind="score")
    assert "every training score is 5" in alike.errors[0]
    wrong = check(examples(("a", "1"), ("b", "x")), kind="score")
    assert "line 3 is not a finite" in in_python(wrong.errors[0])
    twice = check(examples(("a", "5.0"), ("a", "5.000"), ("a", "4"), ("b", "1")), kind="score")
    assert "1 training example repeating" in twice.warnings[0]
    assert "1 text with contradictory labels" in twice.warnings[1]


def test_labels_that_spell_a_missing_value_are_told():
    train = examples(("a", "x"), ("b", "NaN"), ("c", "NaN"), ("d", "None"), ("e", "n/a"))
    told = in_python("\n".join(check(train).warnings))
    assert "labels that spell a missing value: 'NaN' 2, 'None' 1, 'n/a' 1; they are" in told
    assert not any("missing value" in each for each in check(TRAIN, DEV).warnings)


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("Caf\u00e9", "Cafe\u0301", "'Caf\\xe9' 3 and 'Cafe\\u0301' 1"),
        ("Tea", "T\u200bea", "'Tea' 3 and 'T\\u200bea' 1"),
        ("Tea", "\uff34ea", "'Tea' 3 and '\\uff34ea' 1"),
    ],
)
def test_labels_that_look_alike_are_told(one: str, other: str, shown: str) -> None:
    train = examples(("a", one), ("b", one), ("c", one), ("d", other), ("e", "Bug"), ("f", "Bug"))

    (told,) = [line for line in check(train).warnings if "look alike" in line]

    assert shown in told


@pytest.mark.parametrize(
    ("joined", "flags"),
    [
        ("x;y", "--multi-label and --label-separator semicolon would read"),
        ("x | y", "--multi-label and --label-separator pipe would read"),
        ("x,y", "--multi-label would read"),
    ],
)
def test_labels_that_are_joined_are_told(joined: str, flags: str) -> None:
    train = examples(("a", joined), ("b", "x"), ("c", "z; other"), ("d", "z, w"))

    (told,) = [in_shell(line) for line in check(train).warnings if "look like several" in line]

    assert f"between them, such as {joined!r}: {flags} them apart" in told
    assert not any("look like several" in line for line in check(train[1:]).warnings)


def test_labels_that_differ_only_in_case_or_spaces_are_told():
    train = examples(("a", "Bug"), ("b", "bug"), ("c", "how to"), ("d", "HowTo"), ("e", "Bug"))
    told = in_python("\n".join(check(train).warnings))
    assert (
        "only in case or spaces, or look alike: 'Bug' 2 and 'bug' 1; 'how to' 1 and 'HowTo' 1;"
        in told
    )
    assert not any("only in case" in each for each in check(TRAIN, DEV).warnings)


def test_one_column_of_0_and_1_is_told_where_labels_are_any_number():
    sets = [("0",), ("1",), ("0",), ("1",)]
    train = [TextExample(str(row), None, None, row, each) for row, each in enumerate(sets, 2)]
    assert any("the labels are '0' and '1'" in w for w in check(train, kind="set").warnings)
    other = [TextExample(str(row), None, None, row, (*each, "x")) for row, each in enumerate(sets)]
    assert not any("'0' and '1'" in w for w in check(other, kind="set").warnings)


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), min_size=1, max_size=90)
EXAMPLES = st.lists(st.tuples(st.sampled_from(["a", "b", "", "c d"]), NAMES), max_size=12)


@settings(max_examples=80, deadline=None)
@given(train=EXAMPLES, dev=st.none() | EXAMPLES)
def test_any_report_fits_80_columns_and_json(train, dev):
    report = check(examples(*train), None if dev is None else examples(*dev))
    assert max(len(line) for line in report.lines()) <= 80
    json.loads(json.dumps(report.to_dict(), allow_nan=False))
