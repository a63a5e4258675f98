"""Checkpoints of a run: all that a run needs to go on with the same bits.

A checkpoint is a directory checkpoints/step-N of the RUN: a MODEL, optimizer.safetensors (Adam's
two moments and step counts) and training_state.json, which has the hashes of the tensors and of
itself.  The schedule, the order of the data and the random numbers follow
from the seed and the step, so a checkpoint keeps only the step.  Each directory is written aside,
synced and renamed.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, TypedDict

import msgspec
import torch
from torch import Tensor, nn

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.sentence_form import dense_weights
from tidybert.checkpoints.sentence_reading import read_sentence_form
from tidybert.checkpoints.tensor_files import read_tensors, write_tensors
from tidybert.checkpoints.weights import from_huggingface
from tidybert.errors import DiskError, TidyBertError, TrainingError, param
from tidybert.options import MODEL, NOTHING, ORDER, Changes
from tidybert.storage.atomic_files import (
    atomic_directory,
    atomic_write_text,
    file_sha256,
)
from tidybert.storage.journal import Count, Journal, difference
from tidybert.storage.model_files import (
    BEST_FOLDER,
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    KEPT_FILE,
    MODULES_FILE,
    OPTIMIZER_FILE,
    STATE_FILE,
    WEIGHTS_FILE,
    checkpoints_by_step,
)
from tidybert.storage.own_files import make_directory, remove_tree
from tidybert.training.distributed import placed_like

# The identity of a run: what a resumed run must share with it, and what may change on the way.
#
# A checkpoint records the settings by name, and hashes of the data and of the first weights.  So a
# resumed run can say which of them differ.

_CONTENTS: Final = {
    # name: (what it is, settings whose change explains that it differs)
    "data": ("the examples as the model reads them", ("max_seq_length",)),
    "corpus": ("the corpus", ()),
    "weights": ("the weights to begin with", ("seed", "initial_weights")),
    "teacher": ("the teacher", ("teacher",)),
}


class Course(TypedDict):
    """What a checkpoint records of the identity of its run."""

    settings: dict[str, Any]
    contents: dict[str, Any]


@dataclass(frozen=True)
class RunIdentity:
    """Everything that a run's steps follow from.

    settings: by the names of the flags, as JSON holds them.
    contents: hashes of "data", "corpus", "weights" and "teacher".
    kinds: what another value of a setting or of a content changes; MODEL for those without.
    later: settings that earlier versions did not record; where they are missing, they are as now.
    was_so: whether a setting that earlier versions had, by name and value, did what is done now.
    """

    settings: Mapping[str, Any]
    contents: Mapping[str, str]
    kinds: Mapping[str, Changes] = field(default_factory=dict)
    later: Collection[str] = ()
    was_so: Callable[[str, Any], bool] = lambda _name, _value: False

    def to_dict(self) -> Course:
        """What a checkpoint records, as JSON gives it back."""
        content = {"settings": dict(self.settings), "contents": dict(self.contents)}
        plain: Course = json.loads(json.dumps(content))
        return plain

    def kind(self, name: str) -> Changes:
        return self.kinds.get(name, MODEL)

    def change_line(self, name: str, before: Any, now: Any) -> str:
        """A setting with its value before and now: --seed: 42 before, 7 now; or what differs."""
        if name in self.contents:
            return f"{_CONTENTS[name][0]}: not the same as before"
        return difference(name, before, now)

    def changes(
        self, before: Course, where: object, *, allowed: bool = False
    ) -> dict[str, list[Any]]:
        """The settings and contents that changed, by name, as [before, now]."""
        now = self.to_dict()
        old, new = before["settings"], now["settings"]
        gone = [name for name in old if name not in new and not self.was_so(name, old[name])]
        changed = {
            name: [old.get(name), new.get(name)]
            for name in (*new, *gone)
            if old.get(name) != new.get(name) and (name in old or name not in self.later)
        }
        # Of a task's options those that the model reads the examples by.
        explains = {name for name in self.later if MODEL in self.kind(name)}
        contents = {
            name: [before["contents"].get(name), now["contents"].get(name)]
            for name, (_, explained_by) in _CONTENTS.items()
            if before["contents"].get(name) != now["contents"].get(name)
            and not any(each in changed for each in explained_by)
            and not (name == "data" and explains & {*changed})
        }
        fixed = [name for name in (*changed, *contents) if MODEL in self.kind(name)]
        refused = fixed or [
            name for name in (*changed, *contents) if self.kind(name) and not allowed
        ]
        if refused:
            advice = (
                "these cannot change on the way; repeat them to continue, or give a new "
                f"{param('out')}:"
                if fixed
                else f"repeat those to continue, {param('change')} changes them from here on, or "
                f"give a new {param('out')}:"
            )
            lines = [
                f"  {self.change_line(name, *values)}"
                for name, values in {**changed, **contents}.items()
                if name in refused
            ]
            head = f"{where} was written with other arguments or data; {advice}"
            raise TrainingError("\n".join([head, *lines]))
        return {**changed, **contents}


def weights_sha256(model: nn.Module) -> str:
    """A hash of a model's parameters and buffers with their names."""

    def pieces() -> Iterable[bytes | memoryview]:
        for name, tensor in model.state_dict().items():
            yield name.encode()
            yield tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data

    return sha256_of(pieces())


