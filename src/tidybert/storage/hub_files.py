"""Models of a hub: ``tidybert download`` fetches them, and everything else finds them on the disk.

They lie in the cache of huggingface_hub, which transformers and sentence-transformers share:
``hub/models--OWNER--NAME/snapshots/COMMIT``.  HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and
proxies mean what they mean there.  Only ``fetch_model`` opens a connection.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.errors import DiskError, ModelNotFoundError, WeightsError, param
from tidybert.storage.model_files import (
    CONFIG_FILE,
    INDEX_SUFFIX,
    PICKLE_FILE,
    WEIGHTS_FILE,
)
from tidybert.storage.opening import open_regular
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import make_directory, open_own, rename_synced

_NAME: Final = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@(?P<revision>[\w./-]+))?", re.ASCII
)
# What a MODEL is read from; folders of modules (1_Pooling/) hold a config and perhaps weights.
_WANTED: Final = re.compile(
    r"(config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|modules|tidybert"
    r"|sentence_[a-z]+_config|config_sentence_transformers)\.json|vocab\.txt"
    r"|[0-9]+_[A-Za-z]+/(config\.json|model\.safetensors)"
)
_WEIGHTS: Final = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
_PICKLES: Final = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?")
_PART: Final = 1 << 20


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


@dataclass(frozen=True)
class HubModel:
    """A model in the cache: its directory, and what the hub says of it.

    commit: the revision as the hub's own hash.  num_bytes: of the files that were asked for.
    """

    name: HubName
    directory: Path
    commit: str
    licence: str | None
    num_bytes: int


Progress = Callable[[str, int, int], None]
"""Takes a file's name, the bytes that are there, and all bytes."""


