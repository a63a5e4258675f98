"""A corpus as token ids on disk: its files, and a reader that opens it in milliseconds.

A corpus directory holds the vocabulary, corpus.json and, for each part (train, held-out), shards of
three files of little-endian integers without any header:

    train-00000.tokens      ids (T,), uint16 where the vocabulary has at most 65,536 tokens
    train-00000.sentences   uint32 (S + 1,): where each sentence's tokens begin, and the end
    train-00000.documents   uint32 (D + 1,): where each document's sentences begin, and the end

No document crosses two shards, and no sentence or document is empty.  corpus.json has each file's
counts and sha256, so opening reads nothing else; the files are mapped into memory.  Documents,
sentences and tokens are numbered across the shards of a part.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, cast, get_args

import numpy as np
import numpy.typing as npt

from tidybert.atomic_files import file_sha256
from tidybert.errors import DataError
from tidybert.model_files import VOCABULARY_FILE
from tidybert.opening import os_reason
from tidybert.tokenization import BertTokenizer

FORMAT: Final = "tidybert-corpus"
FORMAT_VERSION: Final = 1
MANIFEST_FILE: Final = "corpus.json"

Part = Literal["train", "held-out"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """One shard as corpus.json describes it; ``sha256`` is by file: tokens, sentences, …"""

    name: str
    num_documents: int
    num_sentences: int
    num_tokens: int
    sha256: dict[str, str]

    def sizes(self, token_bytes: int) -> dict[str, int]:
        """The bytes of each file, by its suffix."""
        return {
            "tokens": self.num_tokens * token_bytes,
            "sentences": (self.num_sentences + 1) * 4,
            "documents": (self.num_documents + 1) * 4,
        }


@dataclass(frozen=True)
class Manifest:
    """corpus.json.

    settings: the arguments of the build; "vocabulary" has everything that decides the ids, with the
        sha256 of vocab.txt and the ids' dtype, "<u2" or "<u4".
    sources: the files, with their numbers of documents read and of those in each part.
    counts: documents and lines by their fate.
    """

    settings: dict[str, Any]
    sources: list[dict[str, Any]]
    counts: dict[str, int]
    parts: dict[str, list[Shard]]

    @property
    def vocabulary(self) -> dict[str, Any]:
        """sha256, vocab_size, dtype and do_lower_case, among others."""
        return cast(dict[str, Any], self.settings["vocabulary"])

    def contents_sha256(self) -> str:
        """A hash of all that training reads: the vocabulary, and each shard by its own hashes."""
        parts = {part: [asdict(shard) for shard in shards] for part, shards in self.parts.items()}
        words = json.dumps([self.vocabulary, parts], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Raises KeyError or TypeError for content of another form."""
        parts: dict[str, list[Shard]] = {
            part: [Shard(**shard) for shard in content["parts"][part]] for part in PARTS
        }
        return cls(content["settings"], content["sources"], content["counts"], parts)


def is_corpus(directory: str | Path) -> bool:
    """Whether a directory holds a finished corpus."""
    return (Path(directory) / MANIFEST_FILE).is_file()


def read_manifest(directory: str | Path) -> Manifest:
    """corpus.json; raises DataError where it is missing, or of a version that cannot be read."""
    path = Path(directory) / MANIFEST_FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{directory}: not a corpus: it has no {MANIFEST_FILE}; make one with\n"
            "    tidybert build-corpus FILES --vocab DIR --out DIR\n"
            "or run that again, if it was stopped before its end"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error
    except ValueError as error:
        raise DataError(f"{path}: damaged: not JSON ({error}); copy it again") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{path}: not written by tidybert build-corpus (no format {FORMAT!r})")
    if content.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{path}: format version {content.get('format_version')}, and this tidybert reads "
            f"{FORMAT_VERSION}; build the corpus again"
        )
    try:
        return Manifest.from_dict(content)
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); copy it again") from error


