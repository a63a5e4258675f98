"""Which joined pieces a vocabulary keeps: those whose loss would cost most tokens.

The trainer joins pairs of pieces, and WordPiece takes the longest piece that fits from the left.
So some pieces that were frequent when they were joined are hardly ever taken: ``##atio`` once there
is ``##ation``.  This drops them in a few rounds, because each one dropped changes how often others
are taken.  Kudo (2018, "Subword regularization", section 3.2) learns too many and drops by the loss
of a unigram model; here the cost of a piece is counted in tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.tokenizer import BertTokenizer
from tidybert.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS, Vocabulary

_ROUNDS: Final = 4
# Of the pieces too many, those left after each round but the last.
_LEFT: Final = 0.4


def pruned(
    merged: Sequence[str], single: Sequence[str], words: Mapping[str, int], size: int
) -> list[str]:
    """``size`` of the joined pieces, in their order; all of them where there are no more.

    Args:
        merged: pieces of several characters, in the order in which they were joined.
        single: the pieces of characters, which stay.
        words: how often each word occurs; ``single`` can spell all of them.
    """
    kept = list(merged)
    for round_ in range(_ROUNDS):
        if len(kept) <= size:
            break
        cost = _costs(kept, single, words)
        is_last = round_ == _ROUNDS - 1
        goal = size if is_last else size + int((len(kept) - size) * _LEFT)
        # Of equals the one that was joined earlier stays.
        chosen = np.sort(np.argsort(-cost, kind="stable")[:goal])
        kept = [kept[place] for place in chosen]
    return kept


def _costs(
    merged: Sequence[str], single: Sequence[str], words: Mapping[str, int]
) -> npt.NDArray[np.int64]:
    """(M,) int64: the tokens that the words would take more without each joined piece."""
    tokens = [*SPECIAL_TOKENS, *single, *merged]
    # The words are normalised already.
    tokenizer = BertTokenizer(Vocabulary(tokens), do_lower_case=False, strip_accents=False)
    ids, offsets = tokenizer.encode_flat(list(words), add_special_tokens=False)
    times = np.repeat(np.fromiter(words.values(), np.int64, len(words)), np.diff(offsets))
    used = np.bincount(ids, weights=times, minlength=len(tokens)).astype(np.int64)
    known = {*single, *merged}
    more = [_num_parts(piece, known) - 1 for piece in merged]
    return used[-len(merged) :] * np.array(more, np.int64)


def _num_parts(piece: str, known: set[str]) -> int:
    """How many of the other pieces WordPiece takes for a piece's characters."""
    inside = piece.startswith(CONTINUATION)
    text = piece.removeprefix(CONTINUATION)
    start = count = 0
    while start < len(text):
        head = CONTINUATION if inside or start else ""
        longest = len(text) if start else len(text) - 1
        ends = range(longest, start, -1)
        start = next(end for end in ends if head + text[start:end] in known)
        count += 1
    return count
