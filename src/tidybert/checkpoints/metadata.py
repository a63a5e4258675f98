"""tidybert.json: the task of a finished model, and the hashes that tie its files together."""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, EnumType
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from tidybert.checkpoints.example_kinds import KINDS, ExampleKind, name_of
from tidybert.errors import ConfigError, DataError, DataWarning, WeightsError, suggestion
from tidybert.storage.atomic_files import atomic_write_text, file_sha256
from tidybert.storage.json_objects import plain_json, read_json_object
from tidybert.storage.limits import LABELS, LONGEST_NAME
from tidybert.storage.model_files import (
    CONFIG_FILE,
    METADATA_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
)
from tidybert.storage.opening import present
from tidybert.system.terminal import warn_user

# Labels as a program gave them, such as 3, True or Colour.RED, beside the names of files.
#
# A label's name is text, in files and in label_names.  tidybert.json keeps the values under
# label_values: {"values": [1, 2]} in the order of label_names, or {"enum": "shop:Colour", "values":
# ["RED", "BLUE"]} with the names of an enum's members.  Labels that are texts need none of this.


def stored_values(names: Sequence[str], values: Mapping[str, object]) -> dict[str, Any] | None:
    """The entry of labels in tidybert.json; None where all are texts."""
    given = [_plain(values.get(name, name)) for name in names]
    kinds = {type(value) for value in given}
    if kinds <= {str}:
        return None
    if len(set(given)) < len(given):
        raise DataError(
            f"the labels are {_shown(given)}, and Python takes two of them for equal: give labels "
            "of one type"
        )
    if any(issubclass(kind, Enum) for kind in kinds):
        if len(kinds) > 1:
            raise DataError(f"the labels are {_shown(given)}: give members of only one enum")
        (kind,) = kinds
        where = f"{kind.__module__}:{kind.__qualname__}"
        return {"enum": where, "values": [value.name for value in given]}
    for value in given:
        if not isinstance(value, str | int | float):
            raise DataError(
                f"the label {value!r:.40} is of type {type(value).__name__}, which cannot be "
                "saved: give labels that are str, int, float, bool or an enum's members"
            )
    return {"values": given}


def restored_values(names: Sequence[str], stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """By name, the labels that ``stored_values`` stored; empty where all are texts.

    An enum is looked up in a module that the program has imported: a file must not choose code to
    run.  Warns, and gives texts, where the program has no such enum.
    """
    if stored is None:
        return {}
    if "enum" not in stored:
        return dict(zip(names, stored["values"], strict=True))
    module, _, path = stored["enum"].partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, EnumType):
        members: Mapping[str, Any] = found.__members__
        if all(name in members for name in stored["values"]):
            return {name: members[each] for name, each in zip(names, stored["values"], strict=True)}
    warn_user(
        f"the labels are members of the enum {path} of the module {module}, which this program has "
        "not imported, so answers have their names: import the module first",
        DataWarning,
    )
    return {}


def check_label_values(names: Sequence[str] | None, stored: Any) -> None:
    """Raise ConfigError for a label_values that ``stored_values`` cannot have given."""
    values = stored.get("values") if isinstance(stored, Mapping) else None
    good = (
        isinstance(values, list)
        and names is not None
        and len(values) == len(names)
        and all(isinstance(value, str | int | float) for value in values)
        and stored.keys() <= {"values", "enum"}
        and isinstance(stored.get("enum", ""), str)
        and ("enum" not in stored or all(isinstance(value, str) for value in values))
    )
    if not good:
        raise ConfigError(
            f"label_values is {stored!r:.80}; an object with a value for each of label_names is "
            "needed"
        )


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's, which are equal."""
    return value.item() if isinstance(value, np.generic) else value


def _shown(values: Sequence[object]) -> str:
    more = ", …" if len(values) > 5 else ""
    return ", ".join(f"{value!r:.40}" for value in values[:5]) + more


FORMAT_VERSION = 1
_BOUND_FILES = (CONFIG_FILE, VOCABULARY_FILE, WEIGHTS_FILE)


