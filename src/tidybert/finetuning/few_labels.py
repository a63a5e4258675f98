"""Few labels: which way of learning from them is best, by cross-validation inside them.

There are three ways: a probe of the encoder as it is; fine-tuning from the probe; and a probe after
contrastive training.  Which one wins depends on the texts, the classes and the encoder.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import DataError, param
from tidybert.files.wording import count_of
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.inference.forward import run_features
from tidybert.tasks.task import AnyTask
from tidybert.training.training_arguments import TrainingArguments

MOST_OF_A_CLASS: Final = 64
"""Examples that the largest class may have."""
_RECOMMENDED_BELOW: Final = 16
_FOLDS: Final = 4
_STEPS: Final = 100
_FEWEST_EPOCHS: Final = 5.0
_MOST_EPOCHS: Final = 20.0
"""Fine-tuning takes the epochs of _STEPS steps, within these limits."""

TrainInMemory = Callable[[Sequence[Any], TrainingArguments], FinetunedModel]
"""Trains on examples with these arguments, without examples to measure on."""


@dataclass(frozen=True)
class ChosenWay:
    """The best way: its name, its arguments, and the accuracy of each way on held-out folds."""

    name: str
    arguments: TrainingArguments
    accuracies: dict[str, float]

    def figures(self) -> dict[str, Any]:
        """The same for --json."""
        return {"chosen": self.name, "accuracies": self.accuracies}


def choose_way(
    task: AnyTask,
    examples: Sequence[Any],
    arguments: TrainingArguments,
    train: TrainInMemory,
    note: Callable[[str], None],
) -> ChosenWay:
    """Try each way on folds of the labelled examples, and return the best one.

    The contrastive way is the best on average (docs/results.md), and a few examples say little.  So
    another way must be right on more of them by over a standard deviation (McNemar 1947).
    The head reads the mean of all tokens unless ``arguments.pooling`` is given.  Equal texts are in
    one fold.  Raises DataError where a class has more than 64 examples or fewer than 2.
    """
    _check(examples)
    arguments = replace(arguments, pooling=arguments.pooling or "mean")
    folds = _folds(task, examples, arguments.seed)
    right: dict[str, npt.NDArray[np.bool_]] = {}
    for name, varied in ways(len(examples), arguments).items():
        begin = time.perf_counter()
        right[name] = np.zeros(len(examples), dtype=np.bool_)
        for held_out in folds:
            chosen = set(held_out.tolist())
            trained = train([one for n, one in enumerate(examples) if n not in chosen], varied)
            right[name][held_out] = _right(trained, [examples[n] for n in held_out.tolist()])
        note(
            f"few labels, {name}: accuracy {right[name].mean():.4f} over {len(folds)} folds; "
            f"{time.perf_counter() - begin:.0f} s"
        )
    best = _best(right)
    note(f"few labels: {best} is taken, and now trains on all {len(examples):,} examples")
    accuracies = {name: float(each.mean()) for name, each in right.items()}
    return ChosenWay(best, ways(len(examples), arguments)[best], accuracies)


def ways(num_examples: int, arguments: TrainingArguments) -> dict[str, TrainingArguments]:
    """The arguments of each way by its name; the first one is taken unless another is better."""
    epochs = _STEPS * arguments.train_batch_size / num_examples
    epochs = min(max(epochs, _FEWEST_EPOCHS), _MOST_EPOCHS)
    return {
        "contrastive": replace(arguments, head_start="contrastive", num_train_epochs=0.0),
        "fine-tuning": replace(arguments, head_start="probe", num_train_epochs=epochs),
        "probe": replace(arguments, head_start="probe", num_train_epochs=0.0),
    }


def recommend_few(task: AnyTask, num_examples: int, note: Callable[[str], None]) -> None:
    """Recommend ``few`` where a classification has fewer than 16 examples a class on average."""
    if task.name == "classify" and num_examples < _RECOMMENDED_BELOW * len(task.names):
        note(
            f"few labels: {num_examples / len(task.names):.0f} examples a class on average; "
            f"{param('few')} compares ways to learn from them"
        )


def _check(examples: Sequence[Any]) -> None:
    counts = Counter(one.label for one in examples)
    (common, most), (rare, least) = counts.most_common()[0], counts.most_common()[-1]
    if most > MOST_OF_A_CLASS:
        raise DataError(
            f"{param('few')} is for at most {MOST_OF_A_CLASS} examples a class, and {common!r:.80} "
            f"has {most:,}: leave {param('few')} out"
        )
    if least < 2:
        raise DataError(
            f"{param('few')} compares on held-out examples, and {rare!r:.80} has "
            f"{count_of(least, 'example')}: label one more, or leave {param('few')} out"
        )


def _folds(task: AnyTask, examples: Sequence[Any], seed: int) -> list[Any]:
    """The numbers of the examples that each fold holds out."""
    # It takes a second to load.
    from sklearn.model_selection import StratifiedGroupKFold

    labels = [one.label for one in examples]
    identities = [task.identity(one) for one in examples]
    number_of = {identity: number for number, identity in enumerate(identities)}
    groups = [number_of[identity] for identity in identities]
    count = min(_FOLDS, *Counter(labels).values())
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
    folds = [held_out for _, held_out in splitter.split(np.zeros(len(labels)), labels, groups)]
    return [fold for fold in folds if len(fold)]


def _best(right: Mapping[str, npt.NDArray[np.bool_]]) -> str:
    """The first way, or the last of those that are better than the best before them."""
    best, *others = right
    for name in others:
        gained = int((right[name] & ~right[best]).sum())
        lost = int((right[best] & ~right[name]).sum())
        if gained - lost > math.sqrt(gained + lost):
            best = name
    return best


def _right(trained: FinetunedModel, held_out: Sequence[Any]) -> list[bool]:
    """Whether the model's answer to each example is right."""
    task = trained.task
    features = task.features(held_out, trained.tokenizer, trained.max_seq_length)
    task.add_labels(features, held_out)
    answers = task.answers(run_features(task, trained.model, features), features, held_out)
    return [one.correct == 1 for one in answers.judgements()]
