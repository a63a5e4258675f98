"""Gradient caching gives the gradient of the batch at once, dropout included."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tidybert.data.batching import class_order, collate
from tidybert.modeling import BertModel
from tidybert.system.reporter import Reporter
from tidybert.tasks.vectors import vector_training
from tidybert.tasks.vectors.sentence_vectors import SentenceVectors
from tidybert.tasks.vectors.vector_examples import VectorExample
from tidybert.tasks.vectors.vector_training import VectorTraining
from tidybert.tokenization import BertTokenizer
from tidybert.training.loop import TrainingLoop
from tidybert.training.training_arguments import TrainingArguments

COLOURS = ("red", "blue", "green", "black")
ANIMALS = ("dog", "cat", "cow", "horse")


def examples() -> list[VectorExample]:
    return [
        VectorExample((f"the {c} {a}", f"we saw a {a} {c} " * (1 + n % 3), f"the {c}"), None, n)
        for n, (c, a) in enumerate((c, a) for c in COLOURS for a in ANIMALS)
    ]


@pytest.fixture
def objective(tiny_config: Any, tiny_model: Any) -> Callable[..., VectorTraining]:
    """Makes the objective of a batch of all examples, from equal weights each time."""

    def build(tokens: int, dropout: float = 0.0, steps: int = 1, **given: Any) -> VectorTraining:
        config = tiny_config(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        torch.manual_seed(1)
        model = BertModel(config, add_pooler=False)
        task = SentenceVectors("pairs", "infonce", **given)
        made = examples()
        features = task.features(made, BertTokenizer.from_pretrained(tiny_model), 32)
        task.add_labels(features, made)
        arguments = TrainingArguments(
            tokens_per_batch=tokens,
            train_batch_size=len(made),
            learning_rate=1e-2,
            num_train_epochs=steps,
        )
        found = task.objective(model, features, task.loss, arguments)
        assert isinstance(found, VectorTraining)
        return found

    return build


def step(objective: VectorTraining) -> tuple[float, list[Tensor]]:
    """The loss and the gradient of the first step."""
    objective.model.train()
    numbers = torch.Generator().manual_seed(5)
    (loss,) = objective.add_gradients(objective.work(0, {}), numbers)
    return float(loss), [each.grad for each in objective.trained if each.grad is not None]


@pytest.mark.parametrize("given", [{}, {"both_directions": True}, {"widths": (8, 4)}])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_parts_give_the_gradient_of_the_batch_at_once(
    given: dict[str, Any], pooling: str, objective: Callable[..., VectorTraining]
) -> None:
    loss, gradients = step(objective(60, pooling=pooling, **given))

    whole = objective(10_000, pooling=pooling, **given)
    batch = whole.batch_of(whole.work(0, {}).batches)
    expected = whole.vector_loss(whole.vectors(whole.model, batch).float(), batch.features)
    theirs = torch.autograd.grad(expected, whole.trained, allow_unused=True)
    assert loss == pytest.approx(expected.item())
    for ours, other in zip(gradients, [each for each in theirs if each is not None], strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-6)


def test_each_part_is_computed_again_with_the_same_dropout(
    objective: Callable[..., VectorTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, gradients = step(objective(60, dropout=0.3))
    plain, _ = step(objective(60))

    begin = vector_training._CachedStep.__init__

    def keep_all(self: Any, *given: Any) -> None:
        begin(self, *given)
        self.kept = set(range(len(self.pieces)))

    # With the graphs of all parts alive nothing is computed twice.
    monkeypatch.setattr(vector_training._CachedStep, "__init__", keep_all)
    expected, others = step(objective(60, dropout=0.3))
    assert loss == expected != plain
    for ours, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-6)


def test_a_part_is_computed_twice_but_the_last_and_no_graph_holds_more_tokens(
    objective: Callable[..., VectorTraining],
) -> None:
    made = objective(60)
    seen: list[tuple[bool, int]] = []
    encode = made.vectors

    def watched(model: Any, batch: Any) -> Tensor:
        seen.append((torch.is_grad_enabled(), batch.rows.num_tokens))
        return encode(model, batch)

    made.vectors = watched
    step(made)

    tokens = sum(made.lengths)
    with_graph = [count for has_graph, count in seen if has_graph]
    assert sum(with_graph) == tokens
    assert max(with_graph) <= 30
    assert sum(count for _, count in seen) < 2 * tokens


def test_two_trainings_have_the_same_bits_and_learn(
    objective: Callable[..., VectorTraining],
) -> None:
    ends = []
    for _ in range(2):
        made, losses = objective(60, dropout=0.1, steps=8), list[float]()
        reporter = Reporter(step=lambda done, losses=losses: losses.append(done.loss))
        TrainingLoop(made, reporter=reporter).train()
        ends.append((losses, [*made.model.state_dict().values()]))

    assert ends[0][0] == ends[1][0]
    assert all(map(torch.equal, ends[0][1], ends[1][1]))
    assert ends[0][0][-1] < ends[0][0][0] - 0.2


def test_a_batch_of_classes_has_texts_that_are_alike() -> None:
    classes = np.array([0, 1, 2, 3, 4, 5, 6, 7] * 8)

    order = class_order(classes, seed=3, epoch=0)

    assert sorted(order) == list(range(64))
    assert not np.array_equal(order, class_order(classes, seed=3, epoch=1))
    for batch in np.split(classes[order], 4):
        assert len(set(batch)) <= 4


def test_an_epoch_of_labels_takes_runs_of_a_class(tiny_model: Any, tiny_config: Any) -> None:
    task = SentenceVectors("labels", "supcon")
    made = [VectorExample((f"the {c}",), c, n) for n, c in enumerate(COLOURS * 8)]
    features = task.features(made, BertTokenizer.from_pretrained(tiny_model), 16)
    task.add_labels(features, made)
    model = BertModel(tiny_config(), add_pooler=False)
    arguments = TrainingArguments(train_batch_size=4, learning_rate=1e-2)
    objective = task.objective(model, features, task.loss, arguments)

    batch = collate([features[each] for each in objective.work(1, {}).batches])

    assert len({one.label for one in batch.features}) == 1
