"""The bundled tickets: counts, labels, balance, and no text that is in both parts."""

import csv
import re
from collections import Counter
from importlib import resources

import pytest

LABELS = {"hardware", "software", "billing"}
PARTS = {"train": 480, "dev": 150}


def path(name: str):
    return resources.files("tidybert") / "resources" / "tickets" / name


def rows(part: str) -> list[dict[str, str]]:
    with path(f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


@pytest.mark.parametrize("part", PARTS)
def test_every_row_is_a_text_and_one_of_the_labels(part: str) -> None:
    for row in rows(part):
        assert list(row) == ["text", "label"]
        assert row["label"] in LABELS
        assert row["text"] == row["text"].strip()
        assert row["text"].isprintable()
        assert len(row["text"].split()) >= 4


@pytest.mark.parametrize("part", PARTS)
def test_there_are_enough_and_the_labels_are_balanced(part: str) -> None:
    counts = Counter(row["label"] for row in rows(part))
    assert set(counts) == LABELS
    assert counts.total() >= PARTS[part]
    assert max(counts.values()) <= 1.5 * min(counts.values())
    readme = path("README.md").read_text(encoding="utf-8")
    cells = [counts.total(), *(counts[label] for label in ("hardware", "software", "billing"))]
    assert f"| {part}.csv | " + " | ".join(map(str, cells)) + " |" in readme


def test_the_lengths_vary_and_no_text_appears_twice() -> None:
    texts = [" ".join(row["text"].casefold().split()) for part in PARTS for row in rows(part)]
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) <= 5
    assert max(lengths) >= 75
    assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_no_ticket_is_nearly_another() -> None:
    """Jaccard overlap of the words; within a part a text must differ as well."""
    new = path("new.txt").read_text(encoding="utf-8").splitlines()
    everything = [
        words(text) for text in [row["text"] for part in PARTS for row in rows(part)] + new
    ]
    for number, one in enumerate(everything):
        for other in everything[:number]:
            assert len(one & other) <= 0.6 * len(one | other), (sorted(one), sorted(other))


def test_nothing_looks_like_personal_data() -> None:
    for row in rows("train") + rows("dev"):
        assert not re.search(r"\S@\S|https?:|www\.|\d{6}|\+\d{2}", row["text"]), row["text"]


def test_the_new_tickets_are_eight_unlabelled_lines() -> None:
    lines = path("new.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 8
    assert all(lines)
