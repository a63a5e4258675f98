"""The loop against a plain PyTorch one, and what it promises: same bits, best weights, no NaN."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.data.batching import Batch, collate, epoch_order
from tidybert.data.features import Features
from tidybert.errors import DivergedError, TrainingError, UsageError
from tidybert.training import precision as precision_module
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.loop import TrainingLoop
from tidybert.training.precision import is_mixed
from tidybert.training.reports import StepReport
from tidybert.training.training_arguments import TrainingArguments


def plain_loop(
    model: nn.Module, features: list[Features], arguments: TrainingArguments, num_steps: int
) -> list[float]:
    """What anyone would write: AdamW, clipping, a schedule, the weighted mean of the losses.

    Returns the norm of each step's gradient.
    """
    decayed = [each for each in model.parameters() if each.dim() > 1]
    rest = [each for each in model.parameters() if each.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": rest, "weight_decay": 0.0}],
        lr=arguments.learning_rate,
        betas=(arguments.adam_beta1, arguments.adam_beta2),
        eps=arguments.adam_epsilon,
        weight_decay=arguments.weight_decay,
        foreach=False,
    )
    warmup = int(num_steps * arguments.warmup_proportion)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: step / warmup if step < warmup else (num_steps - step) / (num_steps - warmup),
    )
    size, norms, epoch = arguments.batch_size, [], 0
    while len(norms) < num_steps:
        order = epoch_order(len(features), arguments.seed, epoch)
        for start in range(0, len(features), size):
            chosen = [features[index] for index in order[start : start + size]]
            labels = torch.tensor([one.label for one in chosen])
            weights = torch.tensor([one.weight for one in chosen], dtype=torch.float64)
            losses = functional.cross_entropy(model(collate(chosen).rows), labels, reduction="none")
            ((losses * weights).sum() / weights.sum()).backward()
            norms.append(
                torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.max_grad_norm).item()
            )
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if len(norms) == num_steps:
                break
        epoch += 1
    return norms


def largest_difference(a: nn.Module, b: nn.Module) -> float:
    left, right = a.state_dict(), b.state_dict()
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


# float32 differs by its rounding, which Adam's division makes larger where gradients are tiny.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-5)])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"max_steps": 1, "warmup_proportion": 0.0},
        {"max_grad_norm": 0.05, "weight_decay": 0.5, "adam_beta1": 0.8, "warmup_proportion": 0.5},
        {"tokens_per_batch": 12},
    ],
    ids=["defaults", "one_step", "clipped", "in_parts"],
)
def test_it_does_what_a_plain_loop_does(
    given: dict[str, Any],
    dtype: torch.dtype,
    tolerance: float,
    make_trainer: Callable[..., TrainingLoop],
    make_model: Callable[..., nn.Module],
    make_features: Callable[..., list[Features]],
) -> None:
    features = make_features(26)
    for number, one in enumerate(features):
        one.weight = (1.0, 0.25, 3.0)[number % 3]
    ours, theirs = make_model(dropout=0.0).to(dtype), make_model(dropout=0.0).to(dtype)
    begin = make_model(dropout=0.0).to(dtype)
    reports: list[StepReport] = []

    trainer = make_trainer(model=ours, features=features, report=reports.append, **given)
    trainer.train()
    norms = plain_loop(theirs, features, trainer.objective.arguments, trainer.settings.num_steps)

    assert largest_difference(ours, begin) > 1e-4
    assert largest_difference(ours, theirs) < tolerance
    assert [one.gradient_norm for one in reports] == pytest.approx(norms, rel=1e-3)


def test_the_loss_is_torchs_weighted_mean(
    make_trainer: Callable[..., TrainingLoop],
    make_model: Callable[..., nn.Module],
    make_features: Callable[..., list[Features]],
) -> None:
    features, class_weights = make_features(10), torch.tensor([0.2, 1.0, 5.0])
    for one in features:
        one.weight = float(class_weights[one.label])
    reports: list[StepReport] = []

    make_trainer(
        features=features, dropout=0.0, train_batch_size=10, max_steps=1, report=reports.append
    ).train()

    labels = torch.tensor([one.label for one in features])
    logits = make_model(dropout=0.0)(collate(features).rows)
    expected = functional.cross_entropy(logits, labels, weight=class_weights)
    assert reports[0].loss == pytest.approx(expected.item(), rel=1e-5)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    make_trainer: Callable[..., TrainingLoop], same_weights: Callable[..., bool]
) -> None:
    def trained(seed: int) -> nn.Module:
        torch.manual_seed(np.random.default_rng().integers(1000))  # what came before is no matter
        trainer = make_trainer(seed=seed)
        trainer.train()
        return trainer.objective.model

    first = trained(1)

    assert same_weights(first, trained(1))
    assert not same_weights(first, trained(2))


def test_several_threads_do_what_one_does(
    make_trainer: Callable[..., TrainingLoop], set_threads: Callable[[int], None]
) -> None:
    """But for rounding, where nothing is left to chance."""

    def trained(threads: int) -> tuple[nn.Module, list[float]]:
        set_threads(threads)
        losses: list[float] = []
        trainer = make_trainer(
            dropout=0.0, train_batch_size=26, report=lambda done: losses.append(done.loss)
        )
        trainer.train()
        return trainer.objective.model, losses

    (alone, losses), (together, found) = trained(1), trained(2)

    assert found == pytest.approx(losses, rel=1e-5)
    assert largest_difference(alone, together) < 1e-5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_several_threads_give_the_same_bits_each_time(
    precision: str,
    make_trainer: Callable[..., TrainingLoop],
    same_weights: Callable[..., bool],
    set_threads: Callable[[int], None],
) -> None:
    def trained() -> nn.Module:
        trainer = make_trainer(train_batch_size=26, num_train_epochs=4, precision=precision)
        trainer.train()
        return trainer.objective.model

    set_threads(2)
    first = trained()

    assert all(same_weights(first, trained()) for _ in range(5))


def test_a_loss_that_draws_from_torchs_generator_is_not_shared_out_and_it_is_said(
    make_trainer: Callable[..., TrainingLoop],
    loss: Callable[[nn.Module, Batch], Tensor],
    set_threads: Callable[[int], None],
) -> None:
    """The pieces would get its numbers in another order each time."""

    def trained(threads: int) -> tuple[nn.Module, list[str]]:
        set_threads(threads)
        notes: list[str] = []
        trainer = make_trainer(
            loss=lambda model, batch: functional.dropout(loss(model, batch), 0.3),
            train_batch_size=26,
            num_train_epochs=4,
            note=notes.append,
        )
        trainer.train()
        return trainer.objective.model, notes

    (alone, none), (together, notes) = trained(1), trained(2)

    assert largest_difference(alone, together) < 1e-5
    assert not none
    assert len(notes) == 1
    assert "threads do not share a step" in notes[0]


@pytest.mark.parametrize(
    ("count", "given", "expected"),
    [
        (26, {"num_train_epochs": 2}, 14),
        (26, {"num_train_epochs": 1.5}, 11),
        (26, {"num_train_epochs": 0.01}, 1),
        (26, {"num_train_epochs": 2, "max_steps": 5}, 5),
        (26, {"num_train_epochs": 1, "max_steps": 50}, 7),
        (26, {"num_train_epochs": 1e-9}, 1),
        (100, {"num_train_epochs": 2.2}, 55),
        (3, {"num_train_epochs": 1, "train_batch_size": 32}, 1),
    ],
)
def test_how_many_steps_there_are(
    count: int,
    given: dict[str, Any],
    expected: int,
    make_trainer: Callable[..., TrainingLoop],
    make_features: Callable[..., list[Features]],
) -> None:
    assert make_trainer(features=make_features(count), **given).settings.num_steps == expected


def test_each_epoch_sees_each_example_once(
    make_trainer: Callable[..., TrainingLoop],
    make_features: Callable[..., list[Features]],
    loss: Callable[[nn.Module, Batch], Tensor],
) -> None:
    features = make_features(26)
    seen: list[int] = []

    def watched(model: nn.Module, batch: Batch) -> Tensor:
        assert batch.rows.num_tokens <= 30
        seen.extend(features.index(one) for one in batch.features)
        return loss(model, batch)

    # Features hold arrays, whose comparison has no single truth; identity is what is meant.
    features = IdentityList(features)
    reports: list[StepReport] = []
    result = make_trainer(
        features=features, loss=watched, tokens_per_batch=30, report=reports.append
    ).train()

    assert sorted(seen[:26]) == sorted(seen[26:]) == list(range(26))
    assert seen[:26] != seen[26:]
    assert (result.num_steps, result.num_examples) == (14, 52)
    assert result.num_tokens == 2 * sum(len(one.input_ids) for one in features)
    assert [one.num_examples for one in reports] == 2 * [4, 4, 4, 4, 4, 4, 2]
    assert [one.step for one in reports] == list(range(1, 15))
    assert reports[6].epoch == 1.0


class IdentityList(list[Features]):
    def index(self, wanted: Features, *_: Any) -> int:
        return next(place for place, one in enumerate(self) if one is wanted)


def test_dropout_is_on_in_training_and_off_afterwards(
    make_trainer: Callable[..., TrainingLoop], loss: Callable[[nn.Module, Batch], Tensor]
) -> None:
    modes: list[bool] = []

    def watched(model: nn.Module, batch: Batch) -> Tensor:
        modes.append(model.training)
        return loss(model, batch)

    def evaluate(model: nn.Module) -> dict[str, float]:
        modes.append(model.training)
        return {"score": 1.0}

    trainer = make_trainer(
        loss=watched, evaluate=evaluate, metric="score", eval_steps=1, max_steps=2
    )
    trainer.train()

    assert modes == [True, False, True, False]
    assert not trainer.objective.model.training


@pytest.mark.parametrize(("what", "late"), [("loss", 0), ("gradient", 0), ("loss", 1)])
def test_what_is_not_finite_stops_before_the_update(
    what: str,
    late: int,
    monkeypatch: pytest.MonkeyPatch,
    make_trainer: Callable[..., TrainingLoop],
    same_weights: Callable[..., bool],
    loss: Callable[[nn.Module, Batch], Tensor],
) -> None:
    steps_before = 3
    calls = 0

    def breaking(model: nn.Module, batch: Batch) -> Tensor:
        nonlocal calls
        calls += 1
        value = loss(model, batch)
        if calls != steps_before + 1:
            return value
        # The square root's slope is infinite at 0, where its value is not.
        zero = model.classifier.bias.sum() * 0
        return value * math.nan if what == "loss" else value + zero.sqrt()

    # As on CUDA, where step 5 is launched before the figures of step 4 are read.
    monkeypatch.setattr("tidybert.training.loop.steps_late", lambda _device: late)
    trainer = make_trainer(loss=breaking, warmup_proportion=0.0)
    with pytest.raises(DivergedError, match="at step 4 of 14") as error:
        trainer.train()

    indices = sorted(epoch_order(26, 42, 0)[12:16].tolist())
    assert f"numbers {indices} of the training data" in str(error.value)
    assert "nothing was updated" in str(error.value)
    assert all(each.grad is None for each in trainer.objective.model.parameters())
    monkeypatch.undo()
    # The plan stays that of 14 steps; the run is cut after the three that went well.
    good = make_trainer(warmup_proportion=0.0, report=stop_after(steps_before))
    with pytest.raises(StopHere):
        good.train()
    assert same_weights(trainer.objective.model, good.objective.model)


class StopHere(Exception):
    pass


def stop_after(step: int) -> Callable[[StepReport], None]:
    def report(done: StepReport) -> None:
        if done.step == step:
            raise StopHere

    return report


class Scripted:
    """Gives the scores of a script, and keeps the weights it saw."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = scores
        self.seen: list[dict[str, Tensor]] = []

    def __call__(self, model: nn.Module) -> dict[str, float]:
        self.seen.append({name: each.clone() for name, each in model.state_dict().items()})
        return {"score": self.scores[len(self.seen) - 1]}


