"""Where a model comes from: its start, its data, its seed and its hash, as its RUN says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.errors import TidyBertError
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE


@dataclass(frozen=True)
class ModelOrigin:
    """Each is None where the RUN does not say it.

    Args:
        start: the MODEL that training began with.
        train: the file that it was trained on.
        seed: of the training.
        sha256: of configuration, vocabulary and weights together, as tidybert.json has it.
    """

    start: str | None = None
    train: str | None = None
    seed: int | None = None
    sha256: str | None = None


def read_model_origin(run: str | Path) -> ModelOrigin:
    """The origin of the model in a RUN; files that are missing or damaged say nothing."""
    try:
        arguments = read_json_object(Path(run) / ARGUMENTS_FILE)
    except TidyBertError:
        arguments = {}
    try:
        metadata = ModelMetadata.read(run)
    except TidyBertError:
        metadata = None
    return ModelOrigin(
        start=_of_kind(arguments.get("model"), str),
        train=_of_kind(arguments.get("train"), str),
        seed=_of_kind(arguments.get("seed"), int),
        sha256=metadata.sha256 if metadata else None,
    )


def _of_kind(value: Any, kind: type) -> Any:
    return value if type(value) is kind else None
