"""How a vocabulary fits a text, by hand and by counting words the long way."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization import BasicTokenizer, BertTokenizer
from tidybert.tokenization.learning.vocabulary_training import Fit, measure_fit


def test_a_literal_example(tokenizer: BertTokenizer) -> None:
    # un ##want ##ed, [UNK], the, [, #, ... of which # is unknown here.
    fit = measure_fit(tokenizer, ["unwanted qqq", "the"])

    assert fit == Fit(num_characters=15, num_words=3, num_tokens=5, num_unknown=1)
    assert (fit.characters_per_token, fit.pieces_per_word) == (3.0, 5 / 3)
    assert fit.unknown_rate == 1 / 3
    assert fit.figures()["num_unknown"] == 1


def test_a_text_without_words(tokenizer: BertTokenizer) -> None:
    fit = measure_fit(tokenizer, [" ", ""])

    assert all(math.isnan(fit.figures()[name]) for name in ("pieces_per_word", "unknown_rate"))


@given(st.lists(st.text(alphabet="unwatedhgo #中é.[]"), max_size=5))
def test_words_are_those_of_the_basic_tokenizer(tokenizer: BertTokenizer, texts: list[str]) -> None:
    fit = measure_fit(tokenizer, texts)

    assert fit.num_words == sum(len(BasicTokenizer().split(text)) for text in texts)
    assert fit.num_tokens == sum(len(tokenizer.tokenize(text)) for text in texts)
