"""WordPiece: cut a normalised word into the longest pieces that the vocabulary holds.

Follows WordpieceTokenizer of Google's tokenization.py.
"""

from itertools import accumulate

from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN, Vocabulary

MAX_CHARS_PER_WORD = 100


class WordPiece:
    """Greedy longest match first, from the left.

    A word that cannot be built from pieces, or is longer than 100 characters, is one [UNK].
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = vocabulary.tokens
        self._unk_id = vocabulary.token_to_id(UNK_TOKEN)
        self._first = {token: index for index, token in enumerate(vocabulary.tokens)}
        self._rest = {
            token[len(CONTINUATION) :]: index
            for token, index in self._first.items()
            if token.startswith(CONTINUATION) and token != CONTINUATION
        }
        self._longest = max(map(len, self._first))

    def split(self, word: str) -> list[int]:
        """The ids of a word's pieces."""
        length = len(word)
        if length > MAX_CHARS_PER_WORD:
            return [self._unk_id]
        pieces = self._first
        index = pieces.get(word)
        if index is not None:
            return [index]
        ids: list[int] = []
        start = 0
        while start < length:
            end = min(length, start + self._longest)
            while end > start:
                index = pieces.get(word[start:end])
                if index is not None:
                    break
                end -= 1
            else:
                return [self._unk_id]
            ids.append(index)
            start = end
            pieces = self._rest
        return ids

    def ends(self, word: str, ids: list[int]) -> list[int]:
        """The position in a word where each of the pieces that split gave ends."""
        if ids == [self._unk_id]:
            return [len(word)]
        lengths = [len(self._tokens[index]) - len(CONTINUATION) for index in ids]
        return list(accumulate(lengths, initial=len(CONTINUATION)))[1:]
