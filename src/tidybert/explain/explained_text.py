"""A text or pair whose inside is shown, its pieces, and the words that they make up."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidybert.errors import DataError, param
from tidybert.explain.shown import Shown
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.encoding import Encoding, Span
from tidybert.tokenization.vocabulary import CONTINUATION, SOS_TOKEN


@dataclass(frozen=True)
class Word:
    """A word of a text.

    Args:
        text: its characters.
        sequence_id: 0 for the first text, 1 for the second.
        span: its place in that text, (start, end) in characters.
        pieces: the positions of its pieces in the input.
    """

    text: str
    sequence_id: int
    span: Span
    pieces: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ExplainedText(Shown):
    """The base of results about one input of n pieces.

    Args:
        text, text_pair: as given.
        encoding: the pieces with their ids and places; [CLS] and [SEP] among them.
    """

    text: str
    text_pair: str | None
    encoding: Encoding

    @property
    def tokens(self) -> list[str]:
        """The n pieces."""
        return self.encoding.tokens

    @property
    def quoted(self) -> list[str]:
        """The text, and the second one of a pair."""
        return [self.text] if self.text_pair is None else [self.text, self.text_pair]

    @property
    def words(self) -> list[Word]:
        """The words of the text, then those of the second text."""
        return words_of(self.encoding, (self.text, self.text_pair or ""))

    def facts(self) -> dict[str, object]:
        """The text and the number of pieces."""
        pair = {} if self.text_pair is None else {"text_pair": self.text_pair}
        return {"text": self.text, **pair, "num_pieces": len(self.encoding)}


def words_of(encoding: Encoding, sides: Sequence[str]) -> list[Word]:
    """The words that pieces make up: a piece that begins with ## continues the one before it."""
    groups: list[list[int]] = []
    for position, (token, side) in enumerate(
        zip(encoding.tokens, encoding.sequence_ids, strict=True)
    ):
        if side is None:
            continue
        follows = bool(groups) and groups[-1][-1] == position - 1
        if follows and token.startswith(CONTINUATION) and token != CONTINUATION:
            groups[-1].append(position)
        else:
            groups.append([position])
    words = []
    for group in groups:
        side = encoding.sequence_ids[group[0]]
        assert side is not None
        start, end = encoding.offset_mapping[group[0]][0], encoding.offset_mapping[group[-1]][1]
        words.append(Word(sides[side][start:end], side, (start, end), tuple(group)))
    return words


def pieces_within(encoding: Encoding, span: Span) -> list[int]:
    """The positions of the first text's pieces that have a character of ``span``."""
    return [
        position
        for position, (side, (start, end)) in enumerate(
            zip(encoding.sequence_ids, encoding.offset_mapping, strict=True)
        )
        if side == 0 and start < span[1] and end > span[0]
    ]


def pieces_at(encoding: Encoding, span: Span, name: str) -> list[int]:
    """The same; DataError that names the parameter where there is none."""
    found = pieces_within(encoding, span)
    if not found:
        raise DataError(f"{param(name)}: characters {span[0]} to {span[1]} have no token")
    return found


def place_of(word: str, text: str) -> Span:
    """The first place of a word in a text, whatever its case; DataError where there is none."""
    escaped = re.escape(word)
    # Between other letters only where it is no word by itself, as in Chinese.
    found = re.search(rf"(?<!\w){escaped}(?!\w)", text, re.IGNORECASE) or re.search(
        escaped, text, re.IGNORECASE
    )
    if not word or found is None:
        raise DataError(f"{text!r:.60} does not have the word {word!r}")
    return found.span()


def from_its_start(tokenizer: BertTokenizer, text: str) -> Encoding:
    """[SOS] and the pieces of a text, as a language model reads it."""
    one = tokenizer.encode(text, add_special_tokens=False)
    start, _ = tokenizer.vocabulary.text_bounds
    return Encoding(
        tokens=[SOS_TOKEN, *one.tokens],
        input_ids=[start, *one.input_ids],
        token_type_ids=[0, *one.token_type_ids],
        offset_mapping=[(0, 0), *one.offset_mapping],
        sequence_ids=[None, *one.sequence_ids],
        truncated=False,
        num_tokens=one.num_tokens + 1,
    )
