"""The views Tokens, Masked word and Words: tokens with embeddings, masked words, words on a map."""

from dataclasses import asdict
from typing import Any, Final

import numpy as np

from tidybert.errors import DataError
from tidybert.explain.explained_text import words_of
from tidybert.page.page_model import (
    PageModel,
    checked_place,
    checked_text,
    shown_tokens,
    written_texts,
)

_LIKELIEST: Final = 10
_MOST_WORDS: Final = 40


def tokens(model: PageModel, text: str, pair: str = "") -> dict[str, Any]:
    """The pieces of a text or pair."""
    encoding = model.encode(text, pair)
    python = f"""from tidybert import BertTokenizer, Explainer

tokenizer = BertTokenizer.from_pretrained({model.written!r})
encoding = tokenizer.encode({written_texts(text, pair)}, special_tokens_in_text=True)
print(encoding.tokens, encoding.input_ids, encoding.token_type_ids, encoding.offset_mapping)
print(Explainer({model.written!r}).embeddings({written_texts(text, pair)}))
"""
    return {"tokens": shown_tokens(encoding), "python": python}


def embedding(model: PageModel, text: str, position: int, pair: str = "") -> dict[str, Any]:
    """The three embeddings of one piece, their sum, and the sum after LayerNorm: (H,) each."""
    most = len(model.encode(text, pair)) - 1
    at = checked_place("position", position, 0, most)
    parts = model.explainer.embeddings(text, pair or None).parts
    return {"parts": [{"name": name, "values": values[at]} for name, values in parts.items()]}


def words(model: PageModel, text: str) -> dict[str, Any]:
    """The words that can be hidden."""
    return {"words": [each.text for each in words_of(model.encode(text), (text, ""))]}


def gap(model: PageModel, text: str, word: int) -> dict[str, Any]:
    """The pieces that each layer would write in place of a word, and how attention changes.

    ``change`` has (L, n) mean differences over the heads, with the word hidden minus with it shown:
    of what its first piece looks at ("from"), and of how much each piece looks at it ("to").
    """
    encoding = model.encode(text)
    found = words_of(encoding, (text, ""))
    if not found:
        raise DataError("the text has no word to hide")
    hidden = found[checked_place("word", word, 0, len(found) - 1)]
    cloze = model.cloze(text, hidden.span, _LIKELIEST)
    before = model.attention(text).probs
    after = model.explainer.attention(text, hide=hidden.span).probs
    change = (after - before).mean(axis=1)
    first = hidden.pieces[0]
    python = f"""from tidybert import Explainer

explainer = Explainer({model.written!r})
cloze = explainer.cloze({text!r}, hide={hidden.span}, top_k={_LIKELIEST})
print(cloze)
before = explainer.attention({text!r})
after = explainer.attention({text!r}, hide={hidden.span})
print((after.probs - before.probs).mean(axis=1)[:, {first}].round(3))
"""
    masks = []
    for mask in cloze.masks:
        if mask.position in hidden.pieces:
            layers = [asdict(each) for each in mask.layers]
            masks.append({**layers[-1], "truth": mask.truth, "layers": layers})
    return {
        "tokens": shown_tokens(encoding),
        "masks": masks,
        "vocabulary": model.tokenizer.vocab_size,
        "change": {
            "from": np.ascontiguousarray(change[:, first, :]),
            "to": np.ascontiguousarray(change[:, :, first]),
        },
        "python": python,
    }


def word_apart(model: PageModel, word: str, text: str, pair: str) -> dict[str, Any]:
    """The cosine of a word's vectors in two sentences by layer, and its nearest pieces."""
    checked_text(word)
    if not word.strip() or not pair:
        raise DataError("write a word, and two sentences that have it")
    for each in (text, pair):
        model.encode(each)
    found = model.explainer.word_in_texts(word.strip(), [text, pair])
    near = model.explainer.nearest(word.strip(), top_k=_LIKELIEST)
    python = f"""from tidybert import Explainer

explainer = Explainer({model.written!r})
print(explainer.word_in_texts({word.strip()!r}, [{text!r}, {pair!r}]))
print(explainer.nearest({word.strip()!r}, top_k={_LIKELIEST}))
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
