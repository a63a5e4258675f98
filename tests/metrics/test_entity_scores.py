"""Entities by hand and as seqeval has them, and scores that are sums over sentences."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from seqeval import metrics as seqeval
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.metrics import f1_score

from tidybert.metrics.entity_scores import TagCounts, entities, iob2_tags, split_tag

TAGS = ["O", *(f"{prefix}-{name}" for prefix in "BIES" for name in ("PER", "LOC", "A-B"))]
SENTENCES = st.lists(st.lists(st.sampled_from(TAGS), min_size=1, max_size=9), max_size=6)
PAIRS = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=9),
    min_size=1,
    max_size=8,
)


def halves(pairs: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[a for a, _ in each] for each in pairs], [[b for _, b in each] for each in pairs]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        # IOB1: an I- begins an entity, a B- only one that follows another of its type.
        ("I-PER I-PER B-PER O I-LOC", [("PER", 0, 2), ("PER", 2, 3), ("LOC", 4, 5)]),
        # What no scheme writes.
        ("O I-PER I-LOC", [("PER", 1, 2), ("LOC", 2, 3)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        # IOBES and BILOU say the same.
        ("S-PER B-LOC I-LOC E-LOC O", [("PER", 0, 1), ("LOC", 1, 4)]),
        ("U-PER B-LOC I-LOC L-LOC O", [("PER", 0, 1), ("LOC", 1, 4)]),
        ("E-PER E-PER I-PER S-PER I-PER", [("PER", at, at + 1) for at in range(5)]),
        ("B I O B-", [("_", 0, 2), ("_", 3, 4)]),
        ("B-A-B I-A-B I-A", [("A-B", 0, 2), ("A", 2, 3)]),
    ],
)
def test_entities_by_hand(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


def test_a_tag_is_one_of_five_letters_and_a_type() -> None:
    assert [split_tag(tag) for tag in ("O", "B-x", "L-x", "U-x", "I")] == [
        ("O", ""),
        ("B", "x"),
        ("E", "x"),
        ("S", "x"),
        ("I", "_"),
    ]


@given(SENTENCES)
def test_entities_are_those_of_seqeval(sentences: list[list[str]]) -> None:
    for tags in sentences:
        theirs = [(name, start, end + 1) for name, start, end in get_entities(tags)]
        assert entities(tags) == theirs


@given(SENTENCES)
def test_iob2_says_the_same_and_is_its_own_rewriting(sentences: list[list[str]]) -> None:
    for tags in sentences:
        written = iob2_tags(entities(tags), len(tags))
        assert entities(written) == entities(tags)
        assert iob2_tags(entities(written), len(written)) == written
        for before, tag in zip(["O", *written], written, strict=False):
            assert tag == "O" or tag[0] == "B" or before[1:] == tag[1:]


@given(PAIRS)
def test_scores_are_seqevals(pairs: list[list[tuple[str, str]]]) -> None:
    expected, predicted = halves(pairs)
    found = TagCounts.compare(expected, predicted, of_entities=True).metrics()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["f1"] == pytest.approx(seqeval.f1_score(expected, predicted))
        assert found["precision"] == pytest.approx(seqeval.precision_score(expected, predicted))
        assert found["recall"] == pytest.approx(seqeval.recall_score(expected, predicted))
        assert found["accuracy"] == pytest.approx(seqeval.accuracy_score(expected, predicted))
        assume(found["per_label"])
        report = seqeval.classification_report(expected, predicted, output_dict=True)
    for name, each in found["per_label"].items():
        theirs = {"f1" if key == "f1-score" else key: value for key, value in report[name].items()}
        assert each == pytest.approx(theirs)
    json.dumps(found, allow_nan=False)


def test_scores_by_hand() -> None:
    # Two of three predicted entities are right, of four that there are.
    expected = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O", "B-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "O", "B-PER"]]

    counts = TagCounts.compare(expected, predicted, of_entities=True)

    assert counts.names == ("LOC", "ORG", "PER")
    assert counts.counts[0].tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]
    assert counts.counts[1].tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0]]
    scores, of_loc = counts.scores(), counts.per_label()["LOC"]
    assert (scores["precision"], scores["recall"]) == pytest.approx((2 / 3, 1 / 2))
    assert (scores["f1"], scores["accuracy"]) == pytest.approx((4 / 7, 5 / 7))
    assert (of_loc["precision"], of_loc["recall"], of_loc["support"]) == (1.0, 0.5, 2)
    assert of_loc["f1"] == pytest.approx(2 / 3)
    assert counts.share_right().tolist() == [1.0, 0.0]


def test_a_boundary_or_a_type_that_is_wrong_makes_an_entity_wrong() -> None:
    expected = [["B-PER", "I-PER", "O"]] * 3
    predicted = [["B-PER", "O", "O"], ["B-LOC", "I-LOC", "O"], ["B-PER", "I-PER", "I-PER"]]

    assert TagCounts.compare(expected, predicted, of_entities=True).scores()["f1"] == 0.0


@given(st.lists(st.lists(st.sampled_from(["NN", "VB", "O"]), min_size=1, max_size=6), min_size=1))
def test_other_tags_are_scored_by_word_as_scikit_learn_does(expected: list[list[str]]) -> None:
    predicted = [sorted(tags) for tags in expected]
    found = TagCounts.compare(expected, predicted, of_entities=False).metrics()

    flat_expected = [tag for tags in expected for tag in tags]
    flat_predicted = [tag for tags in predicted for tag in tags]
    assert set(found) == {"accuracy", "macro_f1", "per_label"}
    assert found["accuracy"] == pytest.approx(np.mean(np.equal(flat_expected, flat_predicted)))
    assert found["macro_f1"] == pytest.approx(
        f1_score(flat_expected, flat_predicted, average="macro")
    )
    assert sum(each["support"] for each in found["per_label"].values()) == len(flat_expected)


@pytest.mark.parametrize("of_entities", [True, False])
@given(pairs=PAIRS, data=st.data())
def test_any_choice_of_sentences_is_scored_by_its_sums(
    of_entities: bool, pairs: list[list[tuple[str, str]]], data: st.DataObject
) -> None:
    expected, predicted = halves(pairs)
    counts = TagCounts.compare(expected, predicted, of_entities=of_entities)
    chosen = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1, max_size=12))

    again = TagCounts.compare(
        [expected[at] for at in chosen], [predicted[at] for at in chosen], of_entities=of_entities
    )

    assert counts.scores(np.array(chosen)) == pytest.approx(again.scores())
    assert counts.share_right()[chosen].tolist() == pytest.approx(again.share_right().tolist())


def test_nothing_to_find_is_zero_and_not_nan() -> None:
    nothing = TagCounts.compare([["O"], []], [["O"], []], of_entities=True)

    scores = nothing.scores()
    assert (scores["f1"], scores["precision"], scores["recall"]) == (0.0, 0.0, 0.0)
    assert scores["accuracy"] == 1.0
    assert nothing.share_right().tolist() == [1.0, 1.0]
    scores = TagCounts.compare([], [], of_entities=False).scores()
    assert (scores["accuracy"], scores["macro_f1"]) == (0.0, 0.0)


def test_tags_must_be_as_many_as_predicted() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        TagCounts.compare([["O"], ["O", "O"]], [["O"], ["O"]], of_entities=True)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        TagCounts.compare([["O"], ["O"]], [["O"]], of_entities=True)
