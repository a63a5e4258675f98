"""Output of a model's scores: its metrics, those of each class, and the confusions."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import to_builtins

from tidybert.cli.output import note, print_json, print_line, print_table
from tidybert.system.terminal import clock

if TYPE_CHECKING:
    from tidybert.finetuning.finetuned_model import Trial, Trials
    from tidybert.tasks.task import AnyTask
    from tidybert.training.reports import TrainingResult


def print_metrics(task: "AnyTask", metrics: Mapping[str, Any]) -> None:
    """Print a task's metrics on stdout as a table; for classes, also a line each and confusions.

    Empty ``metrics``, where nothing was measured, print nothing.
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
        print_line()
        _print_classes(metrics["per_label"])
    if "confusion_matrix" in metrics and label_names:
        from tidybert.metrics.text_scores import confusion_table

        print_line()
        print_line(confusion_table(np.array(metrics["confusion_matrix"]), label_names))


def trained_figures(result: "TrainingResult", run: Path) -> dict[str, Any]:
    """How a training went, for --json."""
    return {
        **result.metrics,
        "best_step": result.best_step,
        "num_steps": result.num_steps,
        "seconds": result.seconds,
        "run": str(run),
    }


def note_trained(
    result: "TrainingResult",
    count: int,
    unit: str,
    *,
    stopped_early: bool = False,
) -> None:
    """Note how long a training took, and which step the weights are from.

    ``count`` examples or tokens, as ``unit`` says, were trained on.
    """
    rate = count / result.seconds if result.seconds else 0.0
    note(
        f"{result.num_steps:,} steps, {count:,} {unit} in {clock(result.seconds)} "
        f"({rate:,.0f} {unit}/s){', stopped early' if stopped_early else ''}; the weights are "
        f"from step {result.best_step:,}"
    )


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
                "trials": to_builtins(trials.trials),
                "num_failed": trials.num_failed,
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
                "-" if each.error is not None else f"{each.metrics[task.metric]:.4f}",
                f"{each.seconds:.0f}",
                "best" if each is trials.best else _remark(each),
            )
            for each in trials.trials
        ],
    )
    print_line(f"{task.metric}: mean {mean:.4f}, deviation {deviation:.4f}")
    if trials.num_failed:
        note(
            f"{trials.num_failed} of {len(trials.trials)} trials failed: mean and deviation are of "
            f"the others; {run}/trials.json says why"
        )
    if trials.num_untried:
        note(f"{trials.num_untried} more were not tried: --time-limit left no time for them")
    print_line()
    print_metrics(task, trials.best.metrics)
    note(f"the best model is in {run}; next: tidybert predict {run} FILE")


def _remark(trial: "Trial") -> str:
    if trial.error is not None:
        return "failed"
    return "" if trial.collapsed is None else f"collapsed to {trial.collapsed!r:.20}"


def _print_classes(per_label: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each class, with its threshold if classes have their own."""
    scores = ["precision", "recall", "f1"]
    if any("average_precision" in each for each in per_label.values()):
        scores.append("average_precision")
    thresholds = {
        name: each["threshold"] for name, each in per_label.items() if "threshold" in each
    }
    shown = {name: "-" if value is None else f"{value:.4f}" for name, value in thresholds.items()}
    headings = [*scores, *(["threshold"] if thresholds else []), "examples"]
    columns: dict[str, Literal["left", "right"]] = {"class": "left"}
    columns |= {heading.replace("_", " "): "right" for heading in headings}
    print_table(
        columns,
        [
            (
                name,
                *(f"{each[score]:.4f}" for score in scores),
                *([shown[name]] if shown else []),
                f"{each['support']:,}",
            )
            for name, each in per_label.items()
        ],
    )
    if untuned := [name for name, value in thresholds.items() if value is None]:
        from tidybert.metrics.text_scores import LEAST_POSITIVES

        print_line(
            f"\n- not tuned, so 0.5 decides: {', '.join(untuned)} (tuning takes {LEAST_POSITIVES} "
            f"dev texts with the label and {LEAST_POSITIVES} without)"
        )
