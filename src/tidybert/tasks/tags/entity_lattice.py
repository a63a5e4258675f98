"""How probable each entity is, over all the ways to tag a sentence that IOB2 allows.

A model gives each word's tags apart.  IOB2 allows I-X after B-X and I-X alone; among the taggings
that it allows, one is as probable as the product of its tags.  The forward-backward algorithm (Baum
et al. 1970) adds up those that have an entity, of exactly these words and this type.  Loads no
torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.metrics.entity_scores import split_tag

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

FLOOR: Final = 1e-6
"""The probability below which no entity is looked at."""


@dataclass(frozen=True)
class Candidates:
    """Entities that may be there, M of them, by their place: they may overlap.

    types: (M,) numbers among ``entity_types``.  starts, ends: (M,) the first word, and the one
    after the last, among all words.  probabilities: (M,) in the lattice.
    """

    types: Indices
    starts: Indices
    ends: Indices
    probabilities: Floats


def entity_types(names: Sequence[str]) -> tuple[str, ...]:
    """The types that the tags of a model mark, in their order."""
    return tuple(dict.fromkeys(split_tag(name)[1] for name in names if name != "O"))


def is_iob2(names: Sequence[str]) -> bool:
    """Whether the tags are O, and B and I of each type."""
    types = entity_types(names)
    needed = {("O", ""), *((prefix, name) for name in types for prefix in "BI")}
    return bool(types) and len(names) == len(needed) and set(map(split_tag, names)) == needed


def entity_candidates(
    logits: npt.NDArray[np.floating], starts: Indices, names: Sequence[str], floor: float = FLOOR
) -> Candidates:
    """Every entity of at least this probability.

    Args:
        logits: (W, L) of each word's tags, in IOB2.
        starts: (N + 1,) the first word of each of N sentences, and W.
        names: the L tags.
    """
    types = entity_types(names)
    place = {split_tag(name): at for at, name in enumerate(names)}
    given = logits.astype(np.float64)
    shifted = given - given.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    # A sentence of n words has n + 1 slots, between words; an entity goes from slot to slot.
    lengths = np.diff(starts)
    slots = starts[:-1] + np.arange(len(lengths))
    of_word = np.arange(len(logs)) + np.repeat(np.arange(len(lengths)), lengths)

    def by_slot(tags: Sequence[tuple[str, str]]) -> Floats:
        found = np.full((len(logs) + len(lengths) + 1, len(tags)), -np.inf)
        found[of_word] = logs[:, [place[each] for each in tags]]
        return found

    outside = by_slot([("O", "")])[:, 0]
    begins, insides = (by_slot([(prefix, name) for name in types]) for prefix in "BI")
    before, after, after_inside = (np.zeros_like(each) for each in (outside, outside, begins))
    # The longest sentences come first, so that those that have a word at a place are a slice.
    order = np.argsort(-lengths, kind="stable")
    longest = int(lengths.max(initial=0))
    numbers = [int(np.searchsorted(-lengths[order], -at)) for at in range(longest)]
    within = np.full((len(lengths), len(types)), -np.inf)
    for at, count in enumerate(numbers):
        here = slots[order[:count]] + at
        opened = before[here, None] + begins[here]
        within = np.logaddexp(opened, within[:count] + insides[here])
        closed = np.logaddexp.reduce(within, axis=1)
        before[here + 1] = np.logaddexp(before[here] + outside[here], closed)
    for at, count in reversed([*enumerate(numbers)]):
        here = slots[order[:count]] + at
        opened = np.logaddexp.reduce(begins[here] + after_inside[here + 1], axis=1)
        after[here] = np.logaddexp(outside[here] + after[here + 1], opened)
        inside = insides[here] + after_inside[here + 1]
        after_inside[here] = np.logaddexp(after[here, None], inside)
    total = np.repeat(after[slots], lengths)
    # Entities grow a word at a time, while one that is as long or longer is probable enough.
    first, kind = (each.reshape(-1) for each in np.indices((len(logs), len(types))))
    slot = of_word[first]
    score = before[slot] + begins[slot, kind] - total[first]
    found: list[tuple[Indices, Indices, Indices, Floats]] = []
    least = np.log(floor)
    length = 1
    while len(first):
        kept = score + after_inside[slot + 1, kind] >= least
        first, kind, slot, score = first[kept], kind[kept], slot[kept] + 1, score[kept]
        whole = score + after[slot]
        ends = whole >= least
        found.append((kind[ends], first[ends], first[ends] + length, whole[ends]))
        score = score + insides[slot, kind]
        length += 1
    types_, firsts, lasts, scores = (
        np.concatenate([each[part] for each in found] or [np.empty(0, dtype=np.int64)])
        for part in range(4)
    )
    by_place = np.lexsort((types_, lasts, firsts))
    probabilities = np.exp(np.minimum(scores.astype(np.float64), 0.0))
    return Candidates(types_[by_place], firsts[by_place], lasts[by_place], probabilities[by_place])
