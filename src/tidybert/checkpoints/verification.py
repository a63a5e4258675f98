"""Whether the files of a MODEL are those that were saved or published."""

from dataclasses import dataclass
from pathlib import Path

from tidybert.catalog import PRETRAINED
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import WeightsError
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.model_files import METADATA_FILE, WEIGHTS_FILE


@dataclass(frozen=True)
class Verified:
    """What the files of a MODEL were compared with, and their hashes.

    Args:
        against: tidybert.json, the published hash of the package, or None where neither is.
        sha256: of each file, by name, in hexadecimal.
    """

    against: str | None
    sha256: dict[str, str]


def verify(model: str | Path) -> Verified:
    """Compare the weights, the configuration and the vocabulary of a MODEL with saved hashes.

    Raises what ``find_model`` raises, and WeightsError, which names the file, where one was
    swapped or edited, is missing, or is not the published one.
    """
    directory = ModelDirectory.open(model)
    directory.verify()
    if directory.metadata is not None:
        return Verified(METADATA_FILE, dict(directory.metadata.files))
    found = {
        path.name: file_sha256(path) for path in sorted(directory.path.iterdir()) if path.is_file()
    }
    package = PRETRAINED.get(str(model))
    if package is None:
        return Verified(None, found)
    if found[WEIGHTS_FILE] != package.sha256:
        raise WeightsError(
            f"{directory.path / WEIGHTS_FILE}: not the published weights of {package.name}; "
            f"install them again with tidybert download {package.name}"
        )
    return Verified(f"the published hash of {WEIGHTS_FILE}", found)
