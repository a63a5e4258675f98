"""What a run was made from, as arguments.json records it under the key "record"."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidybert.catalog import find_model, hub_name
from tidybert.checkpoints.unfinished import read_arguments
from tidybert.errors import DataError, TidyBertError
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.hub_files import commit_of
from tidybert.storage.model_files import ARGUMENTS_FILE, RECORD, WEIGHTS_FILE
from tidybert.system.cores import machine, versions
from tidybert.training.training_arguments import Precision

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Provenance:
    """Where a run's examples came from: the ``file_identity`` of each part, and how they were read.

    name: the RUN's own, where it is not its directory's.  label_values: labels that are not texts.
    read: of each part, how many rows were read, left out and moved, and what else was found.
    """

    name: str | None = None
    files: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, Any] | None = None
    label_values: Mapping[str, Any] = field(default_factory=dict)
    read: Mapping[str, Any] = field(default_factory=dict)


def file_identity(path: str | Path) -> dict[str, Any]:
    """A file's name as given, and its size in bytes and sha256; a stream has a name alone."""
    found: dict[str, Any] = {"file": str(path)}
    if Path(path).is_file():
        found |= {"bytes": Path(path).stat().st_size, "sha256": file_sha256(path)}
    return found


def environment(device: "torch.device", model: object) -> dict[str, Any]:
    """Versions, processor and threads, on which bits depend; of a hub's model commit and sha256."""
    import torch

    from tidybert.modeling.kernels.linear import products

    where = machine()
    found = {
        "versions": versions("tidybert", "torch", "numpy"),
        "processor": where["cpu"],
        "cores": where["cores"],
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cpu":
        found["products"] = products()
    if device.type == "cuda":
        found["device_name"] = torch.cuda.get_device_name(device)
    if isinstance(model, str) and hub_name(model) and not Path(model).exists():
        directory = find_model(model)
        if commit := commit_of(directory):
            weights = directory / WEIGHTS_FILE
            found["revision"] = commit
            found["weights_sha256"] = file_sha256(weights) if weights.exists() else None
    return found


def trained_in(arguments: Mapping[str, Any]) -> Precision | None:
    """float32 or bfloat16: what a run computed in, by its arguments.json; None where that is not
    known.
    """
    record = arguments.get(RECORD)
    known: dict[str, Any] = record if isinstance(record, dict) else {}
    given = known.get("precision", arguments.get("precision"))
    if given == "auto":
        # Earlier versions did so.
        given = "bfloat16" if str(known.get("device")).startswith("cuda") else "float32"
    found: Precision | None = given if given in ("float32", "bfloat16") else None
    return found


def measured_text(run: Path) -> str:
    """What the loss of a pre-training RUN was measured on, in words."""
    _, record = read_arguments(run / ARGUMENTS_FILE)
    return "training text" if record.get("measured_on") == "train" else "held-out text"


def changes_of_run(run: Path) -> list[tuple[int, str]]:
    """The steps after which a RUN's arguments changed, and how, in words."""
    path = run / ARGUMENTS_FILE
    changes = read_arguments(path)[1].get("changed_on_the_way")
    found = []
    for each in changes if isinstance(changes, list) else ():
        try:
            named = {name: values for name, values in each.items() if name != "step"}
            words = ", ".join(
                f"{name} {values[0]} → {values[1]}" if name != "corpus" else "another corpus"
                for name, values in named.items()
            )
            found.append((int(each["step"]), words))
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError):
            raise DataError(
                f"{path}: changed_on_the_way has {each!r:.80}: expected a step, and each argument "
                "with its two values"
            ) from None
    return found


def trained_on(run: Path) -> str | None:
    """The data that a RUN of fine-tuning records, in words; None where it records none."""
    try:
        _, record = read_arguments(run / ARGUMENTS_FILE)
    except TidyBertError:
        return None
    train = _files(record).get("train", {})
    if "file" not in train:
        return None
    count = record.get("num_train")
    return f"{train['file']}, {count:,} examples" if isinstance(count, int) else str(train["file"])


def recorded_files(arguments: Path) -> dict[str, Any]:
    """The ``files`` that an arguments.json records; empty where it has none."""
    return _files(read_arguments(arguments)[1])


def _files(record: Mapping[str, Any]) -> dict[str, Any]:
    files = record.get("files")
    found = files if isinstance(files, dict) else {}
    return {part: each for part, each in found.items() if isinstance(each, dict)}