class TokenCorpus:
    """One part of a corpus directory, mapped into memory.

    Raises DataError for a directory without a corpus, and for a file that is missing or of another
    size than corpus.json says.  ``verify`` checks their contents.
    """

    def __init__(self, directory: str | Path, part: Part = "train") -> None:
        self.directory = Path(directory)
        self.part = part
        self.manifest = read_manifest(directory)
        self.dtype = np.dtype(self.manifest.vocabulary["dtype"])
        self.shards = self.manifest.parts[part]
        for shard in self.shards:
            for suffix, size in shard.sizes(self.dtype.itemsize).items():
                _check_size(self._path(shard, suffix), size)
        self.first_document = _running([shard.num_documents for shard in self.shards])
        self.first_sentence = _running([shard.num_sentences for shard in self.shards])
        self.first_token = _running([shard.num_tokens for shard in self.shards])
        self.num_documents = int(self.first_document[-1])
        self.num_sentences = int(self.first_sentence[-1])
        self.num_tokens = int(self.first_token[-1])
        self._mapped: dict[tuple[int, str], npt.NDArray[Any]] = {}

    def tokens(self, starts: Array, ends: Array) -> list[npt.NDArray[Any]]:
        """The ids of the tokens from each start to its end, which lie in one document: views."""
        shards = self.first_token.searchsorted(starts, "right") - 1
        firsts = self.first_token[shards]
        places = zip(
            shards.tolist(), (starts - firsts).tolist(), (ends - firsts).tolist(), strict=True
        )
        return [self._array(shard, "tokens")[start:end] for shard, start, end in places]

    def sentence_bounds(self, documents: Array) -> tuple[Array, Array]:
        """The bounds (N,) of (D,) documents, laid end to end, and the number of each one (D,).

        A document of n sentences has n + 1 bounds, the first token of each and the document's end.
        """
        shards = self.first_document.searchsorted(documents, "right") - 1
        first, counts = np.empty_like(documents), np.empty_like(documents)
        for shard in np.unique(shards):
            of_shard = shards == shard
            places = documents[of_shard] - self.first_document[shard]
            sentences = self._array(int(shard), "documents")
            first[of_shard] = sentences[places]
            counts[of_shard] = sentences[places + 1] + np.int64(1) - sentences[places]
        counts = counts.astype(np.int64)
        rows = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows += np.repeat(first, counts)
        bounds = np.empty(len(rows), np.int64)
        shard_of_row = np.repeat(shards, counts)
        for shard in np.unique(shards):
            of_shard = shard_of_row == shard
            bounds[of_shard] = self._array(int(shard), "sentences")[rows[of_shard]]
        return bounds + self.first_token[shard_of_row], counts

    def source_of(self, document: int) -> str:
        """The file that a document was read from."""
        after = np.cumsum([source[self.part] for source in self.manifest.sources])
        return str(self.manifest.sources[int(np.searchsorted(after, document, "right"))]["file"])

    def tokenizer(self) -> BertTokenizer:
        """The tokenizer that made the ids; raises DataError if its vocabulary was exchanged."""
        _check_sha256(self.directory / VOCABULARY_FILE, self.manifest.vocabulary["sha256"])
        return BertTokenizer.from_pretrained(self.directory)

    def verify(self) -> None:
        """Read all of the part and compare with the sha256 of each file; raises DataError."""
        _check_sha256(self.directory / VOCABULARY_FILE, self.manifest.vocabulary["sha256"])
        for shard in self.shards:
            for suffix, digest in shard.sha256.items():
                _check_sha256(self._path(shard, suffix), digest)

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the mapped files by itself.
        return {"directory": self.directory, "part": self.part}

    def __setstate__(self, state: dict[str, Any]) -> None:
        TokenCorpus.__init__(self, **state)

    def _path(self, shard: Shard, suffix: str) -> Path:
        return self.directory / f"{shard.name}.{suffix}"

    def _array(self, shard: int, suffix: str) -> npt.NDArray[Any]:
        found = self._mapped.get((shard, suffix))
        if found is None:
            dtype = self.dtype if suffix == "tokens" else np.dtype("<u4")
            path = self._path(self.shards[shard], suffix)
            # Slicing a plain array is several times as fast as slicing a memmap.
            found = np.asarray(np.memmap(path, dtype, "r"))
            self._mapped[shard, suffix] = found
        return found


def _running(counts: list[int]) -> Array:
    return np.cumsum([0, *counts], dtype=np.int64)


def _check_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise DataError(
            f"{path}: {os_reason(error)}, and {MANIFEST_FILE} names it; copy the corpus again"
        ) from error
    if found != size:
        raise DataError(
            f"{path}: {found:,} bytes where {MANIFEST_FILE} says {size:,}; it is cut short or from "
            "another corpus: copy the corpus again"
        )


def _check_sha256(path: Path, digest: str) -> None:
    try:
        found = file_sha256(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error
    if found != digest:
        raise DataError(
            f"{path}: its sha256 is {found[:12]}…, and {MANIFEST_FILE} says {digest[:12]}…; it is "
            "damaged or was exchanged: copy the corpus again"
        )
