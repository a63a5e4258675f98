"""A check of labelled examples, from the checks before training to the findings in their labels."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tidybert.checking.label_check import (
    Vectors,
    duplicate_findings,
    label_findings,
    label_probabilities,
    passed_over,
    single_texts,
    suggestions,
    text_vectors,
)
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features
from tidybert.errors import UsageError, in_shell, param
from tidybert.inference.embedding import Embedder
from tidybert.inference.loading import fitting_length
from tidybert.tasks.task import AnyTask
from tidybert.tasks.text_task import TextTask

CHECK_VERSION: Final = 1
_MESSAGES: Final = ("facts", "errors", "warnings")

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Takes a title and a total, and gives a function that takes how many texts are done."""


@dataclass(frozen=True)
class Findings:
    """The report of the checks before training, and what was found beyond it; None: not looked for.

    labels, contradicting, leaked, suggestions, passed_over: as ``label_check`` has them.
    not_looked_for: why labels are not judged, for people.
    """

    report: DataReport
    labels: dict[str, Any] | None = None
    contradicting: list[dict[str, Any]] | None = None
    leaked: list[dict[str, Any]] | None = None
    suggestions: list[dict[str, Any]] | None = None
    passed_over: dict[str, int] | None = None
    not_looked_for: str = ""

    def contents(self, *, data: str, dev: str | None, model: str) -> dict[str, Any]:
        """Plain values for check.json, under the names of the files and the MODEL.

        Messages are in the shell's words.
        """
        return {
            "check_version": CHECK_VERSION,
            "tidybert_version": version("tidybert"),
            "task": self.report.task,
            "data": data,
            "dev": dev,
            "model": model,
            "report": {
                **self.report.to_dict(),
                **{name: [*map(in_shell, getattr(self.report, name))] for name in _MESSAGES},
            },
            "labels": self.labels,
            "contradicting": self.contradicting,
            "leaked": self.leaked,
            "suggestions": self.suggestions,
            "passed_over": self.passed_over,
        }


def check_examples(
    task: AnyTask,
    model: str | Path,
    train: Sequence[Any],
    dev: Sequence[Any] | None = None,
    *,
    pool: Sequence[Any] | None = None,
    suggest: int = 50,
    max_seq_length: int | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    progress: Progress = lambda _title, _total: nullcontext(lambda _done: None),
) -> Findings:
    """Make the checks of fine-tuning, and look at the labels with the frozen encoder of ``model``.

    Nothing is trained but linear probes, and equal arguments give equal findings.  Errors of the
    checks end the work: the report has them.

    Args:
        model: a MODEL; a head that it has is not used.
        pool: examples without labels, of which ``suggest`` are chosen to label next.
        max_seq_length: tokens an example is cut to; the task's default where not given.

    Raises UsageError where a pool is given and the task is not classify, and what opening and
    running a MODEL raises.
    """
    directory = ModelDirectory.open(model)
    if max_seq_length is None:
        max_seq_length = task.default_max_seq_length
    fitting_length(directory.config, max_seq_length)
    if pool is not None and task.name != "classify":
        raise UsageError(f"{param('unlabelled')} is for classify, not for {task.name} yet")

    def features_of(examples: Sequence[Any] | None) -> list[Features]:
        found = task.features(examples, directory.tokenizer, max_seq_length) if examples else []
        return list(found)

    data = TrainingData(train, dev, features_of(train), features_of(dev), max_seq_length)
    report = task.check(data)
    if report.errors:
        return Findings(report)
    if not isinstance(task, TextTask):
        return Findings(report, not_looked_for=f"wrong labels: not for {task.name} yet")
    task.add_labels(data.train_features, train)
    # The findings were measured on means as they are.
    embedder = Embedder(model, normalize=False, device=device, allow_pickle=allow_pickle)

    def vectors_of(name: str, examples: Sequence[Any]) -> Any:
        features = features_of(single_texts(examples))
        with progress(f"encoding {name}", len(features)) as advance:
            return text_vectors(embedder, features, len(examples), advance)

    inputs = task.inputs_of(train)
    for part in (data.held_out, pool or ()):
        task.check_inputs(part, inputs)
    trained = vectors_of("the texts", train)
    vectors = Vectors(
        trained,
        vectors_of("dev", dev) if dev else trained[:0],
        vectors_of("the unlabelled texts", pool) if pool else trained[:0],
        of_pairs=inputs == "pair",
    )
    duplicates = duplicate_findings(task, data, vectors.directions())
    if task.name != "classify":
        return Findings(
            report, **duplicates, not_looked_for=f"wrong labels: not for {task.name} yet"
        )
    with progress("fitting probes", len(train)) as advance:
        p = label_probabilities(task, data, vectors.compared().train, advance)
    labels = label_findings(task, data, p)
    found = Findings(report, labels, **duplicates)
    if pool is None:
        return found
    return replace(
        found,
        suggestions=suggestions(task, data, vectors, pool, suggest),
        passed_over=passed_over(task, data, pool),
    )
