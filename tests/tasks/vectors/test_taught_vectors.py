"""What a teacher adds to the loss of vectors: by its formula, by NumPy, and by its properties."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tidybert.data.features import Features
from tidybert.tasks.vectors import losses
from tidybert.tasks.vectors.vector_training import TaughtVectors, of_scores, of_vectors


def random_vectors(count: int, width: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, width, generator=generator).requires_grad_()


def features(counts: list[int], taught: Any, labels: list[Any]) -> list[Features]:
    """Features of so many texts each, a token a text."""
    return [
        Features(
            np.full(count, 7, np.int32), np.zeros(count, np.uint8), 1, lengths=(1,) * count,
            label=label, taught=np.array(each, np.float32),
        )
        for count, each, label in zip(counts, taught, labels, strict=True)
    ]  # fmt: skip


def test_cosines_of_each_two_texts_are_compared_whatever_the_width() -> None:
    ours = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    theirs = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 2.0, 0.0]])

    found = of_vectors(ours, [], theirs, 20.0).item()

    # 0, and twice the cosine of half a right angle; theirs are 0.
    assert found == pytest.approx(400 * (0.5 + 0.5) / 3 / 2)
    assert of_vectors(5 * ours, [], ours @ torch.eye(2, 7), 20.0).item() == pytest.approx(
        0, abs=1e-9
    )
    assert of_vectors(ours[:1], [], theirs[:1], 20.0).item() == 0


def test_scores_count_by_their_correlation_in_any_unit() -> None:
    cosines = torch.tensor([0.9, 0.1, -0.3, 0.4, 0.7, 0.2, 0.0, 0.6])
    scores = torch.tensor([3.0, 1.0, 0.5, 2.0, 4.5, 1.0, 0.0, 2.5])

    found = losses.uncorrelated(cosines, scores)

    assert found.item() == pytest.approx(1 - np.corrcoef(cosines, scores)[0, 1], abs=1e-6)
    other = losses.uncorrelated(cosines, 100 * scores - 7)
    assert other.item() == pytest.approx(found.item(), abs=1e-5)


def test_equal_scores_and_a_single_pair_teach_nothing() -> None:
    for count in (1, 4):
        given = random_vectors(count, 1)

        loss = losses.uncorrelated(given[:, 0], torch.full((count,), 2.0))
        loss.backward()  # type: ignore[no-untyped-call]

        assert loss.item() == 1
        assert given.grad is not None
        assert torch.equal(given.grad, torch.zeros_like(given))


def test_each_score_is_that_of_the_first_text_with_another_one() -> None:
    vectors = random_vectors(7)
    taught = torch.tensor([[1.0], [2.0], [0.5], [3.0]])
    batch = features([3, 2, 2], [[[1.0], [2.0]], [[0.5]], [[3.0]]], [None] * 3)

    found = of_scores(vectors, batch, taught, 20.0)

    cosines = torch.cosine_similarity(vectors[[0, 0, 3, 5]], vectors[[1, 2, 4, 6]])
    expected = 20 * losses.uncorrelated(cosines, taught[:, 0])
    assert found.item() == pytest.approx(expected.item())


def test_labels_have_their_share_and_features_without_one_the_teacher_alone() -> None:
    vectors = random_vectors(5)
    taught = np.random.default_rng(0).standard_normal((5, 8))
    batch = features([2, 1, 2], [taught[:2], taught[2:3], taught[3:]], [1.0, None, 0.0])

    def of_labels(chosen: Tensor, labelled: Any) -> Tensor:
        assert [one.label for one in labelled] == [1.0, 0.0]
        return (chosen**2).sum()

    loss = TaughtVectors(of_labels, of_vectors, weight=0.7, scale=20.0, widths=(6, 2))

    theirs = torch.from_numpy(taught).float()

    def apart(width: int) -> Tensor:
        return of_vectors(vectors[:, :width], [], theirs, 20.0)

    own = (vectors[[0, 1, 3, 4]] ** 2).sum()
    share = 0.3 * 2 / 3
    expected = (1 - share) * (apart(6) + apart(2)) + share * own
    assert loss(vectors, batch).item() == pytest.approx(expected.item(), rel=1e-6)
    unlabelled = features([2, 1, 2], [taught[:2], taught[2:3], taught[3:]], [None] * 3)
    expected = apart(6) + apart(2)
    assert loss(vectors, unlabelled).item() == pytest.approx(expected.item(), rel=1e-6)
