"""The identity of a run: what a resumed run must share with it, and what may change on the way.

A checkpoint records the settings by name, and hashes of the data and of the first weights.  So a
resumed run can say which of them differ.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from tidybert.errors import TrainingError, param

INTERVALS: Final = ("eval_steps", "save_steps", "save_minutes", "save_total_limit", "logging_steps")
"""Settings that decide when a run measures, saves and logs, and no step."""

_CONTENTS: Final = {
    # name: (what it is, settings whose change explains that it differs)
    "data": ("the examples as the model reads them", ("max_seq_length",)),
    "corpus": ("the corpus", ()),
    "weights": ("the weights to begin with", ("seed", "initial_weights")),
    "teacher": ("the teacher", ("teacher",)),
}


def no_reason(_name: str, _before: Any, _step: int) -> str:
    """The reason where any step depends on a setting."""
    return ""


@dataclass(frozen=True)
class RunIdentity:
    """Everything that a run's steps follow from.

    settings: by the names of the flags, as JSON holds them.
    contents: hashes of "data", "corpus", "weights" and "teacher".
    free: settings that may change on the way: with another value the steps so far would have been
        the same, but for rounding and dropout.
    refusal: called for another setting that differs, with its name, its value before and the step;
        returns why the steps so far depend on it, or None where they do not.
    """

    settings: Mapping[str, Any]
    contents: Mapping[str, str]
    free: Collection[str] = ()
    refusal: Callable[[str, Any, int], str | None] = no_reason

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint records, as JSON gives it back."""
        content = {"settings": dict(self.settings), "contents": dict(self.contents)}
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain

    def changes(self, before: Mapping[str, Any], step: int, where: object) -> dict[str, list[Any]]:
        """The settings that changed, by name, as [before, now].

        Args:
            before: what a checkpoint recorded.
            step: the steps that were done.
            where: names the checkpoint.

        Raises TrainingError that lists what must not change: settings with both values, contents.
        """
        now = self.to_dict()
        old, new = before["settings"], now["settings"]
        changed = {
            name: [old.get(name), new.get(name)]
            for name in (*new, *(name for name in old if name not in new))
            if old.get(name) != new.get(name)
        }
        refused, lines = [], []
        for name, (was, given) in changed.items():
            if name in self.free:
                continue
            reason = self.refusal(name, was, step)
            if reason is not None:
                refused.append(name)
                lines.append(f"  {change_line(name, was, given)}{reason and ': '}{reason}")
        hashes, found = before["contents"], now["contents"]
        for name, (what, explained_by) in _CONTENTS.items():
            is_explained = any(each in refused for each in explained_by)
            if hashes.get(name) != found.get(name) and not is_explained:
                lines.append(f"  {what}: not the same as before")
        if lines:
            head = (
                f"{where} was written with other arguments or data; repeat those to continue, or "
                f"give a new {param('out')}:"
            )
            raise TrainingError("\n".join([head, *lines]))
        return changed


def change_line(name: str, before: Any, now: Any) -> str:
    """A setting with its value before and now: --seed: 42 before, 7 now."""
    was, given = ("not given" if each is None else f"{each!s:.60}" for each in (before, now))
    return f"{param(name)}: {was} before, {given} now"


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
