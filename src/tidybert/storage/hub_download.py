"""``tidybert download`` of a hub's model: the only module that opens a connection by itself.

The hub's list of one commit says which files there are, how long, and with which hashes; nothing
else that it sends decides a path.  Each file is fetched from that commit into ``blobs/HASH``, and
gets its name in ``snapshots/COMMIT`` only then; ``refs/REVISION`` comes last.  huggingface_hub
gives the session (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and proxies mean what they mean there)
and finds what lies in the cache, as transformers does.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from tidybert.errors import DiskError, ModelNotFoundError, WeightsError, param
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.hub_files import HubName, cached_model
from tidybert.storage.json_objects import SHA256, decoded, parse_json
from tidybert.storage.limits import HUB_FILES, JSON_BYTES
from tidybert.storage.model_files import CONFIG_FILE, PICKLE_FILE, WEIGHTS_FILE
from tidybert.storage.opening import is_plain_name, open_regular
from tidybert.storage.output_lock import OutputLock, output_lock
from tidybert.storage.own_files import (
    GrowingFile,
    free_bytes,
    make_directory,
    remove_tree,
    rename_synced,
    sync,
    writing,
)

# What a MODEL is read from; folders of modules (1_Pooling/) hold a config and perhaps weights.
_WANTED: Final = re.compile(
    r"(config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|modules|tidybert"
    r"|sentence_[a-z]+_config|config_sentence_transformers)\.json|vocab\.txt"
    r"|[0-9]+_[A-Za-z]+/(config\.json|model\.safetensors)"
)
_WEIGHTS: Final = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?", re.ASCII)
_PICKLES: Final = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?", re.ASCII)
_PART: Final = 1 << 20
_TRIES: Final = 5
_MOST_REDIRECTS: Final = 10
_TRY_AGAIN: Final = (408, 429, 500, 502, 503, 504)

_Sha1 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
_Size = Annotated[int, msgspec.Meta(ge=0)]


class _Large(msgspec.Struct, frozen=True):
    """A file of the large-file store, with its own hash and size."""

    sha256: Annotated[str, msgspec.Meta(pattern=SHA256)]
    size: _Size


class _File(msgspec.Struct, frozen=True):
    """A file of a commit; ``blobId``: git's hash of a small one, of the pointer to a large one."""

    rfilename: str
    size: _Size | None = None
    blobId: _Sha1 | None = None
    lfs: _Large | None = None

    @property
    def num_bytes(self) -> int:
        return (self.lfs.size if self.lfs else self.size) or 0

    @property
    def hash(self) -> str:
        """What the cache names the content by."""
        return (self.lfs.sha256 if self.lfs else self.blobId) or ""

    def is_content_of(self, path: Path) -> bool:
        """Whether a file has the hub's hash: sha256 of large files, git's of the others."""
        if not path.is_file() or path.stat().st_size != self.num_bytes:
            return False
        # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
        head = f"blob {self.num_bytes}\0".encode()
        digest = hashlib.sha256() if self.lfs else hashlib.sha1(head)
        with open_regular(path, error=WeightsError) as opened:
            while part := opened.read(_PART):
                digest.update(part)
        return digest.hexdigest() == self.hash


