"""Features: one example as token ids, ready to be laid into rows.

The form is the paper's (section 3): [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with token type 1 from
B on.  Too long a pair loses tokens from the end of its longer side first (``fitting_lengths``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from tidybert.errors import LINE, DataError, DataWarning, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.system.terminal import warn_user
from tidybert.tokenization.tokenizer import BertTokenizer, fitting_lengths

Ids = npt.NDArray[Any]

NO_EXAMPLE: Final = -1
"""The number of features that are learned from beside the examples, such as names of classes."""


@dataclass(slots=True)
class Features:
    """The input of the model for one example, or for one window of it.

    input_ids: (n,) int32, the sequences end to end, special tokens included.
    token_type_ids: (n,) uint8, 0 for [CLS] A [SEP], 1 for B [SEP].
    num_tokens: before truncation, of the whole example.  truncated: whether a part of it is lost.
    lengths: of each sequence, such as a question's choices; empty for one sequence of n.
    example: the example's number, which its windows share, or NO_EXAMPLE.
    place: what decodes a window's answer.
    label: what the task's loss compares with.  weight: the share in the loss.
    taught: (r, C) float32, what a teacher outputs for it, where there is one.
    """

    input_ids: npt.NDArray[np.int32]
    token_type_ids: npt.NDArray[np.uint8]
    num_tokens: int
    truncated: bool = False
    lengths: tuple[int, ...] = ()
    example: int = 0
    place: Any = None
    label: Any = None
    weight: float = 1.0
    taught: Any = None

    @classmethod
    def of_sequences(cls, parts: Sequence["Features"], example: int) -> "Features":
        """The features of one example that has several sequences, end to end."""
        return cls(
            np.concatenate([one.input_ids for one in parts]),
            np.concatenate([one.token_type_ids for one in parts]),
            max(one.num_tokens for one in parts),
            any(one.truncated for one in parts),
            tuple(len(one.input_ids) for one in parts),
            example,
        )

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """The length of each of its sequences; they sum up to n."""
        return self.lengths or (len(self.input_ids),)


MUCH_UNKNOWN: Final = 0.05
"""Share of unknown tokens from which a person is told."""


class UnknownTokens:
    """Counts the tokens of texts, and those of them that the vocabulary does not know."""

    def __init__(self, tokenizer: BertTokenizer) -> None:
        self.unk_token = tokenizer.unk_token
        self._unknown_id = tokenizer.unk_token_id
        self._around = {tokenizer.cls_token_id, tokenizer.sep_token_id}
        self.num_tokens = self.num_unknown = 0
        self._has_warned = False

    def add(self, features: Sequence[Features]) -> Self:
        """Count those of features too."""
        if features:
            ids = np.concatenate([one.input_ids for one in features])
            around = sum(int(np.count_nonzero(ids == each)) for each in self._around)
            self.num_tokens += len(ids) - around
            self.num_unknown += int(np.count_nonzero(ids == self._unknown_id))
        return self

    def remark(self) -> str | None:
        """A sentence on them where they are many; one alone is none of them."""
        if self.num_unknown < 2 or self.num_unknown < MUCH_UNKNOWN * self.num_tokens:
            return None
        share = self.num_unknown / self.num_tokens
        return (
            f"{share:.1%} of the tokens are {self.unk_token}: the vocabulary has nothing for their "
            "characters, so the model cannot tell them apart; tidybert info MODEL shows the "
            "scripts that a vocabulary has"
        )

    def warn(self) -> None:
        """Make a Python warning of the remark, once."""
        if not self._has_warned and (remark := self.remark()) is not None:
            self._has_warned = True
            warn_user(remark, DataWarning)


def first_features(features: Sequence[Features]) -> list[Features]:
    """The first of each example's features, in the order of the examples."""
    return list({one.example: one for one in reversed(features)}.values())[::-1]


def sequence(
    tokenizer: BertTokenizer, texts: Sequence[Ids]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The ids and the token types, (n,) each, of one text or two with their special tokens."""
    return tokenizer.layout.joined(texts)


def text_features(
    tokenizer: BertTokenizer,
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    max_seq_length: int,
    *,
    prompt: str = "",
) -> list[Features]:
    """Features of single texts after the prompt, or pairs, in order, cut to ``max_seq_length``."""
    if prompt:
        texts = [prompt + text for text in texts]
    special = tokenizer.layout.num_special(1 if text_pairs is None else 2)
    if max_seq_length < 2 * special - 1:
        raise UsageError(
            f"{param('max_seq_length', max_seq_length)} leaves no room for text beside the "
            f"{special} special tokens: give at least {2 * special - 1}"
        )
    sides = [
        tokenizer.encode_batch(each, add_special_tokens=False)
        for each in (texts, text_pairs)
        if each is not None
    ]
    features = []
    for number, ids in enumerate(zip(*sides, strict=True)):
        lengths = [len(each) for each in ids]
        room = max_seq_length - special
        kept = fitting_lengths(lengths, room, odd_to_longer=tokenizer.odd_to_longer)
        cut = [each[:length] for each, length in zip(ids, kept, strict=True)]
        total = sum(lengths) + special
        features.append(
            Features(*sequence(tokenizer, cut), total, total > max_seq_length, example=number)
        )
    return features


def example_features(
    examples: Sequence[TextExample],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    *,
    prompt: str = "",
) -> list[Features]:
    """Features of examples without labels; DataError where only some have a second text."""
    pairs = [one.text_pair for one in examples if one.text_pair is not None]
    if pairs and len(pairs) < len(examples):
        single = next(one for one in examples if one.text_pair is None)
        raise DataError(
            f"{LINE} {single.row} has no second text, but {len(pairs)} of {len(examples)} examples "
            "have one: give each a pair, or none"
        )
    texts = [one.text for one in examples]
    return text_features(tokenizer, texts, pairs or None, max_seq_length, prompt=prompt)
