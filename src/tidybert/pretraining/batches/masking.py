"""Choosing the tokens to predict, and replacing them.

Follows create_masked_lm_predictions of create_pretraining_data.py (paper 3.1, task 1), with whole
words as in its later version.  Each instance has new masks in each epoch; a whole batch is drawn at
once.

[CLS] and [SEP] are never predicted; [UNK] is, because it replaces a word.  Random tokens come from
the whole vocabulary, special tokens included, as in the original.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.pretraining.batches.instance_options import MOST_PLACES, MaskingOptions
from tidybert.pretraining.batches.random_streams import (
    Array,
    Bits,
    Purpose,
    below,
    lower_half,
    random_bits,
    uniform,
)
from tidybert.tokenization import BertTokenizer

MASK_SHARE: Final = 0.8
"""The share of the predicted tokens that become [MASK]."""
RANDOM_SHARE: Final = 0.1
"""The share that become a random token; the rest keep theirs."""
# The sort key of a token or word: its sequence, 32 random bits, its place in the sequence.
_PLACE_BITS = np.uint64(16)
# Sequences that the 16 bits of a key tell apart.
_BLOCK: Final = 2**16


@dataclass(frozen=True)
class Masked:
    """A batch with M tokens to predict: input_ids (T,) int32, positions (M,) int64, rising rows of
    the batch, and labels (M,) int32, the ids before masking."""

    input_ids: npt.NDArray[np.int32]
    positions: Array
    labels: npt.NDArray[np.int32]


@dataclass(frozen=True)
class _Units:
    """The (U,) tokens or words to choose from, in the batch's order.

    sequence: of each unit.  row: of its first token, and place, the same within the sequence.
    size: its number of tokens.
    """

    sequence: Array
    row: Array
    place: Array
    size: Array


class Masking:
    """Masks batches as the options say, for a tokenizer's vocabulary."""

    def __init__(self, options: MaskingOptions, tokenizer: BertTokenizer) -> None:
        self.options = options
        self._mask_token_id = tokenizer.mask_token_id
        self._vocab_size = tokenizer.vocab_size
        self._is_special = np.zeros(tokenizer.vocab_size, np.bool_)
        self._is_special[[tokenizer.cls_token_id, tokenizer.sep_token_id]] = True
        self._continues = np.array(list(map(tokenizer.continues, tokenizer.vocabulary.tokens)))

    def budgets(self, lengths: Array) -> Array:
        """(B,): the most predictions in sequences of these lengths."""
        wanted = np.rint(lengths * self.options.predicted_share).astype(np.int64)
        budgets: Array = np.maximum(wanted, 1)
        return budgets

    def mask(self, input_ids: npt.NDArray[np.int32], lengths: Array, keys: Bits) -> Masked:
        """Mask B sequences laid end to end.

        input_ids: (T,).  lengths: (B,), which sum up to T.  keys: (B,); a sequence's masks follow
        from its key alone.

        A sequence of n tokens gets round(n * predicted_share) predictions, at least one.  Whole
        words that do not fit into the rest of it are skipped.
        """
        assert lengths.max(initial=0) <= MOST_PLACES
        starts = np.cumsum(lengths) - lengths
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        units = self._units(input_ids, sequence, starts)
        budgets = self.budgets(lengths)
        order, first, counts = _shuffled(units, keys)
        if self.options.whole_word:
            positions = _choose_words(units, order, first, counts, budgets)
        else:
            rank = np.arange(len(order)) - np.repeat(first, counts)
            chosen = order[rank < np.repeat(budgets, counts)]
            positions = units.row[np.sort(chosen)]
        return Masked(
            self._replaced(input_ids, positions, starts, keys[sequence[positions]]),
            positions,
            input_ids[positions],
        )

    def _units(self, input_ids: npt.NDArray[np.int32], sequence: Array, starts: Array) -> _Units:
        is_text = ~self._is_special[input_ids]
        begins = is_text.copy()
        if self.options.whole_word:
            # A cut may leave a continuation at the beginning of a segment.
            begins[1:] &= ~(self._continues[input_ids[1:]] & is_text[:-1])
        rows = np.flatnonzero(begins)
        of = sequence[rows]
        return _Units(of, rows, rows - starts[of], np.add.reduceat(is_text, rows, dtype=np.int64))

    def _replaced(
        self,
        input_ids: npt.NDArray[np.int32],
        positions: Array,
        starts: Array,
        keys: Bits,
    ) -> npt.NDArray[np.int32]:
        owner = np.searchsorted(starts, positions, "right") - 1
        bits = random_bits(Purpose.MASK_REPLACEMENT, keys, positions - starts[owner])
        decision, other = uniform(bits), lower_half(bits)
        replaced = input_ids.copy()
        replaced[positions] = np.where(
            decision < MASK_SHARE,
            self._mask_token_id,
            np.where(
                decision < MASK_SHARE + RANDOM_SHARE,
                below(other, self._vocab_size),
                input_ids[positions],
            ),
        )
        return replaced


def _choose_words(
    units: _Units, order: Array, first: Array, counts: Array, budgets: Array
) -> Array:
    """Rows of the words to predict, rising."""
    is_taken = np.zeros(len(units.row), np.bool_)
    left = budgets.copy()
    turn = 0
    going_on = np.arange(len(counts))
    # As in the original, each turn offers every sequence the next of its shuffled words.
    while len(going_on):
        words = order[first[going_on] + turn]
        words = words[units.size[words] <= left[units.sequence[words]]]
        is_taken[words] = True
        left[units.sequence[words]] -= units.size[words]
        turn += 1
        going_on = going_on[(left[going_on] > 0) & (turn < counts[going_on])]
    sizes = units.size.copy()
    # Where no word fits, take pieces of one: a sequence must have something to predict.
    bare = np.flatnonzero(left == budgets)
    pieces = order[first[bare]]
    is_taken[pieces] = True
    sizes[pieces] = budgets[bare]
    chosen = np.flatnonzero(is_taken)
    sizes = sizes[chosen]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows: Array = np.repeat(units.row[chosen], sizes) + within
    return rows


def _shuffled(units: _Units, keys: Bits) -> tuple[Array, Array, Array]:
    """The units, shuffled in each sequence; its first place and its number of units (B,)."""
    counts = np.bincount(units.sequence, minlength=len(keys))
    first = np.cumsum(counts) - counts
    draws = random_bits(Purpose.MASK_ORDER, keys[units.sequence], units.place)
    number = (np.arange(len(draws)) - first[units.sequence]).astype(np.uint64)
    key = units.sequence.astype(np.uint64) << np.uint64(48)
    key |= (draws >> np.uint64(32)) << _PLACE_BITS | number
    blocks = np.searchsorted(units.sequence, range(_BLOCK, len(keys), _BLOCK))
    for block in np.split(key, blocks):
        # Sorting numbers that hold their places is several times as fast as argsort.
        block.sort()
    order = (key & np.uint64(MOST_PLACES - 1)).astype(np.int64) + np.repeat(first, counts)
    return order, first, counts
