"""Tagged sentences: raw text split into words, and the kind of a file's tags.

Tags are entities in one of four schemes, or just a class for each word.  IOB1 (CoNLL-2003 as it was
published) writes B- only on an entity that touches another of its type, IOB2 on every entity; IOBES
and its twin BILOU also mark the last word and the single one.  ``as_iob2`` turns all into IOB2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.metrics.entity_scores import NO_TYPE, Entity, entities, iob2_tags
from tidybert.tokenization.basic import BasicTokenizer

Tags = Sequence[str]

_PREFIXES: Final = "BIESLU"
_LAST_AND_LONE: Final = {"IOBES": ("E", "S"), "BILOU": ("L", "U")}
SCHEMES: Final = ("IOB2", "IOB1", *_LAST_AND_LONE)

# A word's first character in the text, and the one after its last.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """One sentence, or any stretch of text that is tagged at once.

    Args:
        words: as the file has them, or as ``split_text`` cuts the text.
        tags: one a word, those of entities in IOB2; None where they are to be found.
        row: the 1-based line where it begins.
        text: the raw text, where the file has that and not words.
        spans: of each word in ``text``.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    row: int
    text: str | None = None
    spans: tuple[Span, ...] | None = None

    def located(self) -> tuple[str, tuple[Span, ...]]:
        """The text and each word's place in it; words alone are joined by spaces."""
        if self.text is not None and self.spans is not None:
            return self.text, self.spans
        spans = []
        start = 0
        for word in self.words:
            spans.append((start, start + len(word)))
            start += len(word) + 1
        return " ".join(self.words), tuple(spans)


def untagged(text: str, row: int) -> TaggedExample:
    """A raw text to be tagged."""
    words, spans = split_text(text)
    return TaggedExample(words, None, row, text, spans)


def split_text(text: str) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The words of a text, spelled as in it, and their places.

    Words end at white space; each mark of punctuation and each CJK ideograph is one of its own, as
    in BERT's basic tokenizer.  A character that this drops (a control character) is in no word,
    unless it is within one.

    >>> split_text("in U.K., too")
    (('in', 'U', '.', 'K', '.', ',', 'too'), \
((0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (9, 12)))
    """
    found = _basic_tokenizer().split_with_offsets(text)
    spans = tuple(word.span(0, len(word.text)) for word in found)
    return tuple(text[start:end] for start, end in spans), spans


@cache
def _basic_tokenizer() -> BasicTokenizer:
    return BasicTokenizer(do_lower_case=False, strip_accents=False)


@dataclass(frozen=True)
class TagKind:
    """The kind of the tags of all sentences together.

    Args:
        scheme: of SCHEMES, or None for tags that mark no entities.
        wrong: the places (sentence, word) of tags that do not mark entities among those that do.
        unusual: the sentences that this scheme would write otherwise, such as O I-PER in IOB2.
    """

    scheme: str | None
    wrong: list[tuple[int, int]]
    unusual: list[int]


def is_entity_tag(tag: str) -> bool:
    """Whether a tag can be read as one of entities: O, B-PER, or a bare B."""
    return tag == "O" or (tag != "" and tag[0] in _PREFIXES and tag[1:2] in ("", "-"))


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether the tags of all sentences, or those that a model has learned, mark entities."""
    return all(map(is_entity_tag, tags))


def marked_by(tags: Tags, *, of_entities: bool) -> Tags:
    """A sentence's types of entities, each as often as it occurs, or else its tags."""
    return [each.type for each in entities(tags)] if of_entities else tags


def kind_of(sentences: Sequence[Tags], of_entities: bool | None = None) -> TagKind:
    """Tell what tags are from all of them.

    Whether they mark entities may be known; else they do where each is O or has a prefix, as a bare
    B has, and where some have a prefix and a type (B-PER).  Those that are then no tags of entities
    are wrong.  Other tags are classes of words, such as parts of speech.  The scheme is the one
    that most sentences keep to, of equals the first of SCHEMES.
    """
    seen = {tag for tags in sentences for tag in tags}
    strange = {tag for tag in seen if not is_entity_tag(tag)}
    if of_entities is None:
        of_entities = not strange or any(len(tag) > 2 for tag in seen - strange)
    if not of_entities:
        return TagKind(None, [], [])
    wrong = [
        (number, place)
        for number, tags in enumerate(sentences)
        for place, tag in enumerate(tags)
        if tag in strange
    ]
    skipped = {number for number, _ in wrong}
    breaks: dict[str, list[int]] = {scheme: [] for scheme in SCHEMES}
    for number, tags in enumerate(sentences):
        if number in skipped:
            continue
        found = entities(tags)
        named = [f"{tag[0]}-{NO_TYPE}" if tag != "O" and len(tag) < 3 else tag for tag in tags]
        for scheme, broken in breaks.items():
            if _written(found, len(tags), scheme) != named:
                broken.append(number)
    scheme = min(SCHEMES, key=lambda name: len(breaks[name]))
    return TagKind(scheme, wrong, breaks[scheme])


def as_iob2(tags: Tags) -> tuple[str, ...]:
    """The same entities in IOB2."""
    return tuple(iob2_tags(entities(tags), len(tags)))


def _written(found: Sequence[Entity], num_words: int, scheme: str) -> list[str]:
    """The tags of a sentence with these entities, in their order, in any scheme."""
    tags = iob2_tags(found, num_words)
    if scheme == "IOB1":
        touching = {
            after.start
            for before, after in pairwise(found)
            if before.end == after.start and before.type == after.type
        }
        for type_name, start, _ in found:
            tags[start] = f"{'B' if start in touching else 'I'}-{type_name}"
    elif scheme in _LAST_AND_LONE:
        last, lone = _LAST_AND_LONE[scheme]
        for type_name, start, end in found:
            tags[end - 1] = f"{lone if end - start == 1 else last}-{type_name}"
    return tags


def shown_entities(
    tags: Sequence[str], example: TaggedExample, scores: npt.NDArray[np.float64]
) -> list[dict[str, Any]]:
    """The entities that a sentence's tags mark, as ``tidybert predict`` prints them.

    ``scores`` (words,) are the tags' probabilities.  Their mean is the entity's score: of entities
    of several words it was off by 0.04 on CoNLL-2003 test, where their product was off by 0.14
    (expected calibration error, a small model).
    """
    text, spans = example.located()
    shown = []
    for entity in entities(tags):
        start, end = spans[entity.start][0], spans[entity.end - 1][1]
        shown.append(
            {
                "type": entity.type,
                "text": text[start:end],
                "start": start,
                "end": end,
                "score": float(scores[entity.start : entity.end].mean()),
            }
        )
    return shown
