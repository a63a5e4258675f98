"""WordPiece for many words at once: the greedy search of ``wordpiece``, in NumPy.

The vocabulary is a trie over UTF-8 bytes with two roots, one for the tokens that begin a word and
one for those that continue it, without their "##".  All words go down it together, a byte a step.
A token cannot end inside a character of valid UTF-8, so longest in bytes is longest in characters.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN, Vocabulary
from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_FIRST, _REST = range(2)
_NO_TOKEN: Final = -1


class PieceTrie:
    """The tokens of a vocabulary, as a trie of V nodes.

    The children of a node have successive numbers, in the order of their bytes.  A node's 256
    possible bytes are four groups of 64: group g of node n is number 4 n + g.  ``_present`` (4 V,)
    has a bit for each byte of a group that leads to a child, ``_first_child`` (4 V,) the number of
    the first of these children.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        endings = [
            index
            for index, token in enumerate(tokens)
            if token.startswith(CONTINUATION) and token != CONTINUATION
        ]
        strings = [token.encode("utf-8", "surrogatepass") for token in tokens]
        strings += [strings[index].removeprefix(CONTINUATION.encode()) for index in endings]
        text = np.frombuffer(b"".join(strings), np.uint8)
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        starts = np.cumsum(lengths) - lengths
        nodes = np.repeat([_FIRST, _REST], [len(tokens), len(endings)])
        edges = []
        num_nodes = 2
        level = 0
        longer = np.flatnonzero(lengths)
        while len(longer):
            # Sorted by parent, then byte: the order in which children are numbered.
            new, which = np.unique(
                nodes[longer] << 8 | text[starts[longer] + level], return_inverse=True
            )
            nodes[longer] = num_nodes + which
            edges.append(new)
            num_nodes += len(new)
            level += 1
            longer = longer[lengths[longer] > level]
        self._unknown = vocabulary.token_to_id(UNK_TOKEN)
        self._tokens = np.full(num_nodes, _NO_TOKEN, np.int32)
        self._tokens[nodes] = [*range(len(tokens)), *endings]
        groups, bits = _group_and_bit(np.concatenate(edges))
        self._present = np.zeros(4 * num_nodes, np.uint64)
        np.bitwise_or.at(self._present, groups, bits)
        num_children = np.bincount(groups, minlength=4 * num_nodes)
        self._first_child = (2 + np.cumsum(num_children) - num_children).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """The memory of the trie, in bytes."""
        return self._tokens.nbytes + self._present.nbytes + self._first_child.nbytes

    def split(self, text: Bytes, starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
        """(ids (T,), counts (N,)) of the pieces of N words; word i is text[starts[i]:ends[i]].

        No word is empty; ``text`` has at least one more byte after the last.
        """
        is_unknown = _too_long(text, starts, ends)
        counts = np.zeros(len(starts), np.int64)
        rounds = []
        words = np.flatnonzero(~is_unknown)
        at, root = starts[words], _FIRST
        while len(words):
            tokens, at = self._longest(text, at, ends[words], root)
            rounds.append((words, tokens))
            counts[words] += 1
            is_found = tokens != _NO_TOKEN
            is_unknown[words[~is_found]] = True
            goes_on = is_found & (at < ends[words])
            words, at, root = words[goes_on], at[goes_on], _REST
        counts[is_unknown] = 1
        places = np.cumsum(counts) - counts
        ids = np.full(counts.sum(), self._unknown)
        for number, (words, tokens) in enumerate(rounds):
            is_known = ~is_unknown[words]
            ids[places[words[is_known]] + number] = tokens[is_known]
        return ids, counts

    def _longest(
        self, text: Bytes, starts: Integers, ends: Integers, root: int
    ) -> tuple[npt.NDArray[np.int32], Integers]:
        """The longest token (N,) that text[starts[i]:ends[i]] begins with, and its end (N,)."""
        tokens = np.full(len(starts), _NO_TOKEN, np.int32)
        token_ends = starts.copy()
        going = np.arange(len(starts))
        at, nodes = starts, np.full(len(starts), root)
        while len(going):
            groups, bits = _group_and_bit(nodes << 8 | text[at])
            has_child = (self._present[groups] & bits != 0) & (at < ends[going])
            going, at, groups, bits = (x[has_child] for x in (going, at, groups, bits))
            at += 1
            before = self._present[groups] & (bits - np.uint64(1))
            nodes = self._first_child[groups] + np.bitwise_count(before).astype(np.int64)
            found = self._tokens[nodes]
            is_token = found != _NO_TOKEN
            tokens[going[is_token]] = found[is_token]
            token_ends[going[is_token]] = at[is_token]
        return tokens, token_ends


def _group_and_bit(edges: Integers) -> tuple[Integers, npt.NDArray[np.uint64]]:
    """For edges (N,), ``node << 8 | byte``: the numbers of their groups, and their bytes' bits."""
    return edges >> 6, np.uint64(1) << (edges & 63).astype(np.uint64)


def _too_long(text: Bytes, starts: Integers, ends: Integers) -> npt.NDArray[np.bool_]:
    """Whether each word has more than MAX_CHARS_PER_WORD characters."""
    too_long: npt.NDArray[np.bool_] = ends - starts > MAX_CHARS_PER_WORD
    for word in np.flatnonzero(too_long):
        # All bytes of a character but its first are 10xxxxxx.
        is_first = text[starts[word] : ends[word]] & 0xC0 != 0x80
        too_long[word] = np.count_nonzero(is_first) > MAX_CHARS_PER_WORD
    return too_long