def has_weights(model: nn.Module, weights: dict[str, Tensor]) -> bool:
    return all(torch.equal(each, weights[name]) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    ("batch_size", "tokens", "advice"),
    [
        (8, 60, "60 tokens at once; begin again with tokens_per_batch=30: only rounding"),
        (8, 12, "10 tokens at once; begin again with a smaller max_seq_length"),
        (2, 4096, "20 tokens at once; begin again with tokens_per_batch=10: only rounding"),
        (1, 4096, "10 tokens at once; begin again with a smaller max_seq_length"),
    ],
)
def test_too_little_memory_says_what_to_try(
    batch_size: int, tokens: int, advice: str, make_trainer: Callable[..., TrainingLoop]
) -> None:
    def loss(_model: nn.Module, _batch: Batch) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    ids = np.ones(10, dtype=np.int32)
    features = [Features(ids, np.zeros(10, dtype=np.uint8), 10, label=0, example=0)] * 8
    given = {"features": features, "train_batch_size": batch_size, "tokens_per_batch": tokens}
    trainer = make_trainer(loss=loss, **given)

    with pytest.raises(TrainingError, match=f"^at step 1 of .* memory is too small for {advice}"):
        trainer.train()


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_best_weights_are_kept_though_later_ones_are_worse(
    on_disk: bool, make_trainer: Callable[..., TrainingLoop], tmp_path: Path
) -> None:
    script = Scripted([0.1, 0.9, 0.9, 0.2])
    trainer = make_trainer(
        evaluate=script,
        metric="score",
        eval_steps=4,
        run=tmp_path if on_disk else None,
    )

    result = trainer.train()

    assert (result.num_steps, result.best_step, result.metrics) == (14, 8, {"score": 0.9})
    assert not result.stopped_early
    assert has_weights(trainer.objective.model, script.seen[1])
    assert not has_weights(trainer.objective.model, script.seen[3])
    if on_disk:
        last = make_trainer(run=tmp_path)
        last.resume()
        assert last.state.step == 14
        with last.whole_model():
            assert has_weights(last.objective.model, script.seen[3])


