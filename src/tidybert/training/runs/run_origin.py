"""What a run was made from, as arguments.json records it under the key "record"."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidybert.catalog import find_model, hub_name
from tidybert.errors import ConfigError, TidyBertError
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.hub_files import commit_of
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE, RECORD, WEIGHTS_FILE
from tidybert.storage.opening import present
from tidybert.system.cores import machine, versions

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RunOrigin:
    """Where a run's examples came from.

    name: the RUN's own name, where it is not its directory's.
    files: the ``file_identity`` of each part of the data ("train", "dev").
    reading: how they were read, as in tidybert.json.
    label_values: by name, labels that a program gave and that are not texts.
    """

    name: str | None = None
    files: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, Any] | None = None
    label_values: Mapping[str, Any] = field(default_factory=dict)


def file_identity(path: str | Path) -> dict[str, Any]:
    """A file's name as given, and its size in bytes and sha256; a stream has a name alone."""
    found: dict[str, Any] = {"file": str(path)}
    if Path(path).is_file():
        found |= {"bytes": Path(path).stat().st_size, "sha256": file_sha256(path)}
    return found


def environment(device: "torch.device", model: object) -> dict[str, Any]:
    """Versions, processor and threads, on which the bits of the weights depend.

    Of a hub's model also the revision, as the hub's commit, and the weights' sha256.
    """
    import torch

    where = machine()
    found = {
        "versions": versions("tidybert", "torch", "numpy"),
        "processor": where["cpu"],
        "cores": where["cores"],
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        found["device_name"] = torch.cuda.get_device_name(device)
    if isinstance(model, str) and hub_name(model) and not Path(model).exists():
        directory = find_model(model)
        if commit := commit_of(directory):
            weights = directory / WEIGHTS_FILE
            found["revision"] = commit
            found["weights_sha256"] = file_sha256(weights) if weights.exists() else None
    return found


def measured_text(run: Path) -> str:
    """What the loss of a pre-training RUN was measured on, in words."""
    arguments = run / ARGUMENTS_FILE
    record = read_json_object(arguments).get(RECORD) if arguments.exists() else None
    is_train = isinstance(record, dict) and record.get("measured_on") == "train"
    return "training text" if is_train else "held-out text"


def changes_of_run(run: Path) -> list[tuple[int, str]]:
    """The steps after which a RUN's arguments changed, and how, in words."""
    arguments = run / ARGUMENTS_FILE
    record = read_json_object(arguments).get(RECORD) if arguments.exists() else None
    changes = record.get("changed_on_the_way") if isinstance(record, dict) else None
    found = []
    for each in changes if isinstance(changes, list) else ():
        named = {name: values for name, values in each.items() if name != "step"}
        words = ", ".join(
            f"{name} {values[0]} → {values[1]}" if name != "corpus" else "another corpus"
            for name, values in named.items()
        )
        found.append((int(each["step"]), words))
    return found


def trained_on(run: Path) -> str | None:
    """The data that a RUN of fine-tuning records, in words; None where it records none."""
    try:
        found = read_json_object(run / ARGUMENTS_FILE).get(RECORD)
    except TidyBertError:
        return None
    record = found if isinstance(found, dict) else {}
    files = record.get("files")
    train = files.get("train") if isinstance(files, dict) else None
    if not isinstance(train, dict) or "file" not in train:
        return None
    count = record.get("num_train")
    return f"{train['file']}, {count:,} examples" if isinstance(count, int) else str(train["file"])


def recorded_files(arguments: Path) -> dict[str, Any]:
    """The ``files`` that an arguments.json records; empty where it has none."""
    if not present(arguments, error=ConfigError):
        return {}
    record = read_json_object(arguments).get(RECORD)
    files = record.get("files") if isinstance(record, dict) else None
    return {
        part: found
        for part, found in (files if isinstance(files, dict) else {}).items()
        if isinstance(found, dict)
    }
