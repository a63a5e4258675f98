"""The findings of a check: a wrong label, contradicting copies and leaks."""

from collections.abc import Sequence

import numpy as np
import pytest

from tidybert.checking import label_check
from tidybert.checking.label_check import (
    Vectors,
    duplicate_findings,
    label_findings,
    label_probabilities,
)
from tidybert.data.checks import TrainingData
from tidybert.data.features import Features
from tidybert.files.text_examples import TextExample
from tidybert.system.reporter import SILENT
from tidybert.tasks.classification import Classification
from tidybert.tasks.multi_label import MultiLabelClassification

CLASSES = ["a", "b", "c"]


def data_of(labels: list[str], dev: Sequence[str] = ()) -> TrainingData[TextExample]:
    parts = [
        [TextExample(f"{part} {at}", None, label, at + 2) for at, label in enumerate(given)]
        for part, given in (("train", labels), ("dev", dev))
    ]
    features = [
        Features(np.array([1]), np.array([0]), 1, example=at, label=CLASSES.index(label))
        for at, label in enumerate(labels)
    ]
    return TrainingData(parts[0], parts[1] or None, features, [], 8)


@pytest.fixture
def clusters() -> tuple[list[str], np.ndarray]:
    """The labels of 60 texts of classes a and b, and vectors that show them."""
    labels = [CLASSES[at % 2] for at in range(60)]
    vectors = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    vectors[::2, 0] += 6
    return labels, vectors


def test_a_wrong_label_is_the_first_and_rare_classes_are_not_judged(clusters) -> None:
    labels, vectors = clusters
    wrong = [*labels]
    wrong[11], wrong[20] = "a", "c"

    task, data = Classification(CLASSES), data_of(wrong)

    p = label_probabilities(task, data, vectors, SILENT)
    found = label_findings(task, data, p)

    first = found["suspected"][0]
    assert (first["row"], first["label"], first["suggested"]) == (13, "a", "b")
    assert first["label_probability"] < first["suggested_probability"]
    assert found["not_judged"] == ["c"]
    assert all(one["label"] != "c" for one in found["suspected"])
    assert {"classes": ["a", "b"], "count": 1, "share": 1 / 59} in found["mixed_up"]
    assert 0.9 < found["agreement"] < 1
    assert found["reliable"]


def test_copies_under_two_labels_and_in_dev_are_found_once() -> None:
    labels = [CLASSES[at % 2] for at in range(60)]
    vectors = np.random.default_rng(0).normal(size=(60, 32)).astype(np.float32)
    vectors[1] = vectors[3] = vectors[5] = vectors[0]
    dev = np.stack([vectors[7], -vectors[7]])
    alike = Vectors(vectors, dev).directions()

    found = duplicate_findings(Classification(CLASSES), data_of(labels, ["b", "b"]), alike)

    (pair,) = found["contradicting"]
    assert [one["row"] for one in pair["texts"]] == [2, 3]
    assert [one["label"] for one in pair["texts"]] == ["a", "b"]
    assert pair["cosine"] == pytest.approx(1, abs=1e-4)
    (leak,) = found["leaked"]
    assert [one["text"] for one in leak["texts"]] == ["dev 0", "train 7"]


def test_sets_of_labels_are_compared_as_sets() -> None:
    sets = [("x", "y"), ("y", "x"), ("x",)]
    examples = [TextExample(f"{at}", None, None, at, each) for at, each in enumerate(sets, 2)]
    data = TrainingData(examples, None, [], [], 8)
    alike = Vectors(*[np.ones((3, 2), np.float32) / np.sqrt(2, dtype=np.float32)] * 2)

    found = duplicate_findings(MultiLabelClassification(["x", "y"]), data, alike)

    (pair,) = found["contradicting"]
    assert sorted(one["label"] for one in pair["texts"]) == ["x", "x, y"]
    assert found["leaked"] is None


class Fixed:
    """In place of an Embedder."""

    dimension = 2

    def vectors(self, features, _advance):
        return np.array([[1, 0], [3, 2], [5, 5]], dtype=np.float32)


def fixed_vectors(numbers: tuple[int, ...], num_examples: int) -> list[list[float]]:
    features = [Features(np.array([1]), np.array([0]), 1, example=at) for at in numbers]
    found = label_check.text_vectors(Fixed(), features, num_examples, SILENT)  # type: ignore[arg-type]
    return found.tolist()


def test_the_windows_of_a_text_share_a_vector_and_those_of_a_pair_are_compared() -> None:
    assert fixed_vectors((0, 0, 1), 2) == [[2, 1], [5, 5]]
    # The third features are of the second text of the one pair.
    assert fixed_vectors((0, 0, 1), 1) == [[2, 1, 5, 5]]
    both = np.array([[2, 1, 5, 5]], dtype=np.float32)
    compared = Vectors(both, both[:0], of_pairs=True).compared()
    assert compared.train.tolist() == [[3, 4, 10, 5]]
    assert compared.dev.shape == (0, 4)


def test_the_texts_of_pairs_are_encoded_one_by_one() -> None:
    pairs = [TextExample("a", "b", "0", 2), TextExample("c", "d", "1", 3)]

    assert [one.text for one in label_check.single_texts(pairs)] == ["a", "c", "b", "d"]
