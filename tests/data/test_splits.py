"""Splits: the same each time, each class on both sides, no text on two."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.data.splits import folds_of, grouped_split, random_split, stratified_split
from tidybert.errors import DataError, UsageError

QUICK = settings(max_examples=150, deadline=None)


def test_a_tenth_of_each_class():
    labels = ["a"] * 200 + ["b"] * 50 + ["c"] * 2
    train, dev = stratified_split(labels, 0.1, seed=1)
    assert Counter(labels[at] for at in dev) == {"a": 20, "b": 5, "c": 1}
    assert sorted([*train, *dev]) == list(range(252))
    assert train.dtype == dev.dtype == np.int64
    again = stratified_split(labels, 0.1, seed=1)
    assert np.array_equal(again[0], train)
    assert np.array_equal(again[1], dev)
    assert not np.array_equal(stratified_split(labels, 0.1, seed=2)[1], dev)


def test_literal_example():
    _, dev = stratified_split(["x", "y"] * 6, 0.25, seed=0)
    assert dev.tolist() == [4, 6, 9, 11]


@QUICK
@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), min_size=2, max_size=60),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_text_on_two_sides_and_each_class_on_both_where_it_can(rows, fraction, seed):
    labels = [label for label, _ in rows]
    texts = [text for _, text in rows]
    labels_of = {text: {label for label, t in rows if t == text} for text in texts}
    can = {
        label
        for label in set(labels)
        if len({t for t in labels_of if label in labels_of[t]}) > 1
        and any(labels_of[t] == {label} for t in labels_of)
    }
    if not can:
        with pytest.raises(DataError, match="cannot be split"):
            stratified_split(labels, fraction, seed, texts=texts)
        return
    train, dev = stratified_split(labels, fraction, seed, texts=texts)
    assert sorted([*train, *dev]) == list(range(len(rows)))
    assert not {texts[at] for at in train} & {texts[at] for at in dev}
    assert {labels[at] for at in dev} == can
    assert {labels[at] for at in train} == set(labels)


@QUICK
@given(
    labels=st.lists(st.sampled_from("abcd"), min_size=2, max_size=80),
    fraction=st.floats(0.01, 0.99),
)
def test_without_texts_each_class_gives_its_share(labels, fraction):
    counts = Counter(labels)
    if max(counts.values()) < 2:
        return
    _, dev = stratified_split(labels, fraction, 0)
    held = Counter(labels[at] for at in dev)
    for label, count in counts.items():
        assert held[label] == min(count - 1, max(1, round(fraction * count)))


@QUICK
@given(texts=st.lists(st.integers(0, 30), min_size=2, max_size=60), fraction=st.floats(0.01, 0.99))
def test_random_split(texts, fraction):
    if len(set(texts)) < 2:
        with pytest.raises(DataError):
            random_split(len(texts), fraction, 0, texts=texts)
        return
    train, dev = random_split(len(texts), fraction, 0, texts=texts)
    assert sorted([*train, *dev]) == list(range(len(texts)))
    assert len(train) > 0
    assert len(dev) > 0
    assert not {texts[at] for at in train} & {texts[at] for at in dev}


def test_random_split_takes_the_fraction():
    train, dev = random_split(1000, 0.1, seed=3)
    assert (len(train), len(dev)) == (900, 100)


@QUICK
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 30), st.sets(st.sampled_from("abcdef"), max_size=3)),
        min_size=2,
        max_size=60,
    ),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_split_evaluates_no_label_that_it_does_not_train_on(rows, fraction, seed):
    texts, labels = zip(*rows, strict=True)
    sets = {text: {name for t, names in rows if t == text for name in names} for text in texts}
    holders = Counter(name for names in sets.values() for name in names)
    can = len(sets) > 1 and any(all(holders[name] > 1 for name in sets[text]) for text in sets)
    if not can:
        with pytest.raises(DataError, match="cannot be split"):
            random_split(len(rows), fraction, seed, texts=texts, labels=labels)
        return
    train, dev = random_split(len(rows), fraction, seed, texts=texts, labels=labels)
    again = random_split(len(rows), fraction, seed, texts=texts, labels=labels)
    assert np.array_equal(again[1], dev)
    assert sorted([*train, *dev]) == list(range(len(rows)))
    assert len(dev) > 0
    assert not {texts[at] for at in train} & {texts[at] for at in dev}
    trained = {name for at in train for name in labels[at]}
    assert {name for at in dev for name in labels[at]} <= trained


def test_random_split_is_the_same_where_no_label_is_rare():
    labels = [{"a"}, {"b"}, {"a", "b"}, set()] * 25
    train, dev = random_split(100, 0.1, seed=3, labels=labels)
    assert len(dev) == 10
    assert np.array_equal(random_split(100, 0.1, seed=3)[1], dev)
    assert np.array_equal(random_split(100, 0.1, seed=3)[0], train)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_fractions_that_cannot_be(fraction):
    with pytest.raises(UsageError, match="between 0 and 1"):
        stratified_split(["a", "a", "b", "b"], fraction, 0)


def test_texts_must_fit_the_labels():
    with pytest.raises(ValueError, match="1 texts were given for 2"):
        stratified_split(["a", "b"], 0.5, 0, texts=["t"])


def test_groups_and_what_shares_a_text_with_them_stay_together():
    groups = ["a", "a", "b", "b", "c", "c", "d", "d"]
    texts = ["1", "2", "2", "3", "4", "5", "6", "7"]
    labels = [{"x"}, {"y"}, {"x"}, {"y"}, {"x"}, {"y"}, {"x"}, {"z"}]
    train, dev = grouped_split(groups, 0.3, 1, texts=texts, labels=labels)
    assert dev.tolist() == [0, 1, 2, 3]  # a and b share a text, and d has the only z
    assert train.tolist() == [4, 5, 6, 7]


def test_near_duplicates_are_in_one_fold_and_each_fold_has_all_classes() -> None:
    orders = [f"Order {number} has not arrived yet" for number in (7, 123, 99_000)]
    texts = [*orders, "ORDER 5  has not arrived yet!"]
    words = "alpha bravo delta hotel india kilo lima mike oscar papa quebec romeo sierra tango"
    texts += [f"{word} {word[::-1]}" for word in words.split()]
    classes = [["late"]] * 4 + [["first"]] * 7 + [["second"]] * 7

    folds = folds_of([(text, None) for text in texts], classes, 3)

    assert len(set(folds[:4].tolist())) == 1
    assert set(folds.tolist()) == {0, 1, 2}
    for part in (folds[4:11], folds[11:]):
        assert sorted(np.bincount(part, minlength=3).tolist()) == [2, 2, 3]
    assert folds_of([(text, None) for text in orders], [["late"]] * 3, 3).tolist() == [0, 0, 0]
