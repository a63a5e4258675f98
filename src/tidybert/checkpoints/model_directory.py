"""A MODEL directory: config.json, model.safetensors, the vocabulary, and our tidybert.json.

It is a Hugging Face BERT directory; transformers opens ours as it is, and we open theirs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tidybert.atomic_files import remove_tree, sync, sync_tree
from tidybert.checkpoints.conversion import (
    PREFIX,
    from_huggingface,
    huggingface_names,
    to_huggingface,
)
from tidybert.checkpoints.metadata import (
    CONFIG_FILE,
    METADATA_FILE,
    VOCABULARY_FILE,
    ModelMetadata,
    read_metadata,
    verify,
)
from tidybert.checkpoints.tensor_files import (
    WEIGHTS_FILE,
    check_finite,
    read_tensors,
    write_tensors,
)
from tidybert.configuration import BertConfig, read_json_object
from tidybert.errors import ConfigError, WeightsError

__all__ = [
    "HeadDescription",
    "LoadReport",
    "ModelMetadata",
    "load_weights_into",
    "read_head",
    "read_metadata",
    "save_model_directory",
    "verify",
]

# Without these there is no encoder; a head or the pooler may be new.
_ENCODER = ("embeddings.", "encoder.")
_POOLER = "pooler."
_CLASSIFIERS = ("BertForSequenceClassification", "BertForTokenClassification")


class SavableTokenizer(Protocol):
    """What ``save_model_directory`` needs of a tokenizer."""

    def save(self, directory: Path) -> object:
        """Write vocab.txt and whatever else the tokenizer needs into ``directory``."""


@dataclass(frozen=True)
class LoadReport:
    """What became of each tensor when weights were loaded into a model.

    Args:
        source: the directory.
        loaded: names in the file of the tensors that the model took.
        new: names in the model of the parameters that the file does not have, left as they were.
        ignored: names in the file of the tensors that the model did not take.
        num_parameters: number of values loaded.
    """

    source: str
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    ignored: tuple[str, ...]
    num_parameters: int

    def summary(self) -> str:
        """One line: what was loaded, what is new and what was ignored."""
        return (
            f"loaded {len(self.loaded)} tensors ({self.num_parameters / 1e6:.1f} M parameters) "
            f"from {self.source}; new: {_shortened(self.new)}; ignored: {_shortened(self.ignored)}"
        )


@dataclass(frozen=True)
class HeadDescription:
    """What config.json says of the head.

    Args:
        architectures: class names ("BertForSequenceClassification"), empty if it names none.
        label_names: in the order of their ids; None if it names none.
        problem_type: "regression", "single_label_classification",
            "multi_label_classification" or None.
    """

    architectures: tuple[str, ...]
    label_names: tuple[str, ...] | None
    problem_type: str | None


def load_weights_into(
    model: nn.Module,
    directory: str | Path,
    *,
    new_head: bool = False,
    allow_pickle: bool = False,
) -> LoadReport:
    """Copy the weights in a MODEL directory into ``model``, an encoder or a model with a head.

    Parameters keep their dtype and device.  Nothing is copied unless everything fits.  A directory
    with tidybert.json is verified first.

    Args:
        model: its state dict has the encoder's names bare or after ``bert.``; the file may have
            them either way.
        directory: holds config.json and the weights.
        new_head: leave the heads of ``model`` as they are, though the file has some; for
            fine-tuning on another task.
        allow_pickle: read pytorch_model.bin as well.

    Raises:
        WeightsError: ``read_tensors`` or ``from_huggingface`` refuses, ``verify`` fails, a tensor
            of embeddings or encoder is missing, or a shape does not fit.
        ConfigError: config.json cannot be read.
    """
    directory = Path(directory)
    verify(directory)
    config = BertConfig.from_file(directory / CONFIG_FILE)
    tensors, unknown = from_huggingface(read_tensors(directory, allow_pickle=allow_pickle), config)
    sources = {name.removeprefix(PREFIX): name for name in tensors}
    chosen: dict[str, tuple[str, Tensor]] = {}
    new: list[str] = []
    missing: list[str] = []
    for key, target in model.state_dict().items():
        bare = key.removeprefix(PREFIX)
        is_head = not bare.startswith((*_ENCODER, _POOLER))
        if bare in sources and not (is_head and new_head):
            chosen[sources[bare]] = (key, target)
        elif bare.startswith(_ENCODER):
            missing.append(key)
        else:
            new.append(key)
    if missing:
        raise WeightsError(
            f"{directory}: the encoder's weights are incomplete: the file lacks "
            f"{_shortened(missing)}; its own configuration has {config.num_hidden_layers} layers"
        )
    for name, (key, target) in chosen.items():
        if tensors[name].shape != target.shape:
            theirs = " + ".join(huggingface_names(name, config))
            raise WeightsError(
                f"{directory}: {theirs} has the shape {tuple(tensors[name].shape)}, but {key} of "
                f"the model has {tuple(target.shape)}" + _shape_advice(key)
            )
    with torch.no_grad():
        for name, (_, target) in chosen.items():
            target.copy_(tensors[name])
    left = [name for name in tensors if name not in chosen]
    return LoadReport(
        source=str(directory),
        loaded=tuple(theirs for name in chosen for theirs in huggingface_names(name, config)),
        new=tuple(new),
        ignored=tuple(theirs for name in left for theirs in huggingface_names(name, config))
        + unknown,
        num_parameters=sum(target.numel() for _, target in chosen.values()),
    )


def save_model_directory(
    directory: str | Path,
    *,
    model_state: Mapping[str, Tensor],
    config: BertConfig,
    tokenizer: SavableTokenizer,
    metadata: ModelMetadata,
    architecture: str,
    problem_type: str | None = None,
) -> ModelMetadata:
    """Write a model that tidybert and transformers open, into a new or an existing directory.

    Everything is written and synced aside before the first file moves into place, so that a full
    disk costs nothing that was there.  tidybert.json moves first and the weights last: a kill in
    between leaves a directory that ``verify`` refuses.  Other files in it stay.

    Args:
        model_state: our state dict, finite; stored with the dtypes it has.
        metadata: its label_names go into config.json too; its hashes are set here.
        architecture: transformers' name of the class ("BertForSequenceClassification").
        problem_type: transformers' name of the loss, or None.

    Returns:
        The metadata as written.

    Raises:
        WeightsError: values that are not finite, a parameter without a Hugging Face name, a number
            of label names that does not fit the classifier, or a write that fails.
    """
    directory = Path(directory)
    check_finite(model_state, str(directory))
    tensors = to_huggingface(model_state, config)
    description = _config_json(config, model_state, metadata, architecture, problem_type)
    partial = directory / ".saving.partial"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_tree(partial)
        partial.mkdir()
        (partial / CONFIG_FILE).write_text(description, encoding="utf-8")
        tokenizer.save(partial)
        if not (partial / VOCABULARY_FILE).is_file():
            raise AssertionError(f"the tokenizer saved no {VOCABULARY_FILE}")
        write_tensors(partial, tensors)
        sealed = metadata.sealed(partial)
        (partial / METADATA_FILE).write_text(sealed.to_json(), encoding="utf-8")
        sync_tree(partial)
        _move_into_place(partial, directory)
    except OSError as error:
        raise WeightsError(f"{directory}: the model cannot be saved: {error}") from error
    finally:
        remove_tree(partial)
    return sealed


def read_head(directory: str | Path) -> HeadDescription:
    """What a directory's config.json says of its head, for models of any origin.

    Raises:
        ConfigError: id2label, label2id and num_labels contradict each other, or are malformed.
    """
    path = Path(directory) / CONFIG_FILE
    values = read_json_object(path)
    architectures = values.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(a, str) for a in architectures):
        raise ConfigError(f"{path}: architectures is {architectures!r:.80}; not a list of names")
    names: tuple[str, ...] | None = None
    if values.get("id2label") is not None:
        id2label = values["id2label"]
        if not isinstance(id2label, dict):
            raise ConfigError(f"{path}: id2label is {id2label!r:.80}; not an object")
        ids = [str(i) for i in range(len(id2label))]
        if set(id2label) != set(ids) or not all(isinstance(v, str) for v in id2label.values()):
            raise ConfigError(f"{path}: id2label does not name the ids 0 to {len(ids) - 1} in turn")
        names = tuple(id2label[i] for i in ids)
        label2id = values.get("label2id")
        if label2id is not None and label2id != {name: i for i, name in enumerate(names)}:
            raise ConfigError(f"{path}: label2id is not the inverse of id2label")
        if values.get("num_labels", len(names)) != len(names):
            raise ConfigError(f"{path}: num_labels does not fit the {len(names)} of id2label")
    return HeadDescription(tuple(architectures), names, values.get("problem_type"))


def _config_json(
    config: BertConfig,
    state: Mapping[str, Tensor],
    metadata: ModelMetadata,
    architecture: str,
    problem_type: str | None,
) -> str:
    """The text of config.json in Hugging Face's form."""
    values: dict[str, Any] = {"architectures": [architecture], "model_type": "bert"}
    values |= config.to_dict()
    names = metadata.label_names
    if architecture in _CLASSIFIERS:
        num_labels = len(state["classifier.weight"])
        # transformers writes LABEL_0, LABEL_1, ... for classes without names.
        names = names or tuple(f"LABEL_{i}" for i in range(num_labels))
        if len(names) != num_labels:
            raise WeightsError(
                f"{len(names)} label names do not fit a classifier of {num_labels} outputs"
            )
    if names is not None:
        values["id2label"] = {str(i): name for i, name in enumerate(names)}
        values["label2id"] = {name: i for i, name in enumerate(names)}
    if problem_type is not None:
        values["problem_type"] = problem_type
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _move_into_place(partial: Path, directory: Path) -> None:
    names = sorted(path.name for path in partial.iterdir())
    middle = [name for name in names if name not in (METADATA_FILE, WEIGHTS_FILE)]
    for name in (METADATA_FILE, *middle, WEIGHTS_FILE):
        (partial / name).replace(directory / name)
        # The new hashes must be on the disk before any file that they tell from an old one.
        if name == METADATA_FILE:
            sync(directory)
    sync(directory)


def _shape_advice(key: str) -> str:
    if key.removeprefix(PREFIX).startswith((*_ENCODER, _POOLER)):
        return "; build the model from the configuration in that directory"
    return "; to train another head on these weights, load them with new_head=True"


def _shortened(names: tuple[str, ...] | list[str]) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
