"""Raw text into words that keep their places, and words alone into a text."""

from hypothesis import given
from hypothesis import strategies as st

from tidybert.tasks.tags.tag_files import TaggedExample, split_text, untagged
from tidybert.tokenization import BertTokenizer


def test_words_of_a_text_and_their_places() -> None:
    words, spans = split_text("Zoë's in  U.K.\t(北京)!")

    assert words == ("Zoë", "'", "s", "in", "U", ".", "K", ".", "(", "北", "京", ")", "!")
    assert spans[:3] == ((0, 3), (3, 4), (4, 5))
    assert split_text(" \u200b\n") == ((), ())


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_words_stand_where_their_spans_say(text: str) -> None:
    words, spans = split_text(text)

    assert [text[start:end] for start, end in spans] == list(words)
    ends = [0, *(end for _, end in spans)]
    assert all(before <= start < end for before, (start, end) in zip(ends, spans, strict=False))


ALPHABET = [*"abcde", "A", "É", ".", "-", " ", "\u200b", "京", "\u0301", "'"]


@given(st.text(st.sampled_from(ALPHABET), max_size=30))
def test_words_make_the_pieces_that_the_text_makes(text: str) -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".-'京", *"abcde"]
    tokenizer = BertTokenizer([*vocabulary, *(f"##{letter}" for letter in "abcde")])

    pieces = [piece for word in split_text(text)[0] for piece in tokenizer.tokenize(word)]

    assert pieces == tokenizer.tokenize(text)


def test_words_alone_are_joined_by_spaces() -> None:
    example = TaggedExample(("New York", "", "is", "big"), None, 1)

    text, spans = example.located()

    assert text == "New York  is big"
    assert [text[start:end] for start, end in spans] == list(example.words)
    assert untagged("a b.", 3).located() == ("a b.", ((0, 1), (2, 3), (3, 4)))
    assert untagged("a b.", 3).row == 3
