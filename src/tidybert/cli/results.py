"""How a model's scores are shown: the metrics, each class's, and which classes are confused."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tidybert.cli.output import print_table

if TYPE_CHECKING:
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
