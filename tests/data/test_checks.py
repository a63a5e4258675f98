"""The checks that all tasks share: lengths, what occurs twice, unknown and lone labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tidybert.data.checks import (
    DataReport,
    TrainingData,
    check_labels,
    check_leaks,
    check_lengths,
    check_repetition,
    listed,
    short,
    warn_of_empty,
)
from tidybert.data.features import Features
from tidybert.errors import DataError, in_python


@dataclass(frozen=True)
class Word:
    text: str
    label: str
    row: int


def words(*pairs: tuple[str, str]) -> list[Word]:
    return [Word(*pair, row) for row, pair in enumerate(pairs, start=2)]


def features_of(lengths: Sequence[int], max_seq_length: int) -> list[Features]:
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8)
    return [
        Features(*nothing, num_tokens=length, truncated=length > max_seq_length, example=number)
        for number, length in enumerate(lengths)
    ]


def of(train: list[Word], dev: list[Word] | None = None) -> tuple[DataReport, TrainingData[Word]]:
    data = TrainingData(train, dev, [], [], 128)
    return data.report("word"), data


def test_an_empty_part_is_an_error():
    some = words(("a", "x"))

    assert of([], None)[0].errors == ["the training data hold no example"]
    assert of(some, [])[0].errors == ["the dev data hold no example"]
    assert of(some, None)[0].errors == of(some, some)[0].errors == []
    assert (of(some)[0].num_dev, of(some, some)[0].num_dev) == (None, 1)


def test_what_is_there_twice_or_with_two_answers():
    report, data = of(words(("a", "x"), ("a", "x"), ("b", "x"), ("b", "y"), ("c", "y")))

    def check(**given: bool) -> None:
        key, answer = (lambda one: one.text), (lambda one: one.label)
        check_repetition(report, data, key, answer, noun="word", label="tag", **given)

    check()
    assert [*map(in_python, report.warnings)] == [
        "1 training example repeating an earlier one, word and tag (line 3)",
        (
            "1 word with contradictory tags, in 2 training examples (lines 4, 5); "
            "decide on one tag for each"
        ),
    ]
    check(warn_repeated=False)
    assert len(report.warnings) == 3


def test_a_leak_is_named_by_its_lines_or_as_the_task_names_it():
    report, data = of(words(("a", "x")), words(("b", "x"), ("a", "y")))

    check_leaks(report, data, lambda one: one.text, noun="word")
    check_leaks(report, data, lambda one: one.text, noun="word", where=lambda found: found[0].text)

    leak = "1 dev example of 2 with a word that a training example has too"
    assert in_python(report.warnings[0]).startswith(f"{leak} (line 3 of dev), so the dev metrics")
    assert report.warnings[1].startswith(f"{leak} (a), so the dev metrics flatter the model")


def test_labels_are_counted_and_those_of_dev_alone_refused():
    report = DataReport("word", 3, 2)

    check_labels(report, Counter("xxy"), Counter("xzz"), "tags", remedy="add examples")

    assert report.label_counts == {"x": 2, "y": 1}
    (error,) = report.errors
    assert error.startswith("tags of dev examples that no training example has: 'z' 2; spell the")
    assert report.warnings == ["tags with a single training example: 'y'; add examples"]


def test_empty_ones_are_counted_by_part():
    report, data = of(words((" ", "x"), ("b", "x")), words(("", "x")))

    warn_of_empty(report, data, lambda one: not one.text.strip(), noun="word")

    assert [one.split(" (")[0] for one in report.warnings] == [
        "1 training example with an empty word",
        "1 dev example with an empty word",
    ]


@pytest.mark.parametrize(
    ("longest", "max_seq_length", "advice"),
    [
        (300, 128, "1 of 4 train (25.0%); max_seq_length=300 would keep them whole"),
        (900, 128, "max_seq_length=512 would keep all but 1 whole"),
        (900, 512, "1 of them are longer than 512 tokens; read them whole with long='windows'"),
    ],
)
def test_truncation_says_what_to_do(longest, max_seq_length, advice):
    lengths = [10, 20, 30, longest]
    report = check(lengths, max_seq_length)
    assert advice in in_python(report.warnings[0])
    assert report.num_truncated == {"train": 1, "dev": 0}
    assert report.num_tokens["train"]["max"] == longest
    assert check(lengths, longest).warnings == []


def check(lengths: Sequence[int], max_seq_length: int) -> DataReport:
    report = DataReport("word", len(lengths), 2)
    features = features_of(lengths, max_seq_length), features_of([10, 10], max_seq_length)
    check_lengths(report, TrainingData([], None, *features, max_seq_length))
    return report


def test_errors_are_raised_together():
    report = DataReport("classify", 1, None, errors=["one", "two"])
    with pytest.raises(DataError, match="these data cannot be trained on:\none\ntwo"):
        report.raise_on_errors()
    DataReport("classify", 1, None, warnings=["one"]).raise_on_errors()


def test_labels_are_shortened_and_counted():
    assert short("x" * 40) == repr("x" * 29 + "…")
    assert listed({"a": 1000, "b": 2, "c": 1}, 2) == "'a' 1,000, 'b' 2 and 1 more"
