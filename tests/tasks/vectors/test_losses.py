"""Each loss against sentence-transformers' own, against its formula, and by its properties."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tidybert.tasks.vectors import losses
from tidybert.tasks.vectors.vector_examples import TextNumbers, VectorExample, ignored_candidates


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def theirs(name: str, **given: Any) -> Any:
    """A loss of sentence-transformers, which reads no model where it is given the vectors."""
    package = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    model = torch.nn.Linear(1, 1)
    return getattr(package, name)(model, **given)


def none_ignored(anchors: int, candidates: int) -> Tensor:
    return torch.zeros(anchors, candidates, dtype=torch.bool)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("negatives", [0, 2])
def test_infonce_is_multiple_negatives_ranking(both: bool, negatives: int) -> None:
    anchors, *others = vectors(2 + negatives, 5, 8)
    directions = ("query_to_doc", "doc_to_query") if both else ("query_to_doc",)
    other = theirs(
        "MultipleNegativesRankingLoss",
        directions=directions,
        partition_mode="per_direction" if both else "joint",
    )

    candidates = torch.cat(others)
    found = losses.info_nce(
        anchors, candidates, none_ignored(5, len(candidates)), both_directions=both
    )

    expected = other.compute_loss_from_embeddings([anchors, *others], torch.zeros(5))
    torch.testing.assert_close(found, expected)


def test_an_ignored_candidate_is_as_if_it_were_absent() -> None:
    anchors, positives = vectors(2, 3, 8)
    ignored = none_ignored(3, 3)
    ignored[0, 2] = True

    found = losses.info_nce(anchors, positives, ignored)

    rows = [[0, 1], [0, 1, 2], [0, 1, 2]]
    each = []
    for anchor, columns in enumerate(rows):
        cosines = functional.cosine_similarity(anchors[anchor], positives[columns], dim=1)
        each.append(-(20 * cosines).log_softmax(0)[columns.index(anchor)])
    torch.testing.assert_close(found, torch.stack(each).mean())


def test_equal_texts_and_equal_positives_never_count_as_negatives() -> None:
    examples = [
        VectorExample(("a", "x"), None, 1),
        VectorExample(("b", "x", "n"), None, 2),
        VectorExample(("a", "y", "x"), None, 3),
        VectorExample(("c", "a"), None, 4),
    ]
    numbers = TextNumbers(examples)

    found = ignored_candidates([numbers.label(one) for one in examples])

    # The candidates are x, x, y, a (positives), and n, x (negatives).
    expected = [
        [0, 1, 1, 1, 0, 1],  # a: x again, y belongs to a too, a itself
        [1, 0, 0, 0, 0, 1],
        [1, 1, 0, 1, 0, 1],
        [0, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(found, np.array(expected, dtype=bool))


def test_what_belongs_to_an_anchor_counts_even_where_its_pair_is_in_no_batch() -> None:
    examples = [VectorExample(pair, None, 1) for pair in (("a", "x"), ("b", "y"), ("a", "y"))]
    numbers = TextNumbers(examples)

    found = ignored_candidates([numbers.label(one) for one in examples[:2]])

    assert found.tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize("scores", [[0.0, 1.0, 2.0, 2.0, 5.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
def test_cosent_is_theirs(scores: list[float]) -> None:
    first, second = vectors(2, 5, 8)
    labels = torch.tensor(scores)

    found = losses.cosent(first, second, labels)

    expected = theirs("CoSENTLoss").compute_loss_from_embeddings([first, second], labels)
    torch.testing.assert_close(found, expected)


def test_supervised_contrastive_is_its_formula() -> None:
    given, classes = vectors(6, 8), [0, 1, 0, 2, 1, 0]

    found = losses.supervised_contrastive(given, torch.tensor(classes), scale=5.0)

    units = functional.normalize(given).numpy()
    each = []
    for i in range(6):
        alike = [p for p in range(6) if p != i and classes[p] == classes[i]]
        if not alike:
            continue
        total = sum(math.exp(5 * units[i] @ units[a]) for a in range(6) if a != i)
        shares = [math.log(math.exp(5 * units[i] @ units[p]) / total) for p in alike]
        each.append(-sum(shares) / len(shares))
    assert found.item() == pytest.approx(sum(each) / len(each))


def test_supervised_contrastive_without_equal_classes_is_0_with_a_gradient_of_0() -> None:
    given = vectors(3, 4).requires_grad_()

    loss = losses.supervised_contrastive(given, torch.tensor([0, 1, 2]))
    loss.backward()

    assert loss.item() == 0
    assert given.grad is not None
    assert torch.equal(given.grad, torch.zeros(3, 4, dtype=torch.float64))


def test_matryoshka_is_theirs() -> None:
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.losses import matryoshka

    anchors, positives = vectors(2, 4, 16)
    mask = none_ignored(4, 4)

    found = losses.matryoshka(
        lambda each: losses.info_nce(each[:4], each[4:], mask),
        torch.cat((anchors, positives)),
        (16, 8, 4),  # the first adds nothing
    )

    other = theirs("MultipleNegativesRankingLoss")
    expected = sum(
        other.compute_loss_from_embeddings(
            [matryoshka.shrink(each, width) for each in (anchors, positives)], torch.zeros(4)
        )
        for width in (16, 8, 4)
    )
    torch.testing.assert_close(found, expected)