class _Commit(msgspec.Struct, frozen=True):
    """What the hub says of a revision; ``sha`` is the hub's own name of it."""

    sha: _Sha1
    siblings: list[_File] | None = None
    tags: list[str] | None = None


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
        InUseError: another process fetches this model.
    """
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    revision = name.revision or "main"
    if not is_plain_name(revision, folders=8):
        raise ModelNotFoundError(f"{revision!r} is no revision: a branch, a tag or a commit")
    commit = _commit(name, revision)
    files = _chosen(name, commit.siblings or [], allow_pickle)
    folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name.repo, repo_type="model")
    directory, ref = folder / "snapshots" / commit.sha, folder / "refs" / revision
    config = directory / CONFIG_FILE
    missing = [each for each in files if not each.is_content_of(directory / each.rfilename)]
    if any(each.rfilename == CONFIG_FILE for each in missing):
        JSON_BYTES.check(missing[0].num_bytes, f"{name}: {CONFIG_FILE}")
    else:
        check(config)
    if missing or cached_model(name) != directory:
        with output_lock(folder) as lock:
            _fetch_all(name, commit.sha, missing, lock, check, progress)
            if revision != commit.sha:
                make_directory(ref.parent)
                atomic_write_text(ref, commit.sha)
    if cached_model(name) != directory:
        raise WeightsError(
            f"{name} is whole in {directory}, but huggingface_hub does not find it there; remove "
            f"{folder}, and give the command again"
        )
    licence = next((tag[8:] for tag in commit.tags or () if tag.startswith("license:")), None)
    return HubModel(name, directory, commit.sha, licence, sum(each.num_bytes for each in files))


def _commit(name: HubName, revision: str) -> _Commit:
    """The hub's list of a revision's files."""
    from huggingface_hub.constants import ENDPOINT

    about = bytearray()
    url = f"{ENDPOINT}/api/models/{name.repo}"
    if name.revision is not None:
        url += f"/revision/{quote(revision, safe='')}"
    with _hub_errors(name), _opened(name, f"{url}?blobs=true") as response:
        for part in response.iter_raw():
            about += part
            JSON_BYTES.check(len(about), f"{name}: the list of its files")
    where = f"{name}: the list of its files"
    return decoded(
        parse_json(about.decode(errors="replace"), where, error=WeightsError),
        _Commit,
        where,
        error=WeightsError,
    )


def _chosen(name: HubName, files: list[_File], allow_pickle: bool) -> list[_File]:
    """The files that a MODEL is read from: config.json first, the weights last."""
    by_name = {each.rfilename: each for each in files}
    if CONFIG_FILE not in by_name:
        raise WeightsError(f"{name} has no {CONFIG_FILE}, so it is no BERT in Hugging Face's form")
    weights = [each for each in by_name.values() if _WEIGHTS.fullmatch(each.rfilename)]
    if not weights:
        weights = [each for each in by_name.values() if _PICKLES.fullmatch(each.rfilename)]
        if not weights:
            raise WeightsError(
                f"{name} has neither {WEIGHTS_FILE} nor {PICKLE_FILE}: no weights for PyTorch"
            )
        if not allow_pickle:
            raise WeightsError(
                f"{name} has its weights only as {PICKLE_FILE}, a pickle; {param('allow_pickle')} "
                "fetches it; every command that reads it needs the flag too, until tidybert "
                "convert has written it as safetensors"
            )
    chosen = [each for each in by_name.values() if _WANTED.fullmatch(each.rfilename)] + weights
    HUB_FILES.check(len(chosen), name)
    for each in chosen:
        if not each.hash or (each.lfs is None and each.size is None):
            raise WeightsError(
                f"{name}: the hub states no hash or no size of {each.rfilename}, so it cannot be "
                "checked; fetch it by other means, and name the directory"
            )
    # The weights come last, so a model with weights is whole.
    return sorted(chosen, key=lambda one: (one.rfilename != CONFIG_FILE, one.num_bytes))


def _fetch_all(
    name: HubName,
    commit: str,
    files: list[_File],
    lock: OutputLock,
    check: Callable[[Path], object],
    progress: Progress,
) -> None:
    """Bring files into the cache's folder of a model, which the lock is of."""
    folder = lock.target
    blobs, directory = folder / "blobs", folder / "snapshots" / commit
    needed = sum(each.num_bytes for each in files if not (blobs / each.hash).exists())
    free = free_bytes(folder)
    if free is not None and needed > free:
        raise DiskError(
            f"{name} needs {needed / 1e6:,.0f} MB more in {folder}, and {free / 1e6:,.0f} MB are "
            "free; make room, or set HF_HOME to a folder on another disk"
        )
    make_directory(blobs)
    for each in files:
        progress(each.rfilename, 0, each.num_bytes)
        blob = blobs / each.hash
        for _ in range(2):
            if each.is_content_of(blob):
                break
            part = blob.with_name(f"{blob.name}.incomplete")
            _receive(name, commit, each, part, progress)
            if each.is_content_of(part):
                rename_synced(part, blob)
                break
            remove_tree(part)
        else:
            raise WeightsError(
                f"{name}, {each.rfilename}: its hash is not the one that the hub states, also "
                "after a second download; nothing of it was kept, so try again later with "
                f"tidybert download {name}"
            )
        _link(blob, directory / each.rfilename, lock.temporary(directory / each.rfilename))
        progress(each.rfilename, each.num_bytes, each.num_bytes)
        if each.rfilename == CONFIG_FILE:
            check(directory / CONFIG_FILE)


