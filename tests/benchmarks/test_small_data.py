"""A few hundred texts, by four sides."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_side_is_scored(script: Callable[[str], ModuleType], tiny_model: Path) -> None:
    small = script("small_data")
    train, test = small.parts("tickets", 300, 1)

    scores = {}
    for side in small.SIDES:
        estimator = small.build(side, tiny_model, is_pair=False)
        if side == "BertVectorizer":
            estimator.set_params(bertvectorizer__max_seq_length=8)
        elif side != "TF-IDF":
            estimator.set_params(max_seq_length=8, max_steps=1)
        scores[side] = small.accuracy_of(estimator, train[: 300 if side == "TF-IDF" else 30], test)

    assert scores["TF-IDF"] > 0.7
    assert all(0 < each < 1 for each in scores.values())
    rows = [
        {"data": "tickets", "size": 300, "side": side, "accuracy": each}
        for side, each in scores.items()
    ]
    assert small.table(rows)[-1].startswith(f"| mean | 300 | {100 * scores['TF-IDF']:.1f} | ")


def test_pairs_are_counted_as_one_text(script: Callable[[str], ModuleType]) -> None:
    counted = script("small_data").build("TF-IDF", "none", is_pair=True)

    counted.fit([("one two", "three"), ("four", "five six")], ["a", "b"])

    assert set(counted[0].vocabulary_) == {"one", "two", "three", "four", "five", "six"}
