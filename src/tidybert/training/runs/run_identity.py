"""The identity of a run: what a resumed run must share with it, and what may change on the way.

A checkpoint records the settings by name, and hashes of the data and of the first weights.  So a
resumed run can say which of them differ.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn

from tidybert.errors import TrainingError, param
from tidybert.training.changes import MODEL, Changes

_CONTENTS: Final = {
    # name: (what it is, settings whose change explains that it differs)
    "data": ("the examples as the model reads them", ("max_seq_length",)),
    "corpus": ("the corpus", ()),
    "weights": ("the weights to begin with", ("seed", "initial_weights")),
    "teacher": ("the teacher", ("teacher",)),
}


@dataclass(frozen=True)
class RunIdentity:
    """Everything that a run's steps follow from.

    settings: by the names of the flags, as JSON holds them.
    contents: hashes of "data", "corpus", "weights" and "teacher".
    kinds: what another value of a setting or of a content changes; MODEL for those without.
    was_so: whether a setting that earlier versions had, by name and value, did what is done now.
    """

    settings: Mapping[str, Any]
    contents: Mapping[str, str]
    kinds: Mapping[str, Changes] = field(default_factory=dict)
    was_so: Callable[[str, Any], bool] = lambda _name, _value: False

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint records, as JSON gives it back."""
        content = {"settings": dict(self.settings), "contents": dict(self.contents)}
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain

    def kind(self, name: str) -> Changes:
        """What another value of a setting or of a content changes."""
        return self.kinds.get(name, MODEL)

    def change_line(self, name: str, before: Any, now: Any) -> str:
        """A setting with its value before and now: --seed: 42 before, 7 now; or what differs."""
        if name in self.contents:
            return f"{_CONTENTS[name][0]}: not the same as before"
        was, given = ("not given" if each is None else f"{each!s:.60}" for each in (before, now))
        return f"{param(name)}: {was} before, {given} now"

    def changes(
        self, before: Mapping[str, Any], where: object, *, allowed: bool = False
    ) -> dict[str, list[Any]]:
        """The settings and contents that changed, by name, as [before, now].

        Args:
            before: what a checkpoint recorded.
            where: names the checkpoint.
            allowed: whether what changes the steps from here on may change.

        Raises TrainingError that lists what must not change: settings with both values, contents.
        """
        now = self.to_dict()
        old, new = before["settings"], now["settings"]
        gone = [name for name in old if name not in new and not self.was_so(name, old[name])]
        changed = {
            name: [old.get(name), new.get(name)]
            for name in (*new, *gone)
            if old.get(name) != new.get(name)
        }
        contents = {
            name: [before["contents"].get(name), now["contents"].get(name)]
            for name, (_, explained_by) in _CONTENTS.items()
            if before["contents"].get(name) != now["contents"].get(name)
            and not any(each in changed for each in explained_by)
        }
        fixed = [name for name in (*changed, *contents) if MODEL in self.kind(name)]
        refused = fixed or [
            name for name in (*changed, *contents) if self.kind(name) and not allowed
        ]
        if refused:
            way = (
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
            head = f"{where} was written with other arguments or data; {way}"
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
