"""Sentences: hard cases by hand, nothing lost, and no time that explodes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.corpus.tokenizing import split_sentences

HARD_CASES = Path(__file__).with_name("hard_sentences.txt")


def hard_cases() -> list[tuple[str, list[str]]]:
    """Paragraphs and their sentences, from lines where | stands between sentences."""
    lines = HARD_CASES.read_text(encoding="utf-8").splitlines()
    return [
        (line.replace("|", ""), [part.strip() for part in line.split("|")])
        for line in lines
        if not line.startswith("#")
    ]


def test_a_literal_example() -> None:
    assert split_sentences(
        ' Dr. Smith paid $3.50. "Why?" he asked.  Nobody knew... 好。再见！'
    ) == [
        "Dr. Smith paid $3.50.",
        '"Why?" he asked.',
        "Nobody knew...",
        "好。",
        "再见！",
    ]
    assert split_sentences(" \t ") == []


def test_the_hard_cases_are_right_but_for_two() -> None:
    wrong = [text for text, sentences in hard_cases() if split_sentences(text) != sentences]

    # A full stop before a number or a name that begins with one: the words do not tell.
    assert wrong == [
        "The answer was No. 10 people left.",
        "Node.js and ASP.NET are tools. .NET too.",
    ]


@given(st.text(alphabet="aB1 .!?…\"'([)]。！？」と好É\t-—$"))
def test_nothing_is_lost(paragraph: str) -> None:
    sentences = split_sentences(paragraph)

    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize(
    "unit",
    [".", "!", "。", ". ", "1. ", "a.\t", '." ', "((", "?\u00a0—", "好", "A.b", ".[12]", "。」"],
)
def test_a_long_paragraph_ends(unit: str) -> None:
    """A rule whose time grows with the square of the length would take hours."""
    paragraph = unit * (500_000 // len(unit))

    assert "".join("".join(split_sentences(paragraph)).split()) == "".join(paragraph.split())
