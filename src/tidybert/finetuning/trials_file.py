"""trials.json: the trials that have ended, and the settings that all of them share."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from tidybert.errors import TrainingError, UsageError, param
from tidybert.storage.atomic_files import atomic_write_json
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.opening import present
from tidybert.storage.own_files import make_directory

# The file has hashes of their content, so they may move.
_CONTENTS: Final = ("model", "vocab", "train", "dev")


@dataclass(frozen=True)
class Trial:
    """The result of one run.

    varied: the arguments in which it differs from the others.  collapsed: the one answer that it
    gives to everything, or None.  error: why it failed and has no metrics, or None.
    """

    name: str
    varied: dict[str, Any]
    metrics: dict[str, Any]
    seconds: float
    collapsed: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Trials:
    """The trials in their order, the best one, and how many the time limit left out."""

    trials: tuple[Trial, ...]
    best: Trial
    num_untried: int

    @property
    def num_failed(self) -> int:
        """The number of trials without metrics."""
        return len(self.trials) - len(finished(self.trials))

    def spread(self, metric: str) -> tuple[float, float]:
        """Mean and standard deviation (n - 1) of a metric over the trials that did not fail."""
        values = [each.metrics[metric] for each in finished(self.trials)]
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def finished(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that did not fail."""
    return [each for each in trials if each.error is None]


def read_trials(path: Path, shared: Mapping[str, Any]) -> list[Trial]:
    """The trials that have ended, none where there is no file.

    Raises TrainingError for a file that cannot be read, and UsageError for other settings.
    """
    if not present(path, error=TrainingError):
        return []
    content = read_json_object(path, error=TrainingError)
    before, found = content.get("shared"), content.get("trials")
    if not isinstance(before, dict) or not isinstance(found, list):
        raise TrainingError(
            f"{path} does not hold trials and their settings; give a new {param('out')}"
        )
    trials = [_trial(each, path) for each in found]
    other = [
        _difference(name, before.get(name), value)
        for name, value in shared.items()
        if before.get(name) != value
    ]
    if other:
        raise UsageError(
            f"{param('resume')}: the trials in {path} were run with other settings: "
            f"{', '.join(other)}; continue with the same, or give a new {param('out')}"
        )
    return trials


def _trial(values: Any, path: Path) -> Trial:
    """A trial of trials.json; TrainingError for values of another form."""
    kinds = {
        "name": str,
        "varied": dict,
        "metrics": dict,
        "seconds": int | float,
        "collapsed": str | None,
        "error": str | None,
    }
    assert kinds.keys() == {each.name for each in fields(Trial)}
    if (
        not isinstance(values, dict)
        or values.keys() != kinds.keys()
        or not all(isinstance(values[name], kind) for name, kind in kinds.items())
    ):
        raise TrainingError(f"{path}: {values!r:.80} is not a trial; give a new {param('out')}")
    return Trial(**values)


def write_trials(path: Path, shared: Mapping[str, Any], trials: Iterable[Trial]) -> None:
    """Write the settings that all trials share, and the trials."""
    make_directory(path.parent)
    content = {"shared": dict(shared), "trials": [asdict(each) for each in trials]}
    atomic_write_json(path, content)


def _difference(name: str, before: Any, now: Any) -> str:
    shown = name.upper() if name in ("task", "model") else param(name)
    if name in _CONTENTS:
        return f"{shown} (other content)"
    was, given = ("not given" if each is None or each is False else each for each in (before, now))
    return f"{shown} ({was} before, {given} now)"
