"""Words that say what topics are about, and the words that a text is about.

Topics have words by class-TF-IDF (Grootendorst 2022, BERTopic, section 3.3); a text that repeats a
word says it once.  A text's own words are those whose vectors are nearest to its vector, as in
KeyBERT.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from tidybert.data.features import text_features
from tidybert.inference.embedding import Embedder
from tidybert.inference.near_duplicates import Floats, Indices
from tidybert.system.reporter import Reporter
from tidybert.tokenization.unicode_tables import CJK, character_class

# Chinese and Japanese are written without spaces, so two characters are a word.
_CJK: Final = f"[{character_class(CJK)}]"
_WORD: Final = re.compile(rf"{_CJK}+|[^\W\d_][^\W_]+(?:-[^\W_]{{2,}})*")
_SHORTENED: Final = re.compile(r"\b\w+n['’]t\b|['’](?:s|re|ve|ll|d|m)\b")
_SAY_LITTLE: Final = ENGLISH_STOP_WORDS | {"did", "does", "doing", "having", "just", "let"}


def words(text: str) -> Iterator[str]:
    """The words of a text in lower case, without numbers, single letters and what is shortened.

    >>> list(words("I've tried: it can't log in, bank's 2FA"))
    ['tried', 'it', 'log', 'in', 'bank', 'fa']
    """
    for word in _WORD.findall(_SHORTENED.sub(" ", text.lower())):
        if re.match(_CJK, word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            yield word


def _is_form_of(word: str, other: str) -> bool:
    """Whether two words differ in their ends alone, as transfer and transferring do."""
    short, long = sorted([word, other], key=len)
    return len(short) >= 4 and long.startswith(short[: max(4, len(short) - 2)])


def _phrases(text: str, most: int) -> list[str]:
    """Of a text's first words those that are no stop words, and pairs that follow each other."""
    found = list(islice(words(text), most))
    says = [word not in _SAY_LITTLE for word in found]
    pairs = [
        f"{one} {two}" for (one, two), (a, b) in zip(pairwise(found), pairwise(says), strict=True)
        if a and b and one != two
    ]  # fmt: skip
    return [*(word for word, kept in zip(found, says, strict=True) if kept), *pairs]


class TopicWords:
    """The words that set each of n topics apart; ``labels`` (N,) has the topic of each text."""

    def __init__(self, texts: Sequence[str], labels: Indices, number: int) -> None:
        counter = CountVectorizer(
            analyzer=lambda text: {one for one in words(text) if one not in _SAY_LITTLE}
        )
        try:
            counts = counter.fit_transform(texts)
        except ValueError:
            # scikit-learn raises it where no text has a word.
            counts = csr_array((len(texts), 0))
        self._words = sorted(getattr(counter, "vocabulary_", ()))
        member = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))))
        self._counts: Any = csr_array(member @ counts)
        total = np.asarray(self._counts.sum(axis=0)).ravel()
        self._weights = np.log(1 + total.sum() / number / np.maximum(total, 1))

    def of(self, topics: Sequence[int], shown: int) -> list[str]:
        """The words of some topics together, the most telling first; one form of each."""
        counts = self._counts[list(topics)].sum(axis=0)
        have = np.flatnonzero(counts)
        found: list[str] = []
        for at in have[np.argsort(-counts[have] * self._weights[have], kind="stable")]:
            word = self._words[at]
            if not any(_is_form_of(word, each) for each in found):
                found.append(word)
            if len(found) == shown:
                break
        return found


def text_keywords(
    embedder: Embedder, texts: Sequence[str], vectors: Floats, count: int, reporter: Reporter
) -> list[list[str]]:
    """The ``count`` words or pairs of words of each text that are nearest to its vector (N, H).

    A word is taken once, alone or in a pair.  Other texts make no difference to those of a text.
    """
    # What the model does not read cannot be what its vector is about.
    phrases = [list(dict.fromkeys(_phrases(text, embedder.max_seq_length))) for text in texts]
    number = {one: at for at, one in enumerate(sorted({one for each in phrases for one in each}))}
    features = text_features(
        embedder.tokenizer, [*number], None, embedder.max_seq_length, prompt=embedder.prompt
    )
    found = embedder.vectors(features, reporter)
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    chosen = []
    # Lengths of the texts' vectors make no difference to the order.
    for vector, own in zip(vectors, phrases, strict=True):
        cosines = (found[[number[one] for one in own]] * vector).sum(axis=1)
        taken: list[str] = []
        for at in np.argsort(-cosines, kind="stable"):
            said = {word for each in taken for word in each.split()}
            if len(taken) < count and said.isdisjoint(own[at].split()):
                taken.append(own[at])
        chosen.append(taken)
    return chosen
