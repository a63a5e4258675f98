"""How a model's scores are shown: the metrics, each class's, and which classes are confused."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tidybert.cli.output import print_table

# The metrics of each task in the order they are shown, and what each says.
_MEANINGS: Final = {
    "classify": {
        "accuracy": "share of the examples that are right",
        "macro_f1": "mean F1 of the classes, however rare",
        "matthews": "correlation; 0 is chance, 1 is perfect",
        "f1": "F1 of the class {positive}",
        "log_loss": "mean of -ln(probability of the right class)",
    },
    "regress": {
        "pearson": "linear correlation; 0 is chance, 1 is perfect",
        "spearman": "correlation of the ranks",
        "mse": "mean squared error, in the scores' units squared",
    },
}


def print_metrics(
    task_name: str, metrics: Mapping[str, Any], label_names: Sequence[str] | None
) -> None:
    """Print a task's metrics on stdout as a table; for classes a line each, and the confusions.

    ``metrics`` are as the task's ``metrics`` gives them; those of an empty mapping (nothing was
    measured) print nothing.
    """
    shown = {key: text for key, text in _MEANINGS[task_name].items() if key in metrics}
    if not shown:
        return
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