def cached_model(name: HubName) -> Path | None:
    """The directory of a model in the cache, with its weights; None where it is not there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name.repo, CONFIG_FILE, revision=name.revision)
    directory = Path(found).parent if isinstance(found, str) else None
    return directory if directory is not None and _has_weights(directory) else None


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


def _has_weights(directory: Path) -> bool:
    names = (
        WEIGHTS_FILE,
        f"{WEIGHTS_FILE}{INDEX_SUFFIX}",
        PICKLE_FILE,
        f"{PICKLE_FILE}{INDEX_SUFFIX}",
    )
    return any((directory / name).exists() for name in names)


def fetch_model(
    name: HubName,
    *,
    check: Callable[[Path], object],
    allow_pickle: bool = False,
    progress: Progress = lambda _file, _done, _total: None,
) -> HubModel:
    """Fetch what a MODEL needs into the cache, and compare each file with the hub's hash.

    Files that are there and intact are not fetched again; one that was cut goes on where it ended.

    Args:
        check: takes config.json, before any weights are fetched; raises for another kind of model.
        allow_pickle: take pytorch_model.bin where the hub has no safetensors.
        progress: see Progress.

    Raises:
        ModelNotFoundError: the hub has no such model or revision, or does not show it.
        WeightsError: it has no weights that are read, the hub cannot be reached, or a file is not
            the one that the hub describes.
        DiskError: the disk is too small.
    """
    from huggingface_hub import HfApi

    with _hub_errors(name):
        about = HfApi().model_info(name.repo, revision=name.revision, files_metadata=True)
    files = _chosen(name, about.siblings or [], allow_pickle)
    config = next(each for each in files if each.rfilename == CONFIG_FILE)
    # By its given revision, so that the cache notes which commit that is.
    path = _fetched(name, config, name.revision, progress)
    check(path)
    total = sum(each.size or 0 for each in files)
    missing = sum(each.size or 0 for each in files if not (path.parent / each.rfilename).exists())
    free = shutil.disk_usage(path.parent).free
    if missing > free:
        raise DiskError(
            f"{name} needs {missing / 1e6:,.0f} MB more in {path.parents[2]}, and "
            f"{free / 1e6:,.0f} MB are free; make room, or set HF_HOME to a folder on another disk"
        )
    # The weights come last, so a model with weights is whole.
    for each in sorted(files, key=lambda one: one.size or 0):
        _fetched(name, each, about.sha, progress)
    licence = next((tag[8:] for tag in about.tags or () if tag.startswith("license:")), None)
    return HubModel(name, path.parent, str(about.sha), licence, total)


def _chosen(name: HubName, files: list[Any], allow_pickle: bool) -> list[Any]:
    """The files that a MODEL is read from."""
    if not any(each.rfilename == CONFIG_FILE for each in files):
        raise WeightsError(f"{name} has no {CONFIG_FILE}, so it is no BERT in Hugging Face's form")
    weights = [each for each in files if _WEIGHTS.fullmatch(each.rfilename)]
    if not weights:
        pickles = [each for each in files if _PICKLES.fullmatch(each.rfilename)]
        if not pickles:
            raise WeightsError(
                f"{name} has neither {WEIGHTS_FILE} nor {PICKLE_FILE}: no weights for PyTorch"
            )
        if not allow_pickle:
            raise WeightsError(
                f"{name} has its weights only as {PICKLE_FILE}, a pickle; {param('allow_pickle')} "
                "fetches it; every command that reads it needs the flag too, until tidybert "
                "convert has written it as safetensors"
            )
        weights = pickles
    return [each for each in files if _WANTED.fullmatch(each.rfilename)] + weights


def _fetched(name: HubName, file: Any, revision: str | None, progress: Progress) -> Path:
    """A file in the cache, as the hub describes it; a damaged one is fetched again, once."""
    from huggingface_hub import hf_hub_download

    total = file.size or 0
    for again in (False, True):
        progress(file.rfilename, 0, total)
        bar = _bar_class(file.rfilename, total, progress)
        with _hub_errors(name):
            if file.lfs is not None:
                _fetch_large(name, file, revision, bar, again=again)
            # It links a file whose content is in the cache.
            path = Path(
                hf_hub_download(
                    name.repo,
                    file.rfilename,
                    revision=revision,
                    force_download=again and file.lfs is None,
                    tqdm_class=bar,
                )
            )
        if _is_described(path, file):
            progress(file.rfilename, total, total)
            return path
    raise WeightsError(
        f"{path}: its hash is not the one that the hub states, also after a second download; do "
        f"not use this file, and try again later with tidybert download {name}"
    )


def _fetch_large(
    name: HubName, file: Any, revision: str | None, bar: type[Any], *, again: bool
) -> None:
    """Bring the content of a large file into the cache, and go on where an earlier call ended.

    huggingface_hub itself begins such a file anew.  ``again``: the content that is there is wrong.
    """
    from huggingface_hub import hf_hub_url
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import http_get, repo_folder_name
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name.repo, repo_type="model")
    content = folder / "blobs" / file.lfs.sha256
    part = content.with_name(f"{content.name}.incomplete")
    if content.exists() and not again:
        return
    make_directory(part.parent)
    with output_lock(part):
        with os.fdopen(open_own(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as opened:
            if again or opened.tell() > file.size:
                opened.truncate(0)
            http_get(
                hf_hub_url(name.repo, file.rfilename, revision=revision),
                opened,
                resume_size=os.fstat(opened.fileno()).st_size,
                headers=build_hf_headers(),
                expected_size=file.size,
                tqdm_class=bar,
            )
        rename_synced(part, content)


def _is_described(path: Path, file: Any) -> bool:
    """Whether the content has the hub's hash: sha256 of large files, git's of the others."""
    size = path.stat().st_size
    if file.lfs is not None:
        digest, expected = hashlib.sha256(), file.lfs.sha256
    elif file.blob_id is not None:
        # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
        digest, expected = hashlib.sha1(f"blob {size}\0".encode()), file.blob_id
    else:
        return True
    with open_regular(path, error=WeightsError) as opened:
        while part := opened.read(_PART):
            digest.update(part)
    return bool(digest.hexdigest() == expected)


def _bar_class(file: str, total: int, progress: Progress) -> type[Any]:
    """What huggingface_hub takes for its progress bar; it hands the bytes on and draws nothing."""
    from huggingface_hub.utils.tqdm import tqdm

    bar: Any = tqdm

    class Bar(bar):  # type: ignore[misc]
        def __init__(self, *_: Any, **given: Any) -> None:
            self.done = given.get("initial") or 0
            super().__init__(disable=True)

        def update(self, n: float | None = 1) -> None:
            self.done += n or 0
            progress(file, min(int(self.done), total), total)

    return Bar


@contextmanager
def _hub_errors(name: HubName) -> Iterator[None]:
    """Errors of the hub as sentences."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise ModelNotFoundError(
            f"{name} is gated: accept its terms on the hub's page, and set HF_TOKEN to a token of "
            "that account"
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelNotFoundError(
            f"{name.repo} has no revision {name.revision!r}; leave it out for the newest one"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelNotFoundError(
            f"the hub shows no model {name.repo!r}: a typo, or it is private and HF_TOKEN is not "
            "set to a token that may read it"
        ) from None
    except errors.OfflineModeIsEnabled:
        raise WeightsError(
            f"HF_HUB_OFFLINE is set, so {name} cannot be fetched; unset it for this command"
        ) from None
    except errors.LocalEntryNotFoundError as error:
        raise WeightsError(_unreachable(name, error)) from None
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", "an error")
        raise WeightsError(f"the hub answered {status} for {name}; try again later") from None
    except errors.HFValidationError:
        raise ModelNotFoundError(f"{name.repo!r} is no name on a hub: OWNER/NAME") from None
    except OSError as error:
        if error.errno in (28, 122):
            raise DiskError(
                f"the disk is full while {name} is fetched: {error}; make room, and "
                f"the same command goes on"
            ) from None
        raise WeightsError(_unreachable(name, error)) from None
    except Exception as error:
        # Its own client raises what its HTTP library raises, and that library changes.
        if not type(error).__module__.startswith(("http", "requests", "urllib3")):
            raise
        raise WeightsError(_unreachable(name, error)) from None


def _unreachable(name: HubName, error: Exception) -> str:
    from huggingface_hub.constants import ENDPOINT

    said = next(iter(str(error).splitlines()), type(error).__name__)
    return (
        f"{ENDPOINT} cannot be reached for {name} ({said:.200}); what is fetched so far stays, and "
        "the same command goes on"
    )
