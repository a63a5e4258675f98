"""Texts with entities blacked out: whole characters, and nothing else changed."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.tasks.tags.patterns import Mark
from tidybert.tasks.tags.redaction import black_out


def marked(text: str, *parts: str) -> list[Mark]:
    return [Mark("PER", text.index(part), text.index(part) + len(part), 0.5) for part in parts]


def test_a_placeholder_in_place_of_each_with_its_place_and_score() -> None:
    found = black_out("Anna met Ben.", [Mark("PER", 9, 12), Mark("PER", 0, 4, 0.75)])

    assert found.text == "[PER] met [PER]."
    assert found.entities == [
        {"type": "PER", "start": 0, "end": 5, "score": 0.75},
        {"type": "PER", "start": 10, "end": 15, "score": None},
    ]


def test_equal_strings_of_a_type_share_a_number() -> None:
    text = "Anna, Ben, Anna in Ben"
    marks = [Mark("PER", 0, 4), Mark("PER", 6, 9), Mark("PER", 11, 15), Mark("LOC", 19, 22)]

    found = black_out(text, marks, "<{type} {number}>")

    assert found.text == "<PER 1>, <PER 2>, <PER 1> in <LOC 1>"
    assert black_out(text, marks, "█").text == "█, █, █ in █"
    assert (
        black_out(text, marks, "{x} {0} %s").text == "{x} {0} %s, " * 2 + "{x} {0} %s in {x} {0} %s"
    )


def test_marks_that_overlap_are_one_of_the_longest_ones_type() -> None:
    text = "Bank of Anna Smith Ltd"
    marks = [Mark("PER", 8, 18), Mark("ORG", 0, 12), Mark("ORG", 8, 22), Mark("LOC", 8, 12)]

    assert black_out(text, marks).text == "[ORG]"
    assert black_out("ab", [Mark("X", 0, 1), Mark("Y", 1, 2)]).text == "[X][Y]"


@pytest.mark.parametrize(
    ("text", "part", "left"),
    [
        ("Zoe\u0308 ist da", "Zoe", "[PER] ist da"),
        ("an 👩\u200d👧\u200d👦!", "👩", "an [PER]!"),
        ("an 👩\u200d👧\u200d👦!", "👦", "an [PER]!"),
        ("an 👋🏽!", "👋", "an [PER]!"),
        ("❤\ufe0f Anna", "Anna", "❤\ufe0f [PER]"),
        ("פגש את דוד כהן אתמול", "דוד כהן", "פגש את [PER] אתמול"),
        ("मैंने अनिता को देखा", "अनित", "मैंने [PER] को देखा"),
    ],
)
def test_whole_characters_always(text: str, part: str, left: str) -> None:
    assert black_out(text, marked(text, part)).text == left


@given(st.text(st.sampled_from("ab \u0301\u200d👧🏽é"), max_size=12), st.data())
def test_all_characters_outside_of_marks_stay(text: str, data: st.DataObject) -> None:
    place = st.integers(0, len(text))
    pairs = st.tuples(place, place).map(sorted).filter(lambda pair: pair[0] < pair[1])
    spans = data.draw(st.lists(pairs, max_size=3))

    found = black_out(text, [Mark("X", *span) for span in spans], "\0")

    assert found.text is not None
    kept = found.text.split("\0")
    assert len(kept) == len(found.entities) + 1
    covered = {at for start, end in spans for at in range(start, end)}
    left = "".join(char for at, char in enumerate(text) if at not in covered)
    # More may go, at the ends of a mark, but nothing else and in no other order.
    rest = iter(left)
    assert all(char in rest for char in "".join(kept))
    for part in kept[1:]:
        assert not part or unicodedata.category(part[0])[0] != "M"
        assert not part.startswith(("\u200d", "🏽"))
    for entity in found.entities:
        assert found.text[entity["start"] : entity["end"]] == "\0"