def sha256_of(pieces: Iterable[bytes | memoryview]) -> str:
    """The sha256 of pieces laid end to end, in hexadecimal."""
    digest = hashlib.sha256()
    for each in pieces:
        digest.update(each)
    return digest.hexdigest()


_MOST: Final = 10**15

AsModel = Callable[[Path, Mapping[str, Tensor]], object]
"""Writes weights into a directory as a MODEL."""


class TrainingState(msgspec.Struct, forbid_unknown_fields=True):
    """Where a run is.

    course: what a resumed run must share, see RunIdentity.  changes: for each resume with other
    settings, the step and the settings with their values before and after.  best_metrics: those of
    ``best_step`` on dev, None before the first evaluation.  progress: values that do not follow
    from the step, such as counts and the place in a stream of instances.  stages: seconds of what
    came before step 1, by name.  cross_validated: what was measured there, if anything.  sha256: of
    the files of tensors beside it, by name; set on writing.
    """

    course: Course
    changes: list[dict[str, Any]] = []
    step: Count = 0
    best_step: Count = 0
    best_metrics: dict[str, Any] | None = None
    evaluations_since_best: Count = 0
    progress: dict[str, Any] = {}
    stages: dict[str, float] = {}
    cross_validated: dict[str, Any] | None = None
    sha256: dict[str, str] = {}

    def forget_best(self) -> None:
        """The best weights are chosen among the evaluations to come."""
        self.best_step, self.best_metrics, self.evaluations_since_best = 0, None, 0


def checkpoints_directory(run: Path) -> Path:
    return run / CHECKPOINTS_FOLDER


def step_directories(run: Path) -> list[Path]:
    """The checkpoints by step, the last one last."""
    return list(checkpoints_by_step(run).values())


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint; ``as_model`` writes it as a MODEL; ``is_kept``: for good."""

    state: TrainingState
    weights: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]
    as_model: AsModel | None = None
    is_kept: bool = False


def write_checkpoint(run: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write checkpoints/step-N, then remove all but the last ``keep`` and those kept for good."""
    state = checkpoint.state
    target = checkpoints_directory(run) / f"step-{state.step}"
    try:
        with atomic_directory(target) as partial:
            if checkpoint.as_model is None:
                write_tensors(partial / WEIGHTS_FILE, checkpoint.weights)
            else:
                checkpoint.as_model(partial, checkpoint.weights)
            if checkpoint.is_kept:
                atomic_write_text(partial / KEPT_FILE, "")
            write_tensors(partial / OPTIMIZER_FILE, checkpoint.moments)
            state.sha256 = _hashes(partial)
            _journal(partial).write(state)
    except DiskError as error:
        *_, left = [None, *step_directories(run)]
        advice = f"make room, then {param('resume')} continues from {left}"
        advice = advice if left else "no earlier checkpoint exists"
        raise TrainingError(f"{error.message}; {advice}") from error
    found = checkpoints_by_step(run)
    passing = [step for step in found if step <= state.step and not _is_kept(found[step])]
    removed = [step for step in found if step > state.step] + passing[: -max(1, keep)]
    for step in removed:
        # Later ones are damaged, and a resumed run must not prefer them to this one.
        remove_tree(found[step])
    return target


def read_checkpoint(
    run: Path, course: RunIdentity, progress: Mapping[str, Any], *, allowed: bool = False
) -> tuple[Checkpoint | None, list[str], Changes]:
    """The last valid checkpoint, or None; lines for the reader; and what changes on the way.

    The lines name each checkpoint that cannot be read, and each setting that changes on the way.
    The checkpoint's state has the new course, and ``allowed`` lets it change the steps from here
    on.  ``progress`` is that of a run that begins; the checkpoint's must have the same form.
    """
    lines: list[str] = []
    for step, directory in reversed(checkpoints_by_step(run).items()):
        try:
            found = checkpoint_at(directory, step, progress)
        except EarlierVersionError:
            raise
        except TidyBertError as error:
            lines.append(f"{directory} cannot be read and is passed over: {error.message}")
            continue
        changed = course.changes(found.state.course, directory, allowed=allowed)
        what = reduce(or_, map(course.kind, changed), NOTHING)
        if ORDER not in what and not _is_like(found.state.progress, progress, strict=True):
            lines.append(f"{directory} is not of these data and is passed over")
            continue
        if changed:
            found.state.changes.append({"step": step, **changed})
        found.state.course = course.to_dict()
        lines += [course.change_line(name, *values) for name, values in changed.items()]
        return found, lines, what
    return None, lines, NOTHING


