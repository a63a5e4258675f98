"""The view Words: a word in two sentences, the pieces nearest to it, and words on a map."""

from typing import Any, Final

from tidybert.errors import DataError
from tidybert.page.page_model import PageModel, checked_text

_NEAREST: Final = 10
_MOST_WORDS: Final = 40


def word_apart(model: PageModel, word: str, text: str, pair: str) -> dict[str, Any]:
    """The cosine of a word's vectors in two sentences by layer, and its nearest pieces."""
    checked_text(word)
    if not word.strip() or not pair:
        raise DataError("write a word, and two sentences that have it")
    for each in (text, pair):
        model.encode(each)
    found = model.explainer.word_in_texts(word.strip(), [text, pair])
    near = model.explainer.nearest(word.strip(), top_k=_NEAREST)
    python = f"""from tidybert import Explainer

explainer = Explainer({model.written!r})
print(explainer.word_in_texts({word.strip()!r}, [{text!r}, {pair!r}]))
print(explainer.nearest({word.strip()!r}, top_k={_NEAREST}))
"""
    return {
        "cosines": found.cosines[:, 0, 1].tolist(),
        "spans": found.spans,
        "nearest": [
            {"piece": piece, "cosine": cosine}
            for piece, cosine in zip(near.pieces, near.cosines.tolist(), strict=True)
        ],
        "python": python,
    }


def word_map(model: PageModel, words: list[str]) -> dict[str, Any]:
    """The cosines (m, m) of words or texts, and a place on a plane for each: (m, 2)."""
    if not 2 <= len(words) <= _MOST_WORDS:
        raise DataError(f"{len(words)} words: write 2 to {_MOST_WORDS}, with commas between them")
    for each in words:
        model.encode(each)
    found = model.explainer.similarities(words)
    python = f"""similar = explainer.similarities({words!r})
print(similar)
print(similar.map())
"""
    return {"cosines": found.cosines, "map": found.map(), "python": python}
