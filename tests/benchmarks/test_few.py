"""Few labels: the draws and the table."""

from collections import Counter
from collections.abc import Callable
from types import ModuleType

import pytest

from tidybert.files.text_examples import TextExample


@pytest.fixture
def few(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("few")


def test_a_draw_has_as_many_of_each_class(few: ModuleType) -> None:
    examples = [TextExample(f"text {n}", None, "ab"[n % 2], n) for n in range(20)]
    examples.append(TextExample("rare", None, "c", 20))

    drawn = few.drawn(examples, 3, seed=1)

    assert Counter(one.label for one in drawn) == {"a": 3, "b": 3, "c": 1}
    assert few.drawn(examples, 3, seed=1) == drawn != few.drawn(examples, 3, seed=2)


def test_the_table_has_means_over_data(few: ModuleType) -> None:
    rows = [
        {"data": data, "shots": 8, "seed": seed, "way": way, "accuracy": score, "seconds": 2.0}
        for way, scores in {"probe": (0.5, 0.7, 0.9), "SetFit": (0.4, 0.6, 0.8)}.items()
        for (data, seed), score in zip(
            [("TREC", 1), ("TREC", 2), ("SST-2", 1)], scores, strict=True
        )
    ]

    table = few.table(rows)

    assert table[0] == "| data | a class | probe | SetFit |"
    assert table[2:] == [
        "| SST-2 | 8 | 90.0, 2 s | 80.0, 2 s |",
        "| TREC | 8 | 60.0 ± 14.1, 2 s | 50.0 ± 14.1, 2 s |",
        "| mean of 2 | 8 | 75.0, 2 s | 65.0, 2 s |",
    ]


def test_a_mean_compares_the_same_data_and_draws(few: ModuleType) -> None:
    def row(data: str, seed: int, way: str, score: float) -> dict[str, object]:
        more = {"accuracy": score, "seconds": float(seed)}
        return {"data": data, "shots": 8, "seed": seed, "way": way, **more}

    probe = [row("TREC", 1, "probe", 0.5), row("TREC", 2, "probe", 0.7)]
    alone = row("SST-2", 1, "probe", 0.1)

    table = few.table([*probe, alone, row("TREC", 1, "SetFit", 0.4)])
    assert table[-1] == "| mean of 1 | 8 | 60.0, 1 s |  |"
    # No data set has both ways.
    assert few.table([alone, row("TREC", 1, "SetFit", 0.4)])[-1].startswith("| TREC | 8 |")