class EarlierVersionError(TrainingError):
    """An earlier version wrote a checkpoint."""


def checkpoint_at(directory: Path, step: int, progress: Mapping[str, Any]) -> Checkpoint:
    journal = _journal(directory)
    content = journal.content()
    if "fingerprint" in content:
        raise EarlierVersionError(
            f"{directory} was written by an earlier version of tidybert; end the run with that "
            f"version, or give a new {param('out')}"
        )
    state = journal.decoded(content)
    if state.sha256 != _hashes(directory):
        raise TrainingError("its files of tensors are not what was written")
    late = max(state.best_step, state.evaluations_since_best) > step
    if state.step != step or late or not _is_like(state.progress, progress):
        raise TrainingError(f"{STATE_FILE} is not the state of this training")
    weights = read_tensors(directory / WEIGHTS_FILE)
    if (directory / CONFIG_FILE).exists():
        model = ModelDirectory(directory)
        weights, _ = from_huggingface(weights, model.config, model.architecture)
        if (directory / MODULES_FILE).exists():
            weights |= dense_weights(read_sentence_form(model))
    return Checkpoint(state, weights, read_tensors(directory / OPTIMIZER_FILE))


def _journal(checkpoint: Path) -> Journal[TrainingState]:
    return Journal(checkpoint / STATE_FILE, TrainingState, error=TrainingError)


def _is_like(value: Any, example: Any, *, strict: bool = False) -> bool:
    """Whether JSON has the form of another, numbers not below 0; ``strict``: and its lengths."""
    if isinstance(example, Mapping):
        alike = isinstance(value, dict) and value.keys() == example.keys()
        return alike and all(_is_like(value[key], example[key], strict=strict) for key in example)
    if isinstance(example, list | tuple):
        alike = isinstance(value, list) and (len(value) == len(example) or not strict)
        return alike and bool(value) and all(_is_like(each, example[0]) for each in value)
    if isinstance(example, float):
        return type(value) in (int, float) and 0 <= value < _MOST
    return type(value) is type(example) and (not isinstance(value, int) or 0 <= value < _MOST)


def _hashes(directory: Path) -> dict[str, str]:
    """The hashes of a checkpoint's tensors; raises TidyBertError for a missing file."""
    return {name: file_sha256(directory / name) for name in (WEIGHTS_FILE, OPTIMIZER_FILE)}


def check_fits(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Raise TrainingError unless a checkpoint has the weights of ``model``, and moments of them."""
    weights, parameters = model.state_dict(), dict(model.named_parameters())
    fits = weights.keys() == checkpoint.weights.keys() and all(
        each.shape == weights[name].shape for name, each in checkpoint.weights.items()
    )
    for key, value in checkpoint.moments.items():
        parameter = parameters.get(key.rpartition("/")[0])
        # The moments of an embedding may have only the rows in use.
        fits &= parameter is not None and value.shape[1:] in ((), parameter.shape[1:])
    if not fits:
        raise TrainingError("the checkpoint's tensors are not those of this model")


def write_best(run: Path, weights: Mapping[str, Tensor]) -> None:
    """Keep the weights with the best dev metric so far in checkpoints/best."""
    target = checkpoints_directory(run) / BEST_FOLDER
    make_directory(target)
    write_tensors(target / WEIGHTS_FILE, weights)


def read_best(run: Path) -> dict[str, Tensor]:
    return read_tensors(checkpoints_directory(run) / BEST_FOLDER / WEIGHTS_FILE)


def remove_best(run: Path) -> None:
    """Remove checkpoints/best once the RUN itself has those weights."""
    remove_tree(checkpoints_directory(run) / BEST_FOLDER)


def remove_checkpoints(run: Path) -> None:
    """Remove the checkpoints of a finished RUN, which has the weights itself; some are kept."""
    kept = [path for path in step_directories(run) if _is_kept(path)]
    if not kept:
        remove_tree(checkpoints_directory(run))
        return
    for path in step_directories(run):
        if path not in kept:
            remove_tree(path)
    remove_best(run)


def _is_kept(checkpoint: Path) -> bool:
    return (checkpoint / KEPT_FILE).exists()


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's state as tensors named PARAMETER/exp_avg, PARAMETER/exp_avg_sq, PARAMETER/step."""
    tensors = {}
    names: dict[Tensor, str] = {each: name for name, each in model.named_parameters()}
    for parameter, entries in optimizer.state.items():
        # The parameters of a sharded model must be the shards, which the optimizer knows.
        assert parameter in names, "the optimizer holds moments of a parameter that is not here"
        for key, value in entries.items():
            tensors[f"{names[parameter]}/{key}"] = value
    return tensors


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        parameter = parameters[name]
        # The fused optimizer wants its step counts on the parameter's device.
        optimizer.state[parameter][entry] = placed_like(value, parameter)
