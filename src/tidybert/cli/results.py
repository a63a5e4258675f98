"""How a model's scores are shown: the metrics, each class's, and which classes are confused."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tidybert.cli.output import note, print_json, print_table

if TYPE_CHECKING:
    from tidybert.finetuning import Trial, Trials
    from tidybert.tasks.registry import AnyTask


def print_metrics(task: "AnyTask", metrics: Mapping[str, Any]) -> None:
    """Print a task's metrics on stdout as a table; for classes a line each, and the confusions.

    ``metrics`` are as the task's ``metrics`` gives them; those of an empty mapping (nothing was
    measured) print nothing.
    """
    shown = {key: text for key, text in task.meanings.items() if key in metrics}
    if not shown:
        return
    label_names = task.label_names
    positive = label_names[1] if label_names and len(label_names) == 2 else ""
    print_table(
        {"metric": "left", "value": "right", "meaning": "left"},
        [
            (key, f"{metrics[key]:.4f}", text.format(positive=positive))
            for key, text in shown.items()
        ],
    )
    if "per_label" in metrics:
        print()
        _print_classes(metrics["per_label"])
    if "confusion_matrix" in metrics and label_names:
        from tidybert.metrics.classification import confusion_table

        print()
        print(confusion_table(np.array(metrics["confusion_matrix"]), label_names))


def print_trials(trials: "Trials", task: "AnyTask", run: str, *, as_json: bool) -> None:
    """Print a line a trial, the mean and deviation over them, and the best one's metrics."""
    mean, deviation = trials.spread(task.metric)
    if as_json:
        print_json(
            {
                **trials.best.metrics,
                "best": trials.best.name,
                "mean": {task.metric: mean},
                "deviation": {task.metric: deviation},
                "trials": [asdict(each) for each in trials.trials],
                "num_untried": trials.num_untried,
                "run": run,
            }
        )
        return
    print_table(
        {"trial": "left", task.metric: "right", "seconds": "right", "": "left"},
        [
            (
                each.name,
                f"{each.metrics[task.metric]:.4f}",
                f"{each.seconds:.0f}",
                "best" if each is trials.best else _collapse(each),
            )
            for each in trials.trials
        ],
    )
    print(f"{task.metric}: mean {mean:.4f}, deviation {deviation:.4f}")
    if trials.num_untried:
        note(f"{trials.num_untried} more were not tried: --time-limit left no time for them")
    print()
    print_metrics(task, trials.best.metrics)
    note(f"the best model is in {run}; next: tidybert predict {run} FILE")


def _collapse(trial: "Trial") -> str:
    return "" if trial.collapsed is None else f"collapsed to {trial.collapsed!r:.20}"


def _print_classes(per_label: Mapping[str, Mapping[str, float]]) -> None:
    print_table(
        {
            "class": "left",
            "precision": "right",
            "recall": "right",
            "f1": "right",
            "examples": "right",
        },
        [
            (
                name,
                f"{each['precision']:.4f}",
                f"{each['recall']:.4f}",
                f"{each['f1']:.4f}",
                f"{each['support']:,}",
            )
            for name, each in per_label.items()
        ],
    )
