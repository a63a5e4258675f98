"""A WordPiece vocabulary: the tokens of a vocab.txt, whose line number, from 0, is the id.

The file is that of Google's BERT release: UTF-8, one token a line.  Lines end at line feeds alone:
the published Chinese and multilingual vocabularies hold U+2028 as a token.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tidybert.errors import VocabularyError
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.limits import TOKENIZER_BYTES, VOCABULARY_TOKENS
from tidybert.storage.opening import read_text

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN = SPECIAL_TOKENS
CONTINUATION = "##"
# Where a text begins and ends, to a model that reads from left to right.
TEXT_TOKENS = SOS_TOKEN, EOS_TOKEN = ("[SOS]", "[EOS]")


class Vocabulary:
    """Tokens in the order of their ids, and the ids of tokens.

    ``source`` names the tokens' origin in error messages.  ``special`` are the tokens for padding,
    unknown words, beginnings, ends and masks.  The last ``num_added`` tokens were added to the
    others: a vocab.txt does not hold them.  Raises VocabularyError for no tokens at all, a blank or
    repeated token, and a missing special token.
    """

    def __init__(
        self,
        tokens: Iterable[str],
        *,
        source: str | Path = "vocabulary",
        special: Sequence[str] = SPECIAL_TOKENS,
        num_added: int = 0,
    ) -> None:
        self.tokens = tuple(tokens)
        self.num_added = num_added
        self._special = tuple(special)
        if not self.tokens:
            raise VocabularyError(f"{source} is empty: expected one token a line")
        self._ids = dict(zip(self.tokens, range(len(self.tokens)), strict=True))
        if "" in self._ids or len(self._ids) < len(self.tokens):
            self._refuse(source)
        missing = [token for token in special if token not in self._ids]
        if missing:
            raise VocabularyError(
                f"{source}:{len(self.tokens)} ends {len(self.tokens)} tokens without "
                f"{', '.join(missing)}: a BERT vocabulary holds {' '.join(special)}"
            )

    def _refuse(self, source: str | Path) -> None:
        """Raise VocabularyError for the first token that is blank or comes again."""
        lines: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            if not token:
                raise VocabularyError(
                    f"{source}:{index + 1} is blank: expected one token a line, without gaps"
                )
            first = lines.setdefault(token, index)
            if first != index:
                raise VocabularyError(
                    f"{source}:{index + 1} repeats the token {token!r} of line {first + 1}: "
                    "every token has one id, so remove one of them and retrain or restore the file"
                )

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a vocab.txt; raises VocabularyError naming the file and line, and LimitError."""
        text = read_text(path, TOKENIZER_BYTES, error=VocabularyError)
        VOCABULARY_TOKENS.check(text.count("\n"), path)
        lines = text.removesuffix("\n").split("\n") if text else []
        return cls((line.removesuffix("\r") for line in lines), source=path)

    def save(self, path: str | Path) -> None:
        """Write the tokens as a vocab.txt."""
        atomic_write_text(path, self._content())

    @property
    def sha256(self) -> str:
        """The sha256 of the vocab.txt that ``save`` writes; others may end lines in another way."""
        return hashlib.sha256(self._content().encode()).hexdigest()

    @property
    def ids(self) -> Mapping[str, int]:
        """The ids by token."""
        return self._ids

    def _content(self) -> str:
        return "".join(f"{token}\n" for token in self.tokens[: len(self) - self.num_added])

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return False
        return (self.tokens, self.num_added) == (other.tokens, other.num_added)

    def __hash__(self) -> int:
        return hash(self.tokens)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"

    def token_to_id(self, token: str) -> int:
        """The id of a token; a token that the vocabulary lacks has the id of [UNK]."""
        return self._ids.get(token, self._ids[self._special[1]])

    def id_to_token(self, index: int) -> str:
        """The token of an id; raises VocabularyError for an id outside the vocabulary."""
        if not 0 <= index < len(self.tokens):
            raise VocabularyError(
                f"id {index} is not in a vocabulary of {len(self)} tokens: "
                f"expected 0 to {len(self) - 1}; do the ids come from another one?"
            )
        return self.tokens[index]

    @property
    def text_bounds(self) -> tuple[int, int]:
        """The ids of [SOS] and [EOS]; raises VocabularyError where one is missing."""
        missing = [token for token in TEXT_TOKENS if token not in self._ids]
        if missing:
            raise VocabularyError(
                f"the vocabulary has no {' and no '.join(missing)}, which a language model needs: "
                "take the vocab.txt that train-lm wrote"
            )
        return self._ids[SOS_TOKEN], self._ids[EOS_TOKEN]

    @property
    def is_cased(self) -> bool:
        """Whether the vocabulary tells capitals apart: it holds each Latin capital as a token."""
        return all(letter in self._ids for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