def test_without_dev_the_last_weights_are_kept(make_trainer: Callable[..., TrainingLoop]) -> None:
    result = make_trainer(max_steps=3).train()

    assert (result.num_steps, result.best_step, result.metrics) == (3, 3, {})


@pytest.mark.parametrize(
    ("scores", "patience", "steps", "best"),
    [
        ([0.5, 0.4, 0.4], 2, 3, 1),
        ([0.5, 0.4, 0.6, 0.6, 0.1], 2, 5, 3),
        ([0.5, 0.4], 1, 2, 1),
        ([0.1 * step for step in range(14)], 1, 14, 14),
    ],
)
def test_it_stops_when_patience_ends(
    scores: list[float],
    patience: int,
    steps: int,
    best: int,
    make_trainer: Callable[..., TrainingLoop],
) -> None:
    script = Scripted(scores)
    trainer = make_trainer(
        evaluate=script, metric="score", eval_steps=1, early_stopping_patience=patience
    )

    result = trainer.train()

    assert (result.num_steps, result.best_step) == (steps, best)
    assert result.stopped_early == (steps < 14)
    assert has_weights(trainer.objective.model, script.seen[best - 1])


@pytest.mark.parametrize(
    ("given", "frozen"),
    [
        ({"freeze_embeddings": True}, ("bert.embeddings.",)),
        ({"freeze_layers": 1}, ("bert.embeddings.", "bert.encoder.layers.0.")),
        ({"freeze_layers": 2}, ("bert.embeddings.", "bert.encoder.")),
    ],
)
def test_frozen_parts_stay_bit_for_bit_and_run_without_dropout(
    given: dict[str, Any],
    frozen: tuple[str, ...],
    make_trainer: Callable[..., TrainingLoop],
    make_model: Callable[..., nn.Module],
    loss: Callable[[nn.Module, Batch], Tensor],
) -> None:
    def watched(model: nn.Module, batch: Batch) -> Tensor:
        assert not model.bert.embeddings.training
        layers = model.bert.encoder.layers
        assert [each.training for each in layers] == [
            place >= given.get("freeze_layers", 0) for place in range(len(layers))
        ]
        return loss(model, batch)

    trainer = make_trainer(loss=watched, **given)
    trainer.train()

    begin = make_model().state_dict()
    for name, weight in trainer.objective.model.state_dict().items():
        assert torch.equal(weight, begin[name]) == name.startswith(frozen), name


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("freeze_layers", [0, 1, 2])
def test_cuda_trains_the_weights_that_a_cpu_trains(
    freeze_layers: int,
    make_trainer: Callable[..., TrainingLoop],
    make_model: Callable[..., nn.Module],
) -> None:
    """Without dropout and in float32: losses, clipping, AdamW, and the states of frozen layers."""
    trained = []
    for device in ("cpu", "cuda"):
        model = make_model(dropout=0.0).to(device)
        given = {"freeze_layers": freeze_layers, "precision": "float32"}
        make_trainer(model=model, **given).train()
        trained.append(model.cpu())

    assert largest_difference(*trained) < 1e-4
    assert largest_difference(trained[1], make_model(dropout=0.0)) > 1e-4