@dataclass(frozen=True)
class ModelMetadata:
    """The content of tidybert.json.

    Args:
        task: the task that the model was trained for ("classify", "regress", ...).
        label_names: the names of the classes in the order of their ids; None without classes.
        label_values: what a program gave as labels, see ``label_values``; None for texts.
        max_seq_length: the longest training input in tokens, special tokens included.
        inputs: what one example holds, or its name in the file; None where training examples
            differed, or an older version wrote the file.
        settings: other settings of the task's answers (temperature, thresholds, doc_stride, ...).
        reading: how the training file was read, see ``files.reading``; None where no file was.
        metrics: the scores of the saved weights by name.
        sha256: one hash for config.json, vocab.txt and model.safetensors together; set on saving.
        files: the sha256 of each saved file, by name; set on saving.
        tidybert_version: the version that wrote the file; set on saving.
        format_version: the version of this file's format.

    Raises:
        ConfigError: a value has the wrong type or is out of its range; the message names the key.
    """

    task: str
    label_names: tuple[str, ...] | None = None
    max_seq_length: int = 128
    inputs: ExampleKind | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    label_values: Mapping[str, Any] | None = None
    reading: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    tidybert_version: str = ""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        names: Any = self.label_names
        if names is not None:
            named = isinstance(names, list | tuple) and all(isinstance(n, str) for n in names)
            _check("label_names", names, named, "a list of strings")
            _check("label_names", names, len(set(names)) == len(names), "a list without repetition")
            object.__setattr__(self, "label_names", tuple(names))
        _check("task", self.task, isinstance(self.task, str) and bool(self.task), "a task's name")
        # type() and not isinstance: to Python, true is an int.
        length = plain_json(self.max_seq_length)
        _check("max_seq_length", length, type(length) is int and length > 0, "a number of tokens")
        for key in ("reading", "metrics", "settings", "files"):
            value = getattr(self, key)
            is_absent = key == "reading" and value is None
            allowed = isinstance(value, Mapping) or is_absent
            _check(key, value, allowed, "a JSON object")
        check_settings(self.settings)
        if self.label_values is not None:
            check_label_values(names, self.label_values)
        inputs: Any = self.inputs
        if inputs is not None and not isinstance(inputs, ExampleKind):
            known = isinstance(inputs, str) and inputs in KINDS
            _check("inputs", inputs, known, f"one of {', '.join(KINDS)}")
            object.__setattr__(self, "inputs", KINDS[inputs])
        for key in ("sha256", "tidybert_version"):
            _check(key, getattr(self, key), isinstance(getattr(self, key), str), "a string")
        for name, digest in self.files.items():
            # A module of sentence-transformers has its files in a folder.
            parts = name.split("/")
            plain = isinstance(digest, str) and len(parts) <= 2 and ".." not in parts
            plain = plain and all(each and Path(each).name == each for each in parts)
            plain = plain and len(name.encode("utf-8", "replace")) <= LONGEST_NAME
            _check("files", self.files, plain, "an object from plain file names to hashes")
        if self.format_version != FORMAT_VERSION:
            raise ConfigError(
                f"format_version is {self.format_version!r:.20}; this program reads "
                f"{FORMAT_VERSION}; a newer tidybert may read it"
            )

    @classmethod
    def read(cls, directory: str | Path) -> "ModelMetadata | None":
        """The metadata of a model that tidybert saved; None if another program saved it.

        Raises:
            ConfigError: tidybert.json is damaged, of a newer format, or holds an unknown key.
            LimitError: it has more labels than LABELS.
        """
        path = Path(directory) / METADATA_FILE
        if not present(path, error=ConfigError):
            return None
        values = read_json_object(path)
        # Older versions wrote null here.
        values.pop("columns", None)
        known = [item.name for item in fields(cls)]
        try:
            for key in values:
                if key not in known:
                    raise ConfigError(f"unknown key {key!r}{suggestion(key, known)}")
            for key in ("task", "sha256", "files", "format_version"):
                if key not in values:
                    raise ConfigError(f"missing key {key!r}")
            found = cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}") from None
        LABELS.check(len(found.label_names or ()), path)
        return found

    def write(self, directory: str | Path) -> "ModelMetadata":
        """Write tidybert.json beside the other files of ``directory``.

        Returns the metadata as written, with their hashes and this program's version.
        """
        files = {
            path.relative_to(directory).as_posix(): file_sha256(path)
            for path in sorted(Path(directory).rglob("*"))
            if path.is_file() and path.name != METADATA_FILE
        }
        sealed = replace(
            self, files=files, sha256=_together(files), tidybert_version=version("tidybert")
        )
        atomic_write_text(Path(directory) / METADATA_FILE, sealed.to_json())
        return sealed

    def verify(self, directory: str | Path) -> None:
        """Check that the files in ``directory`` are those that were hashed on saving.

        Raises:
            WeightsError: a file is missing or has changed; the message names it.
        """
        directory = Path(directory)
        missing = [name for name in self.files if not (directory / name).is_file()]
        if missing:
            raise WeightsError(f"{directory}: the model is incomplete: no {', '.join(missing)}")
        found = {name: file_sha256(directory / name) for name in self.files}
        changed = [name for name, digest in self.files.items() if found[name] != digest]
        if changed:
            raise WeightsError(
                f"{directory}: changed since the model was saved: {', '.join(changed)}; its parts "
                f"do not belong together, so restore the file or save the model again (delete "
                f"{METADATA_FILE} to use the directory as weights of unknown origin)"
            )
        if _together(found) != self.sha256:
            raise WeightsError(
                f"{directory / METADATA_FILE}: its sha256 is not that of "
                f"{', '.join(_BOUND_FILES)} together; the file was edited"
            )

    def to_json(self) -> str:
        """The text of tidybert.json; a number that is not finite becomes null."""
        keys = ("format_version", "tidybert_version", *(item.name for item in fields(self)))
        values = {key: plain_json(getattr(self, key)) for key in keys}
        values["inputs"] = name_of(self.inputs)
        if self.label_values is None:
            # So older versions can read the file.
            del values["label_values"]
        return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _together(files: Mapping[str, str]) -> str:
    """One hash over the hashes of configuration, vocabulary and weights, in this order."""
    lines = "".join(f"{files.get(name, 'absent')}  {name}\n" for name in _BOUND_FILES)
    return hashlib.sha256(lines.encode()).hexdigest()


