"""Models of a hub in the cache, found without a connection.

They lie in the cache of huggingface_hub, which transformers and sentence-transformers share:
``hub/models--OWNER--NAME/snapshots/COMMIT``.  HF_HOME means what it means there.
``hub_download`` puts them there.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidybert.storage.model_files import (
    CONFIG_FILE,
    INDEX_SUFFIX,
    PICKLE_FILE,
    WEIGHTS_FILE,
)

_NAME: Final = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@(?P<revision>[\w./-]+))?", re.ASCII
)


@dataclass(frozen=True)
class HubName:
    """A model's name on the hub: OWNER/NAME, or an old name without owner, and a revision."""

    repo: str
    revision: str | None = None

    @classmethod
    def parsed(cls, name: str) -> "HubName | None":
        """The parts of OWNER/NAME[@REVISION]; None for what cannot be such a name."""
        found = _NAME.fullmatch(name)
        return None if found is None else cls(found["repo"], found["revision"])

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def cached_model(name: HubName) -> Path | None:
    """The directory of a model in the cache, with its weights; None where it is not there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name.repo, CONFIG_FILE, revision=name.revision)
    directory = Path(found).parent if isinstance(found, str) else None
    whole = (WEIGHTS_FILE, PICKLE_FILE)
    files = (*whole, *(f"{each}{INDEX_SUFFIX}" for each in whole))
    has_weights = directory is not None and any((directory / each).exists() for each in files)
    return directory if has_weights else None


def cached_names() -> list[HubName]:
    """The models of the cache that have weights, by name; each with its main revision."""
    from huggingface_hub.constants import HF_HUB_CACHE

    found = []
    for path in sorted(Path(HF_HUB_CACHE).glob("models--*")):
        name = HubName("/".join(path.name.split("--")[1:]))
        if HubName.parsed(name.repo) and cached_model(name):
            found.append(name)
    return found


def commit_of(directory: Path) -> str | None:
    """The hub's commit of a directory in the cache; None for any other directory."""
    from huggingface_hub.constants import HF_HUB_CACHE

    path = Path(directory).absolute()
    is_cached = path.parent.name == "snapshots" and path.is_relative_to(Path(HF_HUB_CACHE))
    return path.name if is_cached else None