def test_more_layers_than_there_are_cannot_be_frozen(
    make_trainer: Callable[..., TrainingLoop],
) -> None:
    with pytest.raises(UsageError, match="freeze_layers is 3, but the model has 2 layers"):
        make_trainer(freeze_layers=3)


def test_without_examples_there_is_nothing_to_train_on(
    make_trainer: Callable[..., TrainingLoop], make_model: Callable[..., nn.Module]
) -> None:
    with pytest.raises(TrainingError, match="no examples"):
        FineTuning(make_model(), [], lambda *_: torch.zeros(()), TrainingArguments())


def test_steps_and_evaluations_are_logged(
    make_trainer: Callable[..., TrainingLoop], tmp_path: Path
) -> None:
    told: list[tuple[int, dict[str, float]]] = []

    make_trainer(
        run=tmp_path,
        evaluate=Scripted([0.25, 0.5]),
        metric="score",
        logging_steps=5,
        report_metrics=lambda *each: told.append(each),
    ).train()

    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [5, 7, 10, 14, 14]
    assert lines[1] == {"step": 7, "eval_score": 0.25}
    assert lines[0].keys() == {
        "step", "epoch", "loss", "learning_rate", "gradient_norm", "tokens_per_second",
    }  # fmt: skip
    assert told == [(7, {"score": 0.25}), (14, {"score": 0.5})]


