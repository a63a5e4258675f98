"""WordPiece: cut a normalised word into the longest pieces that the vocabulary holds.

Follows WordpieceTokenizer of Google's tokenization.py.
"""

from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN, Vocabulary

MAX_CHARS_PER_WORD = 100


class WordPiece:
    """Greedy longest match first, from the left.

    A word that cannot be built from pieces, or is longer than 100 characters, is one [UNK].
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._unk_id = vocabulary.token_to_id(UNK_TOKEN)
        self._first = {token: index for index, token in enumerate(vocabulary.tokens)}
        self._rest = {
            token[len(CONTINUATION) :]: index
            for token, index in self._first.items()
            if token.startswith(CONTINUATION) and token != CONTINUATION
        }
        self._longest_first = max(map(len, self._first))
        self._longest_rest = max(map(len, self._rest), default=0)

    def split(self, word: str) -> tuple[list[int], list[int]]:
        """The ids of a word's pieces, and the position in the word where each piece ends."""
        whole = self._first.get(word)
        length = len(word)
        if length > MAX_CHARS_PER_WORD:
            return [self._unk_id], [length]
        if whole is not None:
            return [whole], [length]
        ids: list[int] = []
        ends: list[int] = []
        pieces, longest = self._first, self._longest_first
        start = 0
        while start < length:
            for end in range(min(length, start + longest), start, -1):
                index = pieces.get(word[start:end])
                if index is not None:
                    break
            else:
                return [self._unk_id], [length]
            ids.append(index)
            ends.append(end)
            start = end
            pieces, longest = self._rest, self._longest_rest
        return ids, ends
