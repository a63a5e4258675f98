"""tidybert.json: the task of a finished model, and the hashes that tie its files together."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from enum import Enum, EnumType
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import msgspec
import numpy as np
from msgspec.structs import replace

from tidybert.checkpoints.example_kinds import KINDS, ExampleKind, name_of
from tidybert.errors import ConfigError, DataError, DataWarning, WeightsError
from tidybert.storage.atomic_files import atomic_write_text, file_sha256
from tidybert.storage.json_objects import decoded, plain_json, read_json_object
from tidybert.storage.limits import LABELS
from tidybert.storage.model_files import (
    CONFIG_FILE,
    METADATA_FILE,
    ONNX_FOLDER,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
)
from tidybert.storage.opening import is_plain_name, present
from tidybert.system.terminal import warn_user
from tidybert.system.version import installed_version

# Labels as a program gave them, such as 3, True or Colour.RED, beside the names of files.
#
# A label's name is text, in files and in label_names.  tidybert.json keeps the values under
# label_values: {"values": [1, 2]} in the order of label_names, or {"enum": "shop:Colour", "values":
# ["RED", "BLUE"]} with the names of an enum's members.  Labels that are texts need none of this.


class LabelValues(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The entry of labels in tidybert.json, in the order of label_names; names of an enum's members
    where ``enum`` names the enum."""

    enum: str | None = None
    values: list[str | bool | int | float]


def stored_values(names: Sequence[str], values: Mapping[str, object]) -> LabelValues | None:
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
        return LabelValues(enum=where, values=[value.name for value in given])
    for value in given:
        if not isinstance(value, str | int | float):
            raise DataError(
                f"the label {value!r:.40} is of type {type(value).__name__}, which cannot be "
                "saved: give labels that are str, int, float, bool or an enum's members"
            )
    return LabelValues(values=given)


def restored_values(names: Sequence[str], stored: LabelValues | None) -> dict[str, Any]:
    """By name, the labels that ``stored_values`` stored; empty where all are texts.

    An enum is looked up in a module that the program has imported: a file must not choose code to
    run.  Warns, and gives texts, where the program has no such enum.
    """
    if stored is None:
        return {}
    if stored.enum is None:
        return dict(zip(names, stored.values, strict=True))
    module, _, path = stored.enum.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, EnumType):
        members: Mapping[Any, Any] = found.__members__
        if all(each in members for each in stored.values):
            return {name: members[each] for name, each in zip(names, stored.values, strict=True)}
    warn_user(
        f"the labels are members of the enum {path} of the module {module}, which this program has "
        "not imported, so answers have their names: import the module first",
        DataWarning,
    )
    return {}


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's, which are equal."""
    return value.item() if isinstance(value, np.generic) else value


def _shown(values: Sequence[object]) -> str:
    more = ", …" if len(values) > 5 else ""
    return ", ".join(f"{value!r:.40}" for value in values[:5]) + more


FORMAT_VERSION = 1
_SCORE: Final = "min_score"
"""A setting that the file has among the metrics."""
_BOUND_FILES = (CONFIG_FILE, VOCABULARY_FILE, WEIGHTS_FILE)


_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class KnownSettings(TypedDict, total=False):
    """Settings of a task's answers; a task may add names of its own."""

    activation: str
    temperature: Annotated[float, msgspec.Meta(ge=1e-3, le=1e3)]
    min_score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    entity_scores: dict[str, Annotated[float, msgspec.Meta(ge=-1e3, le=1e3)]]
    thresholds: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1)]]
    long: str
    doc_stride: _Count | None
    running_text: bool
    no_answers: bool
    max_query_length: _Count
    max_answer_length: _Count
    n_best_size: _Count
    null_score_diff_threshold: Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)] | None
    objective: str
    soft: bool


class ModelMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
        special_tokens_in_text: whether special tokens that a text spells, such as [SEP], count as
            such; text to models of versions that did not write it.
        sha256: one hash for config.json, vocab.txt, model.safetensors and the graphs of an export
            together; set on saving.
        files: the sha256 of each saved file, by name; set on saving.
        tidybert_version: the version that wrote the file; set on saving.
        format_version: the version of this file's format.

    Raises:
        ConfigError: a value has the wrong type or is out of its range; the message names the key.
    """

    task: Annotated[str, msgspec.Meta(min_length=1)]
    label_names: tuple[str, ...] | None = None
    max_seq_length: Annotated[int, msgspec.Meta(ge=1)] = 128
    inputs: ExampleKind | None = None
    settings: dict[str, Any] = {}
    label_values: LabelValues | None = None
    reading: Mapping[str, Any] | None = None
    metrics: dict[str, Any] = {}
    special_tokens_in_text: bool = False
    sha256: str = ""
    files: dict[str, str] = {}
    tidybert_version: str = ""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        decoded(plain_json(self.settings), KnownSettings, "settings")
        names, labels = self.label_names or (), self.label_values
        if len(set(names)) < len(names):
            raise ConfigError(f"label_names is {names!r:.80}; a list without repetition is needed")
        if labels is not None:
            kinds = {str} if labels.enum else {str, bool, int, float}
            if len(names) != len(labels.values) or not kinds.issuperset(map(type, labels.values)):
                raise ConfigError("label_values needs a value for each of label_names")
        for name in self.files:
            # A module of sentence-transformers has its files in a folder.
            if not is_plain_name(name, folders=1):
                raise ConfigError(f"files: {name!r:.80} is not the plain name of a file")
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
        settings, metrics = values.get("settings"), values.get("metrics")
        if isinstance(settings, dict) and isinstance(metrics, dict) and _SCORE in metrics:
            settings.setdefault(_SCORE, metrics[_SCORE])
        for key in ("sha256", "files", "format_version"):
            if key not in values:
                raise ConfigError(f"{path}: missing key {key!r}")
        inputs = values.pop("inputs", None)
        if inputs not in [None, *KINDS]:
            raise ConfigError(
                f"{path}: inputs is {inputs!r:.80}; one of {', '.join(KINDS)} is needed"
            )
        found = replace(decoded(values, cls, path), inputs=KINDS.get(inputs))
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
            self, files=files, sha256=_together(files), tidybert_version=installed_version()
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
                f"{', '.join(_BOUND_FILES)} and graphs together; the file was edited"
            )

    def to_json(self) -> str:
        """The text of tidybert.json; a number that is not finite becomes null."""
        keys = ("format_version", "tidybert_version", *self.__struct_fields__)
        values = {key: plain_json(getattr(self, key)) for key in keys}
        values["inputs"] = name_of(self.inputs)
        values["label_values"] = msgspec.to_builtins(self.label_values)
        # So older versions can read the file: they refuse a setting that they do not know.
        for name in ("label_values", "special_tokens_in_text"):
            if not values[name]:
                del values[name]
        if _SCORE in values["settings"]:
            values["metrics"][_SCORE] = values["settings"].pop(_SCORE)
        return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _together(files: Mapping[str, str]) -> str:
    """One hash over the hashes of configuration, vocabulary, weights and graphs, in this order."""
    graphs = sorted(name for name in files if name.startswith(f"{ONNX_FOLDER}/"))
    lines = "".join(f"{files.get(name, 'absent')}  {name}\n" for name in (*_BOUND_FILES, *graphs))
    return hashlib.sha256(lines.encode()).hexdigest()
