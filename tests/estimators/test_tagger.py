"""BertTagger: fitting, predicting, schemes, parts held out, and scikit-learn's tools."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tidybert.errors import DataError, UsageError
from tidybert.estimators import BertTagger
from tidybert.metrics.entity_scores import entities

Sentences = tuple[list[list[str]], list[list[str]]]
Data = Callable[..., Sentences]
Quick = dict[str, Any]

KINDS = dict.fromkeys(["red", "green", "blue", "white"], "colour") | dict.fromkeys(
    ["cat", "dog", "cow", "hen"], "animal"
)


@pytest.fixture(scope="module")
def toy_tags(toy_examples: Any) -> Data:
    """Sentences whose colours and animals are entities, of one word each."""

    def build(count: int, seed: int = 0) -> Sentences:
        X = [one.text.split() for one in toy_examples(count, seed)]
        return X, [[f"B-{KINDS[word]}" if word in KINDS else "O" for word in each] for each in X]

    return build


@pytest.fixture(scope="module")
def tagger(thorough: Quick, toy_tags: Data) -> BertTagger:
    """A tagger fitted on the toy problem; not to be changed."""
    return BertTagger(**thorough).fit(*toy_tags(64))


def same_bits(a: BertTagger, b: BertTagger) -> bool:
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_learns_and_predicts(tagger: BertTagger, toy_tags: Data) -> None:
    X, y = toy_tags(40, seed=1)
    assert tagger.score(X, y) > 0.95
    assert tagger.classes_.tolist() == ["O", "B-animal", "I-animal", "B-colour", "I-colour"]
    predicted = tagger.predict(X)
    assert [len(tags) for tags in predicted] == [len(words) for words in X]
    assert isinstance(predicted[0][0], str)
    assert tagger.predict(np.array(X, dtype=object)) == predicted
    assert tagger.predict([["red"], []]) == [["B-colour"], []]


def test_long_sentences_are_read_in_windows(tagger: BertTagger) -> None:
    words = ["the", "red", "cow", "is", "old"] * 20
    (tags,) = tagger.predict([words])
    assert tags == ["O", "B-colour", "B-animal", "O", "O"] * 20


def test_any_scheme_is_learned_alike(quick: Quick, toy_tags: Data) -> None:
    X, y = toy_tags(24)
    lone = [[tag.replace("B-", "U-") for tag in tags] for tags in y]
    one, other = (BertTagger(**quick, max_steps=2).fit(X, tags) for tags in (y, lone))
    assert same_bits(one, other)
    assert other.score(X, lone) == one.score(X, y)


def test_other_tags_are_scored_by_word(thorough: Quick, toy_tags: Data) -> None:
    X, y = toy_tags(48)
    parts = [[tag.removeprefix("B-").upper() for tag in tags] for tags in y]
    fitted = BertTagger(**thorough).fit(X, parts)
    assert fitted.classes_.tolist() == ["ANIMAL", "COLOUR", "O"]
    predicted = fitted.predict(X)
    flat, right = (np.concatenate(each) for each in (predicted, parts))
    assert fitted.score(X, parts) == pytest.approx(np.mean(flat == right))
    assert fitted.score(X, parts) > 0.9


def test_tags_are_scored_as_those_that_were_learned(
    tagger: BertTagger, thorough: Quick, toy_tags: Data
) -> None:
    X, y = toy_tags(48)
    letters = {"O": "S", "B-animal": "B", "B-colour": "M"}
    parts = [[letters[tag] for tag in tags] for tags in y]
    fitted = BertTagger(**thorough).fit(X, parts)
    few = [number for number, tags in enumerate(parts) if "M" not in tags]
    assert fitted.score([X[at] for at in few], [parts[at] for at in few]) > 0.9
    with pytest.raises(DataError, match=r"^y\[0\]\[0\] is 'NN', but those in training mark ent"):
        tagger.score([["red"]], [["NN"]])


def test_the_part_held_out_chooses_the_weights(quick: Quick, toy_tags: Data) -> None:
    X, y = toy_tags(48)
    fitted = BertTagger(**quick, validation_fraction=0.25).fit(X, y)
    assert {"f1", "precision", "recall", "accuracy"} <= set(fitted.result_.metrics)
    assert fitted.task_.temperature != 1.0
    with pytest.raises(DataError, match=r"^validation_fraction is 0.5, but 2 examples are too few"):
        BertTagger(**quick, validation_fraction=0.5).fit([X[0], X[0]], [y[0], y[0]])


def test_a_tag_that_occurs_once_is_learned(quick: Quick, toy_tags: Data) -> None:
    X, y = toy_tags(20)
    y = [[f"B-x{number}" if number < 8 else y[number][0], *y[number][1:]] for number in range(20)]
    for seed in range(3):
        fitted = BertTagger(**quick, max_steps=1, validation_fraction=0.5, seed=seed).fit(X, y)
        assert "B-x7" in fitted.classes_


def lower(sentences: list[list[str]]) -> list[list[str]]:
    return [[word.lower() for word in words] for words in sentences]


def test_scikit_learns_tools(quick: Quick, toy_tags: Data) -> None:
    X, y = toy_tags(30)
    loud = [[word.upper() for word in words] for words in X]
    pipeline = make_pipeline(FunctionTransformer(lower), BertTagger(**quick))
    assert pipeline.fit(loud, y).predict(loud) == BertTagger(**quick).fit(X, y).predict(X)
    search = GridSearchCV(BertTagger(**quick), {"learning_rate": [1e-9, 1e-2]}, cv=2)
    assert search.fit(X, y).best_params_ == {"learning_rate": 1e-2}


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([], [], "^X is empty: expected sentences"),
        ("red", ["O"], "^X is 'red', of type str"),
        (["red cat"], [["O"]], r"^X\[0\] is 'red cat', of type str: .* take Predictor"),
        ([["red", 3]], [["O", "O"]], r"^X\[0\]\[1\] is 3, of type int"),
        ([["red"]], None, "requires y to be passed"),
        ([["red"]], [["O"], ["O"]], "^X has 1 sentences and y has 2"),
        ([["red"], ["a", "cat"]], [["O"], ["O"]], r"^X\[1\] has 2 words and y\[1\] 1 tag"),
        ([["red"]], [[""]], r"^y\[0\]\[0\] is empty"),
        ([["red"]], ["O"], r"^y\[0\] is 'O', of type str: expected a list of tags"),
        ([["a", "red"]], [["B-x", "x"]], r"^y\[0\]\[1\] is 'x', but other tags mark entities"),
        ([["red"]], [["O"]], "every training tag is O"),
        ([["red"], []], [["B-x"], []], r"1 training example without a word \(position 1\)"),
    ],
)
def test_what_cannot_be_fitted(quick: Quick, X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BertTagger(**quick).fit(X, y)


def test_parameters_that_cannot_be(quick: Quick, toy_tags: Data) -> None:
    with pytest.raises(UsageError, match=r"^doc_stride=40: it is the step"):
        BertTagger(**quick, doc_stride=40).fit(*toy_tags(8))
    with pytest.raises(UsageError, match=r"^max_seq_length leaves no room"):
        BertTagger(**{**quick, "max_seq_length": 2}).fit(*toy_tags(8))


def test_predicted_tags_are_valid_iob2(quick: Quick, toy_tags: Data) -> None:
    X, y = toy_tags(16)
    y = [["B-x", *["I-x"] * (len(tags) - 2), "B-y"] for tags in y]
    for tags in BertTagger(**quick, max_steps=1).fit(X, y).predict(X):
        for before, tag in zip(["O", *tags], tags, strict=False):
            assert tag[0] != "I" or before[2:] == tag[2:]
        assert all(one.end <= len(tags) for one in entities(tags))


def test_probabilities_and_the_folds_of_cross_validation(quick: Quick, toy_tags: Data) -> None:
    X, y = toy_tags(16)
    tagger = BertTagger(**quick, max_steps=1).fit(X, y)
    probabilities = tagger.predict_proba(X)
    for words, each in zip(X, probabilities, strict=True):
        assert each.shape == (len(words), len(tagger.classes_))
        np.testing.assert_allclose(each.sum(1), 1.0, rtol=1e-6)
    by_fold = cross_val_predict(tagger, X, y, cv=2)
    assert by_fold.shape == (16,)
    assert [len(each) for each in by_fold] == [len(words) for words in X]
