"""Words of topics are those of class-TF-IDF; a text's keywords are equal alone and in company."""

from pathlib import Path

import numpy as np
import pytest

from tidybert import keywords
from tidybert.unlabelled.topic_words import TopicWords, words

TEXTS = [
    "the red cat",
    "a red dog and a red cow",
    "two old trees",
    "an old, old river",
    "the river",
]
LABELS = np.array([0, 0, 1, 1, 1])


def test_words_of_topics_follow_the_formula() -> None:
    counts = [{"red": 2, "cat": 1, "dog": 1, "cow": 1}, {"old": 2, "river": 2, "trees": 1}]
    total = {word: number for each in counts for word, number in each.items()}
    average = sum(total.values()) / 2
    found = TopicWords(TEXTS, LABELS, 2)

    for topic, own in enumerate(counts):
        weights = {
            word: -number * np.log(1 + average / total[word]) for word, number in own.items()
        }
        assert found.of([topic], 9) == sorted(own, key=lambda word: (weights[word], word))
    assert {*found.of([0, 1], 3)} == {"red", "old", "river"}


def test_a_word_is_shown_in_one_form() -> None:
    found = TopicWords(["transfer transferring", "transfer", "bank transfers"], np.zeros(3, int), 1)

    assert found.of([0], 9) == ["transfer", "bank"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我想退款", ["我想", "想退", "退款"]),
        ("L'heure d'été, 24h", ["heure", "été"]),
        ("Wi-Fi isn't on; it’s OFF", ["wi-fi", "on", "it", "off"]),
        ("1 + 2 = 3", []),
    ],
)
def test_words_of_other_languages(text: str, expected: list[str]) -> None:
    assert [*words(text)] == expected


def test_topics_of_texts_without_words_have_none() -> None:
    assert TopicWords(["1", "2 3", "!"], np.array([0, 1, 1]), 2).of([1], 5) == []


def test_keywords_are_equal_alone_and_in_company(tiny_model: Path) -> None:
    texts = ["a red cat", "the old dog was near the blue cow", "", "7", "red cow, blue cat"]

    found = keywords(texts, 2, model=tiny_model)

    assert found == [keywords([text], 2, model=tiny_model)[0] for text in texts]
    assert [len(each) for each in found] == [1, 2, 0, 0, 2]
    for text, own in zip(texts, found, strict=True):
        said = " ".join(own).split()
        assert len(said) == len({*said})
        assert {*said} <= {*words(text)}
