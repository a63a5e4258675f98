"""Entities of the lattice, beside the sum over every valid tagging."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from tidybert.metrics.entity_scores import entities
from tidybert.tasks.tags.entity_lattice import entity_candidates, entity_types, is_iob2

NAMES = ("O", "B-x", "I-x", "B-y", "I-y")


def every_entity(logits: Any) -> dict[tuple[int, int, int], float]:
    """The probability of each entity of one sentence, from all its taggings."""
    odds = np.exp(logits.astype(np.float64))
    total, found = 0.0, dict[tuple[int, int, int], float]()
    for tags in product(range(len(NAMES)), repeat=len(logits)):
        names = ["O", *(NAMES[tag] for tag in tags)]
        if any(b[0] == "I" and a[1:] != b[1:] for a, b in pairwise(names)):
            continue
        weight = float(np.prod([odds[word, tag] for word, tag in enumerate(tags)]))
        total += weight
        for one in entities(names[1:]):
            key = ("xy".index(one.type), one.start, one.end)
            found[key] = found.get(key, 0.0) + weight
    return {key: weight / total for key, weight in found.items()}


@pytest.mark.parametrize("seed", range(3))
def test_each_is_as_probable_as_the_taggings_that_have_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.permutation([0, 1, 2, 3, 4, 5])
    starts = np.cumsum([0, *lengths])
    logits = (2 * random.normal(size=(starts[-1], len(NAMES)))).astype(np.float32)

    found = entity_candidates(logits, starts, NAMES, floor=1e-12)

    wanted = {
        (kind, start + first, start + last): weight
        for start, end in pairwise(starts)
        for (kind, first, last), weight in every_entity(logits[start:end]).items()
    }
    places = [
        *zip(*(each.tolist() for each in (found.types, found.starts, found.ends)), strict=False)
    ]
    assert sorted(places) == sorted(wanted)
    assert places == sorted(places, key=lambda each: (each[1], each[2], each[0]))
    np.testing.assert_allclose(found.probabilities, [wanted[each] for each in places], atol=1e-12)


def test_an_inside_without_a_beginning_is_no_entity() -> None:
    # Each word alone says I-x; only with B-x before it IOB2 allows that.
    logits = np.full((3, 5), -30.0, dtype=np.float32)
    logits[:, 2] = 30.0
    logits[0, 1] = 5.0

    found = entity_candidates(logits, np.array([0, 3]), NAMES)

    assert (found.types.tolist(), found.starts.tolist(), found.ends.tolist()) == ([0], [0], [3])
    assert found.probabilities[0] == pytest.approx(1.0, abs=1e-6)


def test_a_long_text_and_large_logits_stay_finite() -> None:
    logits = np.zeros((5000, 5), dtype=np.float32)
    logits[:, 2] = 3e4
    logits[::7, 1] = 6e4

    found = entity_candidates(logits, np.array([0, 5000]), NAMES)

    assert found.ends.tolist() == [*range(7, 5000, 7), 5000]
    np.testing.assert_allclose(found.probabilities, 1.0, atol=1e-9)


def test_names_that_are_iob2() -> None:
    assert entity_types(("O", "B-y", "I-y", "B", "I")) == ("y", "_")
    assert is_iob2(NAMES)
    assert is_iob2(("B-x", "O", "I-x"))
    for other in (
        ("O", "I-x"),
        ("O", "B-x"),
        (*NAMES, "S-x"),
        ("O",),
        ("NOUN", "VERB"),
        ("O",) * 3,
    ):
        assert not is_iob2(other)
