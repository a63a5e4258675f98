"""Topics from Python: a frame, another number, and files that are the same each time."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidybert
from tidybert.errors import DataError, TidyBertError, UsageError
from tidybert.inference.zero_shot import read_descriptions
from tidybert.unlabelled.topics import Topics, kept_tree

PARTS = (("red", "cat"), ("old", "dog"), ("blue", "cow"))
TEXTS = [
    f"{'the ' * (number % 4)}{' '.join(own * (1 + number // 4))} {'near ' * (number % 3)}".strip()
    for own in PARTS
    for number in range(14)
]


@pytest.fixture(scope="module")
def found(tiny_model: Path) -> Topics:
    return tidybert.topics(TEXTS, 3, model=tiny_model)


def test_each_text_has_a_topic_and_each_topic_its_texts(found: Topics) -> None:
    assert found.number == 3
    assert sum(each["size"] for each in found.topics) == len(TEXTS)
    for each in found.topics:
        rows = np.flatnonzero(found.labels == each["topic"])
        assert len(rows) == each["size"]
        nearest = each["texts"][0]
        assert nearest["row"] in rows
        assert nearest["distance"] == pytest.approx(found.distances[rows].min(), abs=1e-4)
        assert [near["topic"] for near in each["near"]] != []
        assert each["topic"] not in [near["topic"] for near in each["near"]]
    assert [each["size"] for each in found.topics] == sorted(
        (each["size"] for each in found.topics), reverse=True
    )


def test_a_frame_has_a_row_a_text(found: Topics) -> None:
    frame = found.to_pandas()

    assert list(frame.columns) == ["row", "text", "label", "topic", "distance"]
    assert frame["text"].tolist() == TEXTS
    assert {*frame["label"]} == {each["name"] for each in found.topics} == {*found.descriptions}


def test_another_number_needs_no_model(found: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(found.embedder), "vectors", None)

    assert found.cut(5).number == 5
    assert len({*found.cut(5).labels.tolist()}) == 5
    assert found.cut(3).labels.tolist() == found.labels.tolist()
    with pytest.raises(UsageError, match=r"expected 2 to \d+, the texts that differ"):
        found.cut(1)


def test_files_are_the_same_bytes_and_read_again(
    found: Topics, tiny_model: Path, tmp_path: Path
) -> None:
    found.save(tmp_path / "one")
    tidybert.topics(TEXTS, 3, model=tiny_model).save(tmp_path / "two")

    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    assert read_descriptions(tmp_path / "one" / "topics.csv") == found.descriptions
    with (tmp_path / "one" / "assigned.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [int(row["topic"]) for row in rows] == found.labels.tolist()
    contents = json.loads((tmp_path / "one" / "topics.json").read_text(encoding="utf-8"))
    assert contents["num_topics"] == 3
    assert contents["topics"] == found.topics


def leaves(part: dict[str, Any]) -> list[int]:
    own = [part["topic"]] if "topic" in part else []
    return own + [each for one in part.get("parts", []) for each in leaves(one)]


def test_the_tree_has_each_topic_once(found: Topics) -> None:
    contents = found.cut(7).contents()

    assert sorted(leaves(contents["tree"])) == [1, 2, 3, 4, 5, 6, 7]
    assert contents["tree"]["size"] == len(TEXTS)
    assert {each["topic"] for each in contents["map"]} <= {1, 2, 3, 4, 5, 6, 7}


def test_a_kept_tree_is_of_these_texts_and_this_model_whole(found: Topics, tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    assert kept_tree(directory, found.embedder, TEXTS) is None
    found.save(directory)

    tree = kept_tree(directory, found.embedder, TEXTS)

    assert tree is not None
    assert tree.number == found.tree.number
    assert (tree.cut(4)[0] + 1).tolist() == found.cut(4).labels.tolist()
    with pytest.raises(UsageError, match="has the topics of other texts"):
        kept_tree(directory, found.embedder, TEXTS[:-1])
    content = bytearray((directory / "tree.npy").read_bytes())
    content[300] ^= 1
    (directory / "tree.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"tree\.npy is damaged"):
        kept_tree(directory, found.embedder, TEXTS)


def test_a_folder_of_others_is_left_alone(found: Topics, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(UsageError, match=r"holds 'mine\.txt', which is not of topics"):
        found.save(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        found.save(tmp_path / "mine.txt")


@pytest.mark.parametrize(
    "texts",
    [[], ["a cat"] * 100, [*"abcdefghijklmnopqrstuvwxyz"], "a cat", None, [1, 2], ["a", None],
     [*TEXTS, " \n"]],
)  # fmt: skip
def test_what_has_no_topics_is_a_sentence(texts: Any, tiny_model: Path) -> None:
    with pytest.raises(TidyBertError):
        tidybert.topics(texts, model=tiny_model)


@pytest.mark.parametrize(
    "texts",
    [
        ["near " * 40_000, *TEXTS],
        [*TEXTS, *(f"我想退款 {text}" for text in TEXTS)],
        [*TEXTS, "<script>alert(1)</script>", "=1+1", "\x07"],
    ],
    ids=["200,000 characters", "two languages", "hostile"],
)
def test_odd_texts_have_topics(
    texts: list[str], tiny_model: Path, tmp_path: Path, recwarn: Any
) -> None:
    page = tidybert.topics(texts, model=tiny_model).save(tmp_path / "topics")

    content = page.read_text(encoding="utf-8")
    assert "<script>alert" not in content
    assert "\x07" not in content
