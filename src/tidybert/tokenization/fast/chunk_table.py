"""A hash table in NumPy arrays, which finds or adds many chunks in one call.

Open addressing with linear probing: a key takes the first free slot from its home, the slot of its
hash.  All keys of a call probe together, a slot a round, and drop out once they have found theirs.
The table compares whole keys: the hash affects speed alone.
"""

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Keys = Sequence[npt.NDArray[np.uint64]]
Integers = npt.NDArray[np.int64]

_FIRST_SIZE = 2**10


class ChunkTable:
    """An int64 value for each key; a key is ``width`` words of eight bytes, the first never 0.

    N keys are ``width`` arrays (N,), one a word; ``values`` has the value of each slot.  The table
    grows so that it is never more than half full; the caller clears it when it holds too much.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        # Random for each table, so that nobody can write a text whose chunks all collide.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(width)]
        self.clear()

    def __len__(self) -> int:
        return self._num_entries

    @property
    def nbytes(self) -> int:
        """The memory of all slots, in bytes."""
        return sum(words.nbytes for words in self._words) + self.values.nbytes

    def clear(self) -> None:
        """Forget every key."""
        self._allocate(_FIRST_SIZE)

    def find_or_add(self, keys: Keys) -> tuple[Integers, Integers]:
        """(slots (N,), new (M,)): where each key is, and which of the keys were added.

        ``new`` has one of several equal keys.  The caller sets the values of ``slots[new]`` before
        the next call, which may move slots.
        """
        slots = self._homes(keys)
        pending = np.flatnonzero(~self._holds(slots, keys))
        needed = 2 * (len(self) + len(pending))
        if needed > len(self.values):
            self._grow(needed)
            slots = self._homes(keys)
            pending = np.flatnonzero(~self._holds(slots, keys))
        new = [pending[:0]]
        while len(pending):
            claiming = pending[self._words[0][slots[pending]] == 0]
            claimed = slots[claiming]
            # The last of several keys that claim a slot gets it, here and in each of the words.
            self.values[claimed] = claiming
            for words, key in zip(self._words, keys, strict=True):
                words[claimed] = key[claiming]
            new.append(claiming[self.values[claimed] == claiming])
            at = slots[pending]
            elsewhere = ~self._holds(at, [key[pending] for key in keys])
            pending = pending[elsewhere]
            slots[pending] = (at[elsewhere] + 1) % len(self.values)
        added = np.concatenate(new)
        self._num_entries += len(added)
        return slots, added

    def _homes(self, keys: Keys) -> Integers:
        mixed = keys[0] * self._factors[0]
        for key, factor in zip(keys[1:], self._factors[1:], strict=True):
            mixed += key * factor
        # The high bits of a product depend on all bits of the key.
        return (mixed >> np.uint64(65 - len(self.values).bit_length())).astype(np.int64)

    def _holds(self, slots: Integers, keys: Keys) -> npt.NDArray[np.bool_]:
        same: npt.NDArray[np.bool_] = self._words[0][slots] == keys[0]
        for words, key in zip(self._words[1:], keys[1:], strict=True):
            same &= words[slots] == key
        return same

    def _grow(self, needed: int) -> None:
        taken = np.flatnonzero(self._words[0])
        keys = [words[taken] for words in self._words]
        values = self.values[taken]
        self._allocate(1 << (needed - 1).bit_length())
        slots, _ = self.find_or_add(keys)
        self.values[slots] = values

    def _allocate(self, size: int) -> None:
        self._num_entries = 0
        self._words = [np.zeros(size, np.uint64) for _ in range(self.width)]
        self.values = np.zeros(size, np.int64)
