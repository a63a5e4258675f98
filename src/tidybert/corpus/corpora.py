"""Corpora on other machines: their shards are copied here once, into a cache of bounded size.

Training reads any part of a corpus at any time, so all of it must be here.  The cache keeps the
corpora used last; those used longest ago go first.  A copy that was stopped goes on file by file.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.corpus.token_shards import (
    MANIFEST_FILE,
    PARTS,
    HashedFile,
    TokenCorpus,
    check_sha256,
    differing,
    is_corpus,
    read_manifest,
)
from tidybert.errors import DataError, UsageError, param
from tidybert.storage.model_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
)
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import (
    GrowingFile,
    bytes_below,
    make_directory,
    move_files,
    remove_tree,
    require_room,
)
from tidybert.storage.remote_files import fetch
from tidybert.system.reporter import Reporter

_GB: Final = 1e9
# corpus.json in its place says that the copy is complete.
_INCOMPLETE: Final = "incomplete"


def cache_folder() -> Path:
    """Where copies of corpora are: ``$XDG_CACHE_HOME/tidybert/corpora``, else under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidybert" / "corpora"


def copied_corpus(url: str, cache_gb: float, reporter: Reporter) -> Path:
    """The directory of a corpus's copy on this machine, which is made if it is not there."""
    url = url.rstrip("/")
    folder = cache_folder() / hashlib.sha256(url.encode()).hexdigest()[:16]
    directory = folder / url.rpartition("/")[2]
    with output_lock(directory):
        described = directory / _INCOMPLETE / MANIFEST_FILE
        make_directory(described.parent)
        _copy(f"{url}/{MANIFEST_FILE}", described)
        manifest = read_manifest(described.parent)
        if not (is_corpus(directory) and read_manifest(directory) == manifest):
            remove_tree(directory / MANIFEST_FILE)
            files = [file for part in PARTS for file in manifest.files(directory, part)]
            total = sum(file.num_bytes for file in files)
            _make_room(url, folder, total, cache_gb)
            reporter.tell(f"copying {url} to {directory}, {total / _GB:,.1f} GB")
            is_wordpiece = "do_lower_case" in manifest.vocabulary
            vocabulary = VOCABULARY_FILE if is_wordpiece else TOKENIZER_FILE
            for name in (vocabulary, TOKENIZER_CONFIG_FILE):
                _copy(f"{url}/{name}", directory / name)
            for file in files:
                if not (file.path.is_file() and file.path.stat().st_size == file.num_bytes):
                    _copy(f"{url}/{file.path.name}", file.path)
            for file in files:
                try:
                    check_sha256(file.path, file.sha256)
                except DataError:
                    remove_tree(file.path)
                    raise
            move_files(described.parent, directory, last=MANIFEST_FILE)
        remove_tree(described.parent)
        # The time of use decides which copy goes first.
        os.utime(folder)
    return directory


def _make_room(url: str, folder: Path, num_bytes: int, cache_gb: float) -> None:
    """Remove the copies used longest ago until a corpus fits the cache and the disk."""
    if num_bytes > cache_gb * _GB:
        raise UsageError(
            f"{url} has {num_bytes / _GB:,.1f} GB, and the cache in {cache_folder()} may have "
            f"{cache_gb:g}; give {param('cache_gb', -(-num_bytes // 10**9))}"
        )
    others = sorted(
        (each for each in cache_folder().iterdir() if each.is_dir() and each != folder),
        key=lambda each: each.stat().st_mtime,
    )
    sizes = {each: bytes_below(each) for each in others}
    while others and num_bytes + sum(sizes[each] for each in others) > cache_gb * _GB:
        oldest = others.pop(0)
        # Another process may be copying or reading it; what is mapped stays readable.
        with output_lock(oldest):
            remove_tree(oldest)
    require_room(folder, num_bytes, "the copy of the corpus")


def _copy(url: str, target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    remove_tree(part)
    file = GrowingFile(part, shown=target)
    try:
        fetch(url, file.write)
        file.become(target)
    except DataError as error:
        if target.name == MANIFEST_FILE:
            raise DataError(
                f"{error.message}; a corpus has it once build-corpus is done"
            ) from error
        raise
    finally:
        file.close()
        remove_tree(part)


# Several corpora as one: their documents, sentences and tokens are numbered one after another.


class JoinedCorpora(TokenCorpus):
    """The same part of several corpora, which must have one vocabulary and casing."""

    def __init__(self, corpora: Sequence[TokenCorpus]) -> None:
        first = corpora[0]
        mine = first.manifest.vocabulary
        for other in corpora[1:]:
            theirs = other.manifest.vocabulary
            if mine["sha256"] != theirs["sha256"]:
                raise UsageError(
                    f"{first.directory} and {other.directory} have different vocabularies; build "
                    f"both with the same {param('vocab')}"
                )
            if names := differing(mine, theirs):
                shown = ", ".join(f"{name} {mine[name]} and {theirs[name]}" for name in names)
                raise UsageError(
                    f"{first.directory} and {other.directory} were made with other tokenizers "
                    f"({shown}); build both with the same {param('vocab')}"
                )
        self._corpora = list(corpora)
        self.directory, self.part = first.directory, first.part
        self.manifest, self.dtype = first.manifest, first.dtype
        self.shards = [shard for each in corpora for shard in each.shards]
        self._owners = [(each, place) for each in corpora for place in range(len(each.shards))]
        self._number()

    @property
    def corpora(self) -> list[TokenCorpus]:
        return self._corpora

    def source_of(self, document: int) -> str:
        for each in self._corpora:
            if document < each.num_documents:
                return each.source_of(document)
            document -= each.num_documents
        raise IndexError(document)

    def contents_sha256(self) -> str:
        words = "".join(each.contents_sha256() for each in self._corpora)
        return hashlib.sha256(words.encode()).hexdigest()

    def hashed_files(self) -> list[HashedFile]:
        return [file for each in self._corpora for file in each.hashed_files()]

    def verify(self) -> None:
        for each in self._corpora:
            each.verify()

    def __getstate__(self) -> dict[str, Any]:
        return {"corpora": self._corpora}

    def __setstate__(self, state: dict[str, Any]) -> None:
        JoinedCorpora.__init__(self, **state)

    def _array(self, shard: int, suffix: str) -> npt.NDArray[Any]:
        corpus, place = self._owners[shard]
        return corpus._array(place, suffix)


def joined(corpora: Sequence[TokenCorpus]) -> TokenCorpus:
    return corpora[0] if len(corpora) == 1 else JoinedCorpora(corpora)


def first_documents(corpus: TokenCorpus) -> list[int]:
    """(K + 1,): the first document of each of the joined corpora, and the end."""
    return [0, *np.cumsum([each.num_documents for each in corpus.corpora]).tolist()]