def _check(key: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"{key} is {value!r:.80}; {expected} is needed")


# type() and not isinstance: to Python, true is an int.
_MOST: Final = 1_000_000


def _is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MOST


def _are_thresholds(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_number(each, 0, 1) for each in value.values())


_COUNT: Final = (_is_count, f"a whole number from 1 to {_MOST:,}")

SETTINGS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "temperature": (lambda value: _is_number(value, 1e-3, 1e3), "a number from 0.001 to 1000"),
    "thresholds": (_are_thresholds, "an object from labels to numbers from 0 to 1"),
    "long": (lambda value: isinstance(value, str), "a string"),
    "doc_stride": (
        lambda value: value is None or _is_count(value),
        f"null or a whole number from 1 to {_MOST:,}",
    ),
    "no_answers": (lambda value: type(value) is bool, "true or false"),
    "max_query_length": _COUNT,
    "max_answer_length": _COUNT,
    "n_best_size": _COUNT,
    "null_score_diff_threshold": (
        lambda value: value is None or _is_number(value, -_MOST, _MOST),
        f"null or a number from {-_MOST:,} to {_MOST:,}",
    ),
    "objective": (lambda value: isinstance(value, str), "a string"),
}
"""By name: whether a value will do, and what is expected.  A task may add names of its own."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError, which names the setting, for a value that it cannot have."""
    for name, value in settings.items():
        is_good, expected = SETTINGS.get(name, (lambda _: True, ""))
        plain = plain_json(value)
        if not is_good(plain):
            raise ConfigError(f"settings: {name} is {plain!r:.80}; {expected} is needed")
