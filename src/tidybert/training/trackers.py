"""Trackers: other programs that get a run's figures, beside metrics.jsonl, which stays the record.

``--log-to`` names one: tensorboard, wandb, mlflow, or PACKAGE:function, a function that takes the
RUN's directory and returns a Tracker.  W&B and MLflow are configured by their own environment
(WANDB_MODE, WANDB_PROJECT, MLFLOW_TRACKING_URI, …).
"""

import hashlib
import importlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from tidybert.checkpoints.unfinished import read_arguments
from tidybert.errors import DiskError, TrainingError, UsageError, param
from tidybert.storage.atomic_files import append_text, atomic_write_text
from tidybert.storage.json_objects import plain_json, read_json_lines
from tidybert.storage.model_files import (
    ARGUMENTS_FILE,
    METRICS_FILE,
    MLFLOW_FOLDER,
    TENSORBOARD_FOLDER,
)
from tidybert.storage.opening import present
from tidybert.system.reporter import SILENT, Reporter

# metrics.jsonl and its like: one JSON object a line, which a full disk delays but never loses.


class MetricsLog:
    """One of these files, written nowhere without a RUN; lines that do not fit wait in memory."""

    def __init__(
        self,
        run: Path | None,
        file: str = METRICS_FILE,
        reporter: Reporter = SILENT,
    ) -> None:
        self.path = None if run is None else run / file
        self.reporter = reporter
        self._waiting: list[str] = []
        self._lock = threading.Lock()

    def rewind(self, step: int, source: Path | None = None) -> None:
        """Drop the lines after ``step``, which are written again; or take those of ``source``.

        The lines of step 0 tell of what comes before step 1, and go with it.
        """
        source = source or self.path
        if self.path is None or source is None or not present(source, error=TrainingError):
            return
        kept, unreadable = [], 0
        for line, entry in read_json_lines(source, error=TrainingError):
            done = None if entry is None else entry.get("step")
            if not isinstance(done, int | float):
                unreadable += 1
            elif done <= step and step:
                kept.append(line + "\n")
        # A kill can leave half a line at the end.
        if unreadable > 1:
            self.reporter.tell(
                f"warning: {source}: {unreadable} lines cannot be read and are dropped"
            )
        atomic_write_text(self.path, "".join(kept))

    def last(self, name: str, most: int) -> list[tuple[int, float]]:
        """The last lines' steps and their values of ``name``, at most ``most``."""
        if self.path is None or not present(self.path, error=TrainingError):
            return []
        entries = [entry for _, entry in read_json_lines(self.path, error=TrainingError) if entry]
        found = [(each["step"], each[name]) for each in entries if name in each]
        return [(int(step), float(value)) for step, value in found[-most:]]

    def write(self, values: dict[str, Any]) -> None:
        """Append one line, after those that wait."""
        if self.path is None:
            return
        with self._lock:
            self._waiting.append(json.dumps(plain_json(values), allow_nan=False) + "\n")
            try:
                append_text(self.path, "".join(self._waiting))
            except DiskError as error:
                if len(self._waiting) == 1:
                    self.reporter.tell(
                        f"warning: {error.message}. The training continues; the lines wait in "
                        "memory until there is room, and are lost if it ends before"
                    )
                return
            if len(self._waiting) > 1:
                self.reporter.tell(
                    f"{self.path} can be written again, and has all {len(self._waiting)} "
                    "lines that waited"
                )
            self._waiting.clear()


Track = Callable[[Mapping[str, float], int], None]
"""Takes figures by their names, such as train/loss, and their step."""


_TENSORBOARD: Final = "torch.utils.tensorboard"


class Tracker(Protocol):
    """What gets the figures of one run."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Take the figures of a step; a resumed run may send a step again."""

    def close(self) -> None:
        """The run has ended."""


class _TensorBoard:
    def __init__(self, run: Path) -> None:
        self._open = importlib.import_module(_TENSORBOARD).SummaryWriter
        self._run = run
        self._writer: Any = None

    def log(self, figures: Mapping[str, float], step: int) -> None:
        if self._writer is None:
            # A resumed run replaces the figures from this step on.
            self._writer = self._open(self._run / TENSORBOARD_FOLDER, purge_step=step)
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _WeightsAndBiases:
    def __init__(self, run: Path) -> None:
        wandb = importlib.import_module("wandb")
        # A resumed run goes on under its number.
        number = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "tidybert"),
            name=run.resolve().name,
            id=number,
            dir=str(run),
            config=read_arguments(run / ARGUMENTS_FILE)[0],
            resume="allow",
        )

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    def __init__(self, run: Path) -> None:
        self._metric = importlib.import_module("mlflow.entities").Metric
        # Without a server the figures lie in RUN, in files that MLflow 3 has to be asked for.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        here = None if "MLFLOW_TRACKING_URI" in os.environ else (run / MLFLOW_FOLDER).resolve()
        client = importlib.import_module("mlflow.tracking").MlflowClient
        self._client = client(here and here.as_uri())
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "tidybert")
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._number = self._client.create_run(number, run_name=run.resolve().name).info.run_id
        for key, value in read_arguments(run / ARGUMENTS_FILE)[0].items():
            self._client.log_param(self._number, key, value)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        metrics = [self._metric(name, value, 0, step) for name, value in figures.items()]
        self._client.log_batch(self._number, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._number)


_OPEN: Final[Mapping[str, tuple[str, Callable[[Path], Tracker]]]] = {
    # name: (the module that it needs, what opens it)
    "tensorboard": (_TENSORBOARD, _TensorBoard),
    "wandb": ("wandb", _WeightsAndBiases),
    "mlflow": ("mlflow.tracking", _MLflow),
}


def opener_of(name: str) -> Callable[[Path], Tracker]:
    """What opens a tracker; UsageError where its package is not here."""
    if name in _OPEN:
        module, opened = _OPEN[name]
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UsageError(
                f"{param('log_to', name)} needs the package {name}: pip install "
                "'tidybert[tracking]'"
            ) from error
        return opened
    package, sign, function = name.partition(":")
    if not (sign and package and function):
        expected = f"{', '.join(_OPEN)} or PACKAGE:function"
        raise UsageError(f"{param('log_to', name)}: expected {expected}")
    try:
        found: Callable[[Path], Tracker] = getattr(importlib.import_module(package), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{param('log_to', name)}: {error}") from error
    return found


@contextmanager
def tracked(run: Path, names: Sequence[str] | None, reporter: Reporter) -> Iterator[Track | None]:
    """A function that gives figures to trackers; None where none is named.

    They open with the first figures, because RUN must be empty until training has begun.  One that
    fails is told once, and ends no training.  Raises UsageError as ``opener_of``.
    """
    if not names:
        yield None
        return
    waiting = {name: opener_of(name) for name in names}
    trackers: dict[str, Tracker] = {}

    def track(figures: Mapping[str, float], step: int) -> None:
        for name in list(waiting):
            with _survived(name, waiting, reporter):
                trackers[name] = waiting[name](run)
            waiting.pop(name, None)
        for name in list(trackers):
            with _survived(name, trackers, reporter):
                trackers[name].log(figures, step)

    try:
        yield track
    finally:
        for each in trackers.values():
            with suppress(Exception):
                each.close()


@contextmanager
def _survived(name: str, among: dict[str, Any], reporter: Reporter) -> Iterator[None]:
    """Within the block an error of a tracker is told, and removes it."""
    try:
        yield
    except Exception as error:
        del among[name]
        reporter.tell(
            f"warning: {name} takes no more figures: {error}. The training continues, and "
            "metrics.jsonl has them all"
        )
