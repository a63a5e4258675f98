"""Schemes of entity tags told apart, read as one, and tags that mark no entities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.metrics.entity_scores import Entity, entities
from tidybert.tasks.tags.tag_files import TagKind, as_iob2, is_entity_tag, kind_of

# The same two sentences: two persons that touch, a place, an organisation of three words.
WRITTEN = {
    "IOB2": "B-PER I-PER B-PER O B-LOC|B-ORG I-ORG I-ORG O",
    "IOB1": "I-PER I-PER B-PER O I-LOC|I-ORG I-ORG I-ORG O",
    "IOBES": "B-PER E-PER S-PER O S-LOC|B-ORG I-ORG E-ORG O",
    "BILOU": "B-PER L-PER U-PER O U-LOC|B-ORG I-ORG L-ORG O",
}


def sentences(written: str) -> list[list[str]]:
    return [each.split() for each in written.split("|")]


@pytest.mark.parametrize("scheme", WRITTEN)
def test_each_scheme_is_known_and_says_the_same(scheme: str) -> None:
    kind = kind_of(sentences(WRITTEN[scheme]))

    assert (kind.scheme, kind.wrong, kind.unusual) == (scheme, [], [])
    iob2 = [list(as_iob2(tags)) for tags in sentences(WRITTEN[scheme])]
    assert iob2 == sentences(WRITTEN["IOB2"])


ENTITIES = st.lists(
    st.tuples(st.sampled_from(["PER", "LOC"]), st.integers(0, 2), st.integers(1, 3)), max_size=5
)


def written(found: list[Entity], num_words: int, scheme: str) -> list[str]:
    """A sentence's tags by the definitions, word by word."""
    tags = []
    for word in range(num_words):
        here = next((one for one in found if one.start <= word < one.end), None)
        if here is None:
            tags.append("O")
            continue
        is_first, is_last = word == here.start, word == here.end - 1
        touches = any(one.end == here.start and one.type == here.type for one in found)
        letter = {
            "IOB2": "B" if is_first else "I",
            "IOB1": "B" if is_first and touches else "I",
            "IOBES": "S" if is_first and is_last else "B" if is_first else "E" if is_last else "I",
        }
        letter["BILOU"] = {"S": "U", "E": "L"}.get(letter["IOBES"], letter["IOBES"])
        tags.append(f"{letter[scheme]}-{here.type}")
    return tags


@pytest.mark.parametrize("scheme", WRITTEN)
@given(ENTITIES)
def test_any_entities_come_through_any_scheme(
    scheme: str, layout: list[tuple[str, int, int]]
) -> None:
    found, end = [], 0
    for name, gap, length in layout:
        found.append(Entity(name, end + gap, end + gap + length))
        end += gap + length
    tags = written(found, end + 1, scheme)

    assert entities(as_iob2(tags)) == found
    kind = kind_of([tags])
    assert kind.unusual == []
    # With few entities several schemes write the same.
    assert kind.scheme is not None
    assert written(found, end + 1, kind.scheme) == tags


def test_sentences_that_the_scheme_would_write_otherwise_are_counted() -> None:
    kind = kind_of(sentences("B-PER I-PER O|O I-PER|B-LOC O|B-LOC I-PER"))

    assert (kind.scheme, kind.unusual) == ("IOB2", [1, 3])


def test_classes_of_words_are_no_entities() -> None:
    for tags in (["NN", "VB", "O"], ["S", "E", "RD"], ["-LRB-", ":", "NNP"], ["PER", "O"]):
        assert kind_of([tags]).scheme is None
    assert kind_of([["O", "O"]]).scheme == "IOB2"
    assert kind_of([["B", "I", "O"], ["O"]]) == kind_of([["B-_", "I-_", "O"], ["O"]])
    assert as_iob2(["B", "I", "O"]) == ("B-_", "I-_", "O")


def test_what_tags_mark_can_be_known() -> None:
    letters = [["S", "B", "E"], ["B", "I", "E"]]
    assert kind_of(letters).scheme == "IOBES"
    assert kind_of(letters, of_entities=False) == TagKind(None, [], [])
    assert kind_of([["NN", "O"], ["B"]], of_entities=True) == TagKind("IOB2", [(0, 0)], [])


def test_what_is_no_tag_among_tags_of_entities_is_told_by_its_place() -> None:
    kind = kind_of([["O", "B-PER"], ["PER", "O", "Person"], ["o"]])

    assert kind.scheme == "IOB2"
    assert kind.wrong == [(1, 0), (1, 2), (2, 0)]


@pytest.mark.parametrize("tag", ["O", "B-x", "I", "U-", "S-A-B"])
def test_tags_of_entities(tag: str) -> None:
    assert is_entity_tag(tag)


@pytest.mark.parametrize("tag", ["", "o", "BPER", "X-PER", "O-PER", "b-per"])
def test_tags_of_no_entities(tag: str) -> None:
    assert not is_entity_tag(tag)