def _receive(name: HubName, commit: str, file: _File, part: Path, progress: Progress) -> None:
    """Write a file's bytes to a part, from where an earlier call ended, and none past its size."""
    from huggingface_hub import hf_hub_url

    url, total = hf_hub_url(name.repo, file.rfilename, revision=commit), file.num_bytes
    if part.exists() and part.stat().st_size > total:
        remove_tree(part)
    failures = 0
    while not part.exists() or part.stat().st_size < total:
        began = done = part.stat().st_size if part.exists() else 0
        try:
            with _hub_errors(name), _opened(name, url, began) as response, ExitStack() as stack:
                done = began if response.status_code == 206 else 0
                opened = GrowingFile(part, done if part.exists() else None)
                stack.callback(opened.close)
                for data in response.iter_raw():
                    done += len(data)
                    if done > total:
                        remove_tree(part)
                        raise WeightsError(
                            f"{name}: the hub sends more than the {total:,} bytes of "
                            f"{file.rfilename} that it states; nothing of it was kept"
                        )
                    opened.write(data)
                    progress(file.rfilename, done, total)
                # A full disk may show only here, and to close says nothing.
                opened.sync()
            if done < total:
                raise _InterruptedError(_unreachable(name, "its answer ended early"))
        except _InterruptedError:
            failures = 0 if done > began else failures + 1
            if failures > _TRIES:
                raise
            time.sleep(1)


def _link(blob: Path, path: Path, aside: Path) -> None:
    """Let ``path`` name a content, by a link that works where the cache is moved to."""
    make_directory(path.parent)
    with writing(path):
        try:
            aside.symlink_to(os.path.relpath(blob, path.parent))
            aside.replace(path)
        except (NotImplementedError, PermissionError):
            # A system without links has the content itself there, as huggingface_hub does.
            blob.replace(path)
        sync(path.parent)


@contextmanager
def _opened(name: HubName, url: str, start: int = 0) -> Iterator[Any]:
    """The hub's answer, whose body is not read yet; it is sent as it is, from ``start`` on."""
    from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        get_session,
    )

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={start}-"} if start else {}
    client: Any = get_session()
    request = client.build_request("GET", url, headers=headers, timeout=HF_HUB_DOWNLOAD_TIMEOUT)
    for _ in range(_MOST_REDIRECTS):
        # The client itself would read the whole body of a redirect.
        with closing(client.send(request, stream=True, follow_redirects=False)) as response:
            if response.next_request is None:
                _check_answer(name, response)
                yield response
                return
            request = response.next_request
    raise WeightsError(f"{name}: the hub sends from one address to the next without end")


def _check_answer(name: HubName, response: Any) -> None:
    """Raise for an answer that is not the content; of its body nothing is read."""
    status, code = response.status_code, response.headers.get("X-Error-Code")
    if code == "GatedRepo":
        raise ModelNotFoundError(
            f"{name} is gated: accept its terms on the hub's page, and set HF_TOKEN to a token of "
            "that account"
        )
    if code == "RevisionNotFound":
        raise ModelNotFoundError(
            f"{name.repo} has no revision {name.revision!r}; leave it out for the newest one"
        )
    if code == "RepoNotFound" or status == 401:
        raise ModelNotFoundError(
            f"the hub shows no model {name.repo!r}: a typo, or it is private and HF_TOKEN is not "
            "set to a token that may read it"
        )
    if status not in (200, 206):
        kind = _InterruptedError if status in _TRY_AGAIN else WeightsError
        raise kind(f"the hub answered {status} for {name}; try again later")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise WeightsError(f"{name}: the hub, or a proxy before it, packs its answer unasked")


class _InterruptedError(WeightsError):
    """The same request may do better in a moment."""


@contextmanager
def _hub_errors(name: HubName) -> Iterator[None]:
    """Errors of the connection as sentences."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        yield
    except OfflineModeIsEnabled:
        raise WeightsError(
            f"HF_HUB_OFFLINE is set, so {name} cannot be fetched; unset it for this command"
        ) from None
    except Exception as error:
        # The HTTP library of huggingface_hub is not always the same.
        is_http = type(error).__module__.startswith(("http", "h11", "requests", "urllib3"))
        if not is_http and not isinstance(error, OSError):
            raise
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise _InterruptedError(_unreachable(name, said)) from None


def _unreachable(name: HubName, said: str) -> str:
    from huggingface_hub.constants import ENDPOINT

    return (
        f"{ENDPOINT} cannot be reached for {name} ({said:.200}); what is fetched so far stays, and "
        "the same command goes on"
    )
