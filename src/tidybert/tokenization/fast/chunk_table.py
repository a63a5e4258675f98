"""A hash table in NumPy arrays, in which many chunks are looked up, or added, in one go.

Open addressing with linear probing: a key is in the first slot that was free from its home on,
the slot that its hash names.  All keys of a call probe together, a slot a round, and those that
have found theirs drop out.  Keys are compared whole: the hash is a matter of speed alone.
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

    N keys are ``width`` arrays (N,), one a word.  The table grows so that it is never more than
    half full; it is for the caller to ``clear`` it when it holds too much.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        # Drawn for each table, so that nobody can write a text whose chunks all collide.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(width)]
        self.clear()

    def __len__(self) -> int:
        return self._num_entries

    @property
    def nbytes(self) -> int:
        """The memory of all slots, in bytes."""
        return sum(words.nbytes for words in self._words) + self._values.nbytes

    def clear(self) -> None:
        """Forget every key."""
        self._allocate(_FIRST_SIZE)

    def find_or_add(self, keys: Keys) -> tuple[Integers, Integers]:
        """(slots (N,), new (M,)): where each key is, and which of the keys were added.

        Of equal keys ``new`` has one.  The caller sets the values of ``slots[new]`` before the next
        call; slots hold until then.
        """
        slots = self._homes(keys)
        pending = np.flatnonzero(~self._holds(slots, keys))
        needed = 2 * (len(self) + len(pending))
        if needed > len(self._values):
            self._grow(needed)
            slots = self._homes(keys)
            pending = np.flatnonzero(~self._holds(slots, keys))
        new = [pending[:0]]
        while len(pending):
            claiming = pending[self._words[0][slots[pending]] == 0]
            claimed = slots[claiming]
            # Of several that claim a slot the last has it, here and in each of the words.
            self._values[claimed] = claiming
            for words, key in zip(self._words, keys, strict=True):
                words[claimed] = key[claiming]
            new.append(claiming[self._values[claimed] == claiming])
            at = slots[pending]
            elsewhere = ~self._holds(at, [key[pending] for key in keys])
            pending = pending[elsewhere]
            slots[pending] = (at[elsewhere] + 1) % len(self._values)
        added = np.concatenate(new)
        self._num_entries += len(added)
        return slots, added

    def values(self, slots: Integers) -> Integers:
        """The values (N,) of the keys in slots (N,)."""
        return self._values[slots]

    def set_values(self, slots: Integers, values: Integers) -> None:
        """Give the keys in slots (N,) their values (N,)."""
        self._values[slots] = values

    def _homes(self, keys: Keys) -> Integers:
        mixed = keys[0] * self._factors[0]
        for key, factor in zip(keys[1:], self._factors[1:], strict=True):
            mixed += key * factor
        # The high bits of a product depend on all bits of the key.
        return (mixed >> np.uint64(65 - len(self._values).bit_length())).astype(np.int64)

    def _holds(self, slots: Integers, keys: Keys) -> npt.NDArray[np.bool_]:
        same: npt.NDArray[np.bool_] = self._words[0][slots] == keys[0]
        for words, key in zip(self._words[1:], keys[1:], strict=True):
            same &= words[slots] == key
        return same

    def _grow(self, needed: int) -> None:
        taken = np.flatnonzero(self._words[0])
        keys = [words[taken] for words in self._words]
        values = self._values[taken]
        self._allocate(1 << (needed - 1).bit_length())
        slots, _ = self.find_or_add(keys)
        self._values[slots] = values

    def _allocate(self, size: int) -> None:
        self._num_entries = 0
        self._words = [np.zeros(size, np.uint64) for _ in range(self.width)]
        self._values = np.zeros(size, np.int64)
