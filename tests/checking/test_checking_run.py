"""A whole check with a tiny model: equal findings each time, and what stops it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tidybert.checking import check_examples
from tidybert.checking import label_check as out_of_fold
from tidybert.errors import DataError
from tidybert.files.text_examples import TextExample
from tidybert.tasks.classification import Classification
from tidybert.tasks.regression import Regression

TASK = Classification(["animal", "colour"])


def test_equal_arguments_give_equal_findings(tiny_model: Path, toy_examples, monkeypatch) -> None:
    monkeypatch.setattr(out_of_fold, "FOLDS", 2)
    train, dev = toy_examples(40), toy_examples(9, seed=1)

    def check() -> str:
        found = check_examples(TASK, tiny_model, train, dev, max_seq_length=16)
        return json.dumps(found.contents(data="a.csv", dev="b.csv", model="tiny"))

    first = check()
    contents = json.loads(first)

    assert check() == first
    assert contents["report"]["num_train"] == 40
    assert contents["labels"]["agreement"] > 0


def test_an_error_of_the_checks_ends_the_work(tiny_model: Path, toy_examples) -> None:
    train = [TextExample(one.text, None, "animal", one.row) for one in toy_examples(10)]

    found = check_examples(Classification(["animal"]), tiny_model, train, max_seq_length=16)

    assert "two classes" in found.report.errors[0]
    assert found.labels is found.contradicting is None


def test_scores_get_the_checks_and_leaks_alone(tiny_model: Path, toy_examples) -> None:
    train, dev = toy_examples(20, scores=True), toy_examples(5, seed=1, scores=True)

    found = check_examples(Regression(), tiny_model, train, [*dev, train[0]], max_seq_length=16)

    assert found.not_looked_for == "wrong labels: not for regress yet"
    assert found.labels is found.contradicting is None
    assert found.leaked is not None
    assert found.leaked[0]["texts"][1]["text"] == train[0].text


def test_pairs_are_checked_and_single_texts_beside_them_refused(
    tiny_model: Path, toy_examples, monkeypatch
) -> None:
    monkeypatch.setattr(out_of_fold, "FOLDS", 2)
    pairs = [replace(one, text_pair="the cat") for one in toy_examples(12)]

    found = check_examples(TASK, tiny_model, pairs, [pairs[0]], max_seq_length=16)

    assert found.leaked is not None
    assert found.leaked[0]["texts"][0]["text_pair"] == "the cat"
    assert found.labels is not None
    with pytest.raises(DataError, match="give the second text too"):
        check_examples(TASK, tiny_model, pairs, toy_examples(3), max_seq_length=16)


@pytest.mark.parametrize("text", ["the same words", ""])
def test_equal_texts_get_the_other_checks_and_name_their_classes(
    tiny_model: Path, text: str
) -> None:
    train = [TextExample(text, None, "ab"[at % 2], at) for at in range(2, 12)]

    found = check_examples(Classification(["a", "b"]), tiny_model, train, max_seq_length=16)

    assert found.labels is None
    assert found.not_looked_for == "wrong labels: all texts are equal, so no class is judged: a, b"
    assert found.contradicting is not None
    assert [one["label"] for one in found.contradicting[0]["texts"]] == ["a", "b"]
    assert any("contradictory labels" in each for each in found.report.warnings)


def test_copies_of_a_text_do_not_make_a_class_that_can_be_judged(
    tiny_model: Path, toy_examples, monkeypatch
) -> None:
    monkeypatch.setattr(out_of_fold, "FOLDS", 2)
    copies = [TextExample("the old cow", None, "cow", 90 + at) for at in range(6)]

    found = check_examples(
        Classification(["animal", "colour", "cow"]),
        tiny_model,
        [*toy_examples(12), *copies],
        max_seq_length=16,
    )

    assert found.labels is not None
    assert found.labels["not_judged"] == ["cow"]
