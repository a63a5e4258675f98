"""Answers in the shapes of transformers' pipelines."""

import math
from typing import Any

import pytest

from tidybert.server.protocols.shapes import (
    answers_to_question,
    entity_groups,
    joined_pieces,
    label_scores,
    relevance,
)
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import Encoding

CLASSES = {"label": "a", "score": 0.5, "scores": {"b": 0.2, "a": 0.5, "c": 0.3}}
PAIRS = {"label": "no", "score": 0.8, "scores": {"no": 0.8, "yes": 0.2}}
LABELS = {"labels": ["x"], "scores": {"x": 0.9, "y": 0.2}}
VALUE = {"value": 3.5}


def test_labels_are_by_falling_score() -> None:
    assert label_scores(CLASSES) == [
        {"label": "a", "score": 0.5},
        {"label": "c", "score": 0.3},
        {"label": "b", "score": 0.2},
    ]
    assert label_scores(CLASSES, top_k=1) == [{"label": "a", "score": 0.5}]
    assert label_scores(VALUE) == [{"label": "LABEL_0", "score": 3.5}]


def scores_of(answer: dict[str, Any]) -> list[float]:
    return [one["score"] for one in label_scores(answer, raw=True) or ()]


def test_raw_scores_give_the_scores_back() -> None:
    raw = scores_of(CLASSES)
    total = sum(map(math.exp, raw))
    assert [math.exp(one) / total for one in raw] == pytest.approx([0.5, 0.3, 0.2])

    raw = scores_of(LABELS)
    assert [1 / (1 + math.exp(-one)) for one in raw] == pytest.approx([0.9, 0.2])


@pytest.mark.parametrize(("score", "expected"), [(0.0, -36), (1.0, 36), (1e-40, -36)])
def test_a_raw_score_is_finite(score: float, expected: float) -> None:
    assert scores_of({"labels": [], "scores": {"x": score}}) == [expected]

    classes = {"label": "a", "score": 1.0, "scores": {"a": 1.0, "b": 0.0}}
    assert all(map(math.isfinite, scores_of(classes)))


def test_relevance_needs_one_score() -> None:
    assert relevance(VALUE) == 3.5
    assert relevance(PAIRS) == 0.2
    assert relevance(PAIRS, raw=True) == pytest.approx(math.log(0.2 / 0.8))
    for other in (CLASSES, LABELS, {"tags": [], "scores": [0.5]}):
        assert relevance(other) is None
    assert label_scores({"tags": [], "scores": [0.5]}) is None


def question(answer: str) -> dict[str, Any]:
    best = {"answer": "Rome", "start": 3, "end": 7, "score": 0.6}
    none = {"answer": "", "start": None, "end": None, "score": 0.9}
    second = {"answer": "in Rome", "start": 0, "end": 7, "score": 0.3}
    return {"id": "1", **(best if answer else none), "n_best": [best, second]}


def test_answers_to_a_question() -> None:
    (found,) = answers_to_question(question("Rome"))
    assert list(found.items()) == [("score", 0.6), ("start", 3), ("end", 7), ("answer", "Rome")]
    assert [one["answer"] for one in answers_to_question(question("Rome"), top_k=5)] == [
        "Rome",
        "in Rome",
    ]

    none = {"score": 0.9, "start": 0, "end": 0, "answer": ""}
    assert answers_to_question(question("")) == [none]
    assert answers_to_question(question(""), top_k=2)[1]["answer"] == "Rome"
    assert answers_to_question(question(""), allow_none=False)[0]["answer"] == "Rome"


TOKENIZER = BertTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "zo", "##e", "is", "u", ".", "s", "-", ","]
)


def encode(text: str) -> Encoding:
    return TOKENIZER.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Zoë", "zoe"), ("U.S.", "u. s."), ("Zoe-is , XY", "zoe - is, XY"), ("", "")],
)
def test_joined_pieces(text: str, expected: str) -> None:
    assert joined_pieces(encode(text), text) == expected


def test_entities_are_groups() -> None:
    entity = {"type": "PER", "text": "Zoë", "start": 0, "end": 3, "score": 0.9}
    answer = {"words": ["Zoë", "is"], "tags": ["B-PER", "O"], "entities": [entity]}

    assert entity_groups(answer, "Zoë is", encode) == [
        {"entity_group": "PER", "score": 0.9, "word": "zoe", "start": 0, "end": 3}
    ]


def test_neighbouring_words_with_one_tag_are_a_group() -> None:
    text = "Zoë is  is s"
    tags = ["NN", "VB", "VB", "O"]
    answer = {"words": text.split(), "tags": tags, "scores": [0.5, 0.2, 0.4, 0.9]}

    assert entity_groups(answer, text, encode) == [
        {"entity_group": "NN", "score": 0.5, "word": "zoe", "start": 0, "end": 3},
        {"entity_group": "VB", "score": pytest.approx(0.3), "word": "is is", "start": 4, "end": 10},
    ]