@pytest.mark.parametrize("threads", [1, 2])
def test_mixed_precision_learns_alike_with_weights_in_float32(
    threads: int, make_trainer: Callable[..., TrainingLoop], set_threads: Callable[[int], None]
) -> None:
    set_threads(threads)
    losses: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    for precision, found in losses.items():
        trainer = make_trainer(
            precision=precision,
            train_batch_size=26,
            num_train_epochs=4,
            report=lambda done, found=found: found.append(done.loss),
        )
        assert trainer.objective.is_mixed == (precision == "bfloat16")
        trainer.train()
        assert {each.dtype for each in trainer.objective.model.parameters()} == {torch.float32}

    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.1)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bfloat16_that_loses_its_trial_is_noted_in_training(
    precision: str, make_trainer: Callable[..., TrainingLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_module, "_trial", lambda: 1.6)
    monkeypatch.setattr(precision_module, "bfloat16_units", lambda: None)
    notes: list[str] = []

    make_trainer(precision=precision, note=notes.append)

    assert any("1.6 times as long" in each for each in notes) == (precision == "bfloat16")


@pytest.mark.parametrize(
    ("precision", "device", "expected"),
    [("auto", "cpu", False), ("float32", "cpu", False), ("bfloat16", "cpu", True)],
)
def test_a_cpu_is_mixed_for_a_narrow_model_only_where_it_is_asked(
    precision: str, device: str, expected: bool
) -> None:
    assert is_mixed(precision, torch.device(device)) is expected


def test_half_precision_that_cannot_be_had_is_refused() -> None:
    assert not is_mixed("auto", torch.device("mps"))
    with pytest.raises(UsageError, match="precision='bfloat16' needs a CPU or a CUDA device"):
        is_mixed("bfloat16", torch.device("mps"))
