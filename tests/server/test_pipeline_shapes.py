"""Answers in the shapes of transformers' pipelines."""

import math
from typing import Any

import pytest

from tidybert.server.protocols.pipeline_routes import (
    answers_to_question,
    entity_groups,
    joined_pieces,
)
from tidybert.server.protocols.tei_routes import label_scores
from tidybert.tasks.answer import (
    Answered,
    Classified,
    FoundEntity,
    LabelSet,
    RankedSpan,
    Scored,
    Tagged,
    TaskAnswer,
)
from tidybert.tokenization import BertTokenizer

CLASSES = Classified("a", 0.5, {"b": 0.2, "a": 0.5, "c": 0.3})
PAIRS = Classified("no", 0.8, {"no": 0.8, "yes": 0.2})
LABELS = LabelSet(["x"], {"x": 0.9, "y": 0.2})
VALUE = Scored(3.5)
TAGS = Tagged(["a"], ["X"], scores=[0.5])


def test_labels_are_by_falling_score() -> None:
    assert label_scores(CLASSES) == [
        {"label": "a", "score": 0.5},
        {"label": "c", "score": 0.3},
        {"label": "b", "score": 0.2},
    ]
    assert label_scores(CLASSES, top_k=1) == [{"label": "a", "score": 0.5}]
    assert label_scores(VALUE) == [{"label": "LABEL_0", "score": 3.5}]


def scores_of(answer: TaskAnswer) -> list[float]:
    return [one["score"] for one in label_scores(answer, raw=True) or ()]


def test_raw_scores_give_the_scores_back() -> None:
    raw = scores_of(CLASSES)
    total = sum(map(math.exp, raw))
    assert [math.exp(one) / total for one in raw] == pytest.approx([0.5, 0.3, 0.2])

    raw = scores_of(LABELS)
    assert [1 / (1 + math.exp(-one)) for one in raw] == pytest.approx([0.9, 0.2])


@pytest.mark.parametrize(("score", "expected"), [(0.0, -36), (1.0, 36), (1e-40, -36)])
def test_a_raw_score_is_finite(score: float, expected: float) -> None:
    assert scores_of(LabelSet([], {"x": score})) == [expected]

    classes = Classified("a", 1.0, {"a": 1.0, "b": 0.0})
    assert all(map(math.isfinite, scores_of(classes)))


def test_relevance_needs_one_score() -> None:
    assert VALUE.relevance() == 3.5
    assert PAIRS.relevance() == 0.2
    assert PAIRS.relevance(raw=True) == pytest.approx(math.log(0.2 / 0.8))
    for other in (CLASSES, LABELS, TAGS):
        assert other.relevance() is None
    assert label_scores(TAGS) is None


def question(answer: str) -> Answered:
    best = RankedSpan(answer="Rome", start=3, end=7, score=0.6)
    none: Any = {"answer": "", "start": None, "end": None, "score": 0.9}
    second = RankedSpan(answer="in Rome", start=0, end=7, score=0.3)
    return Answered("1", **(best if answer else none), n_best=[best, second])


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Zoë", "zoe"), ("U.S.", "u. s."), ("Zoe-is , XY", "zoe - is, XY"), ("", "")],
)
def test_joined_pieces(text: str, expected: str) -> None:
    assert joined_pieces(TOKENIZER, text) == expected


def test_entities_are_groups() -> None:
    entity = FoundEntity(type="PER", text="Zoë", start=0, end=3, score=0.9)
    answer = Tagged(["Zoë", "is"], ["B-PER", "O"], entities=[entity])

    assert entity_groups(answer, "Zoë is", TOKENIZER) == [
        {"entity_group": "PER", "score": 0.9, "word": "zoe", "start": 0, "end": 3}
    ]


def test_neighbouring_words_with_one_tag_are_a_group() -> None:
    text = "Zoë is  is s"
    tags = ["NN", "VB", "VB", "O"]
    answer = Tagged(text.split(), tags, scores=[0.5, 0.2, 0.4, 0.9])

    assert entity_groups(answer, text, TOKENIZER) == [
        {"entity_group": "NN", "score": 0.5, "word": "zoe", "start": 0, "end": 3},
        {"entity_group": "VB", "score": pytest.approx(0.3), "word": "is is", "start": 4, "end": 10},
    ]
