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

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypedDict, get_args

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tidybert.errors import DataError
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.journal import Journal
from tidybert.storage.json_objects import SHA256, decoded, json_checksum
from tidybert.storage.limits import MANIFEST_BYTES
from tidybert.storage.model_files import TOKENIZER_CONFIG_FILE, VOCABULARY_FILE
from tidybert.storage.opening import open_regular, os_reason, present
from tidybert.storage.own_files import GrowingFile, remove_tree
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import LibraryTokenizer

# corpus.json: what a corpus was built from and how, and whether its files are as it says.

FORMAT: Final = "tidybert-corpus"
FORMAT_VERSION: Final = 1
MANIFEST_FILE: Final = "corpus.json"
SUFFIXES: Final = ("tokens", "sentences", "documents")
# Hashing works outside Python's lock.  Two threads keep a disk busy while one of them computes.
HASHING_THREADS: Final = 2
# Bounds of sentences and documents have 32 bits.
_MOST: Final = 2**32 - 1

# The key of a hash of tokenizer.json, in place of WordPiece's settings.
_LIBRARY: Final = "tokenizer"

Part = Literal["train", "held-out"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)


def described(tokenizer: BertTokenizer) -> dict[str, Any]:
    """Everything that decides the ids of a text, and their dtype."""
    found = {
        "sha256": tokenizer.vocabulary.sha256,
        "vocab_size": tokenizer.vocab_size,
        "dtype": _dtype(tokenizer.vocab_size),
    }
    if isinstance(tokenizer, LibraryTokenizer):
        return {**found, _LIBRARY: json_checksum({"tokenizer": tokenizer.identity()})}
    added = [dataclasses.asdict(each) for each in tokenizer.added]
    return {
        **({"added_tokens": added} if added else {}),
        **found,
        "do_lower_case": tokenizer.do_lower_case,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.tokenize_chinese_chars,
    }


def differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The names of what makes two tokenizers unlike; accents that follow the casing are named."""
    alike = [
        {**each, "strip_accents": each.get("do_lower_case")}
        if each.get("strip_accents") is None
        else each
        for each in (mine, theirs)
    ]
    unlike = [name for name in mine if name in theirs and mine[name] != theirs[name]]
    return [name for name in unlike if alike[0][name] != alike[1][name]]


def _dtype(vocab_size: int) -> str:
    return "<u2" if vocab_size <= 2**16 else "<u4"


_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One shard as corpus.json describes it; ``sha256`` is by file: tokens, sentences, …"""

    name: str
    num_documents: _Count
    num_sentences: _Count
    num_tokens: _Count
    sha256: dict[str, Annotated[str, msgspec.Meta(pattern=SHA256)]]

    def sizes(self, token_bytes: int) -> dict[str, int]:
        """The bytes of each file, by its suffix."""
        return {
            "tokens": self.num_tokens * token_bytes,
            "sentences": (self.num_sentences + 1) * 4,
            "documents": (self.num_documents + 1) * 4,
        }


class BuildSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the bytes of a corpus depend on: the arguments of its build, files by their sha256."""

    files: list[tuple[str, int, str]] = []
    vocabulary: dict[str, Any]
    column: str = ""
    encoding: str = ""
    held_out: int | float = 0
    max_shard_tokens: int = 0
    near_duplicates: int | float | None = None
    exclude: str | None = None


class _Ids(msgspec.Struct):
    """What ``described`` says of a vocabulary, as far as a reader of ids depends on it."""

    vocab_size: Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
    sha256: Annotated[str, msgspec.Meta(pattern=SHA256)]
    dtype: str


CountedFile = TypedDict(
    "CountedFile",
    {"file": str, "bytes": int, "documents": _Count, "train": _Count, "held-out": _Count},
)
"""A file with its documents read, and those in each part."""


class Manifest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """corpus.json; raises DataError for values that contradict each other."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    settings: BuildSettings
    sources: list[CountedFile]
    counts: dict[str, int]
    parts: dict[str, list[Shard]]

    def __post_init__(self) -> None:
        ids = decoded(self.vocabulary, _Ids, "settings, vocabulary", error=DataError)
        if ids.dtype != _dtype(ids.vocab_size):
            raise DataError(f"dtype {ids.dtype!r:.20} does not fit the vocabulary")
        for part in PARTS:
            if part not in self.parts:
                raise DataError(f"parts: missing key {part!r}")
            for number, shard in enumerate(self.parts[part]):
                counts = (shard.num_documents, shard.num_sentences, shard.num_tokens)
                is_named = shard.name == f"{part}-{number:05}"
                if not is_named or shard.sha256.keys() != {*SUFFIXES} or not all(counts):
                    raise DataError(f"parts, {part}, item {number + 1}: it is no finished shard")
            num_documents = sum(shard.num_documents for shard in self.parts[part])
            if sum(source[part] for source in self.sources) != num_documents:
                raise DataError(f"sources and shards of {part} have other numbers of documents")

    @property
    def vocabulary(self) -> dict[str, Any]:
        """sha256, vocab_size, dtype and do_lower_case, among others."""
        return self.settings.vocabulary

    def files(self, directory: Path, part: Part) -> "list[HashedFile]":
        token_bytes = np.dtype(self.vocabulary["dtype"]).itemsize
        return [
            HashedFile(
                directory / f"{shard.name}.{suffix}", shard.sizes(token_bytes)[suffix], digest
            )
            for shard in self.parts[part]
            for suffix, digest in shard.sha256.items()
        ]

    def contents_sha256(self) -> str:
        """A hash of all that training reads: the vocabulary, and each shard by its own hashes."""
        words = json.dumps([self.vocabulary, msgspec.to_builtins(self.parts)], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()


def is_corpus(directory: str | Path) -> bool:
    return (Path(directory) / MANIFEST_FILE).is_file()


def read_manifest(directory: str | Path) -> Manifest:
    """corpus.json; raises DataError where it is missing, or of a version that cannot be read."""
    path = Path(directory) / MANIFEST_FILE
    if not present(path):
        raise DataError(
            f"{directory}: not a corpus: it has no {MANIFEST_FILE}; make one with\n"
            "    tidybert build-corpus FILES --vocab DIR --out DIR\n"
            "or run that again, if it was stopped before its end"
        )
    journal = Journal(path, Manifest, "copy the corpus again", limit=MANIFEST_BYTES)
    content = journal.content()
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: not written by tidybert build-corpus (no format {FORMAT!r})")
    if content.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{path}: format version {content.get('format_version')}, and this tidybert reads "
            f"{FORMAT_VERSION}; build the corpus again"
        )
    return journal.decoded(content)


@dataclass(frozen=True)
class HashedFile:
    """A file with its bytes and its sha256 in hexadecimal, as they should be."""

    path: Path
    num_bytes: int
    sha256: str


def verify_files(
    files: Sequence[HashedFile], progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Read every file and compare its sha256; ``progress`` gets the bytes read, and of all."""
    total, done = sum(file.num_bytes for file in files), 0
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        checks = [pool.submit(check_sha256, file.path, file.sha256) for file in files]
        try:
            for file, check in zip(files, checks, strict=True):
                check.result()
                done += file.num_bytes
                progress(done, total)
        finally:
            pool.shutdown(cancel_futures=True)


def check_sha256(path: Path, digest: str) -> None:
    """Raise DataError for a file of other content, or that cannot be read."""
    try:
        found = file_sha256(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error, path)}") from error
    if found != digest:
        raise DataError(
            f"{path}: its sha256 is {found[:12]}…, and corpus.json says {digest[:12]}…; it is "
            "damaged or was exchanged: copy the corpus again"
        )


Array = npt.NDArray[np.int64]


class TokenCorpus:
    """One part of a corpus directory, mapped into memory.

    Opening compares sizes, first use of a shard its bounds, and ``verify`` all contents.
    """

    def __init__(self, directory: str | Path, part: Part = "train") -> None:
        self.directory = Path(directory)
        self.part = part
        self.manifest = read_manifest(directory)
        self.dtype = np.dtype(self.manifest.vocabulary["dtype"])
        self.shards = self.manifest.parts[part]
        for file in self.hashed_files():
            _check_size(file.path, file.num_bytes)
        self._mapped: dict[tuple[int, str], npt.NDArray[Any]] = {}
        self._number()

    def _number(self) -> None:
        """Number the documents, sentences and tokens across the shards."""
        self.first_document = _running([shard.num_documents for shard in self.shards])
        self.first_sentence = _running([shard.num_sentences for shard in self.shards])
        self.first_token = _running([shard.num_tokens for shard in self.shards])
        self.num_documents = int(self.first_document[-1])
        self.num_sentences = int(self.first_sentence[-1])
        self.num_tokens = int(self.first_token[-1])
        self._ends = {
            "sentences": [shard.num_tokens for shard in self.shards],
            "documents": [shard.num_sentences for shard in self.shards],
        }

    @property
    def corpora(self) -> "list[TokenCorpus]":
        """The corpora that this one joins: itself alone."""
        return [self]

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
        places = documents - self.first_document[shards]
        first = self._picked("documents", shards, places)
        counts = self._picked("documents", shards, places + 1) - first + 1
        rows = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
        shards = np.repeat(shards, counts)
        return self._picked("sentences", shards, rows) + self.first_token[shards], counts

    def document_ends(self, documents: Array) -> Array:
        """(D,): the token after the last one of each document."""
        shards = self.first_document.searchsorted(documents, "right") - 1
        places = documents - self.first_document[shards] + 1
        sentences = self._picked("documents", shards, places)
        return self._picked("sentences", shards, sentences) + self.first_token[shards]

    def source_of(self, document: int) -> str:
        """The file that a document was read from."""
        after = np.cumsum([source[self.part] for source in self.manifest.sources])
        return str(self.manifest.sources[int(np.searchsorted(after, document, "right"))]["file"])

    def tokenizer(self) -> BertTokenizer:
        """The tokenizer that made the ids; raises DataError if any of its files was exchanged."""
        if _LIBRARY not in self.manifest.vocabulary:
            check_sha256(self.directory / VOCABULARY_FILE, self.manifest.vocabulary["sha256"])
        tokenizer = BertTokenizer.from_pretrained(self.directory)
        if other := self.other_settings(tokenizer):
            raise DataError(
                f"{self.directory / TOKENIZER_CONFIG_FILE}: {' and '.join(other)} where "
                f"{MANIFEST_FILE} has another value; copy the corpus again"
            )
        return tokenizer

    def other_settings(self, tokenizer: BertTokenizer) -> list[str]:
        """What a tokenizer has unlike the one that made the ids: "do_lower_case is False"."""
        found = described(tokenizer)
        return [f"{name} is {found[name]}" for name in differing(found, self.manifest.vocabulary)]

    def check_ids(self, ids: npt.NDArray[Any]) -> None:
        """Raise DataError for ids (T,) outside the vocabulary."""
        most, size = ids.max(initial=0), self.manifest.vocabulary["vocab_size"]
        if most >= size:
            raise DataError(
                f"{self.directory}: a token has the id {most:,}, and the vocabulary has {size:,} "
                "tokens: a file is damaged; copy the corpus again"
            )

    def contents_sha256(self) -> str:
        return self.manifest.contents_sha256()

    def hashed_files(self) -> list[HashedFile]:
        return self.manifest.files(self.directory, self.part)

    def verify(self) -> None:
        """Read all of the part and compare with the sha256 of each file; raises DataError."""
        self.tokenizer()
        verify_files(self.hashed_files())

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the mapped files by itself.
        return {"directory": self.directory, "part": self.part}

    def __setstate__(self, state: dict[str, Any]) -> None:
        TokenCorpus.__init__(self, **state)

    def _picked(self, suffix: str, shards: Array, places: Array) -> Array:
        """(N,): the numbers at places (N,) of one kind of file, each of the shard at its place."""
        picked = np.empty(len(places), np.int64)
        for shard in np.unique(shards):
            of_shard = shards == shard
            picked[of_shard] = self._array(int(shard), suffix)[places[of_shard]]
        return picked

    def _array(self, shard: int, suffix: str) -> npt.NDArray[Any]:
        found = self._mapped.get((shard, suffix))
        if found is None:
            dtype = self.dtype if suffix == "tokens" else np.dtype("<u4")
            path = self.directory / f"{self.shards[shard].name}.{suffix}"
            try:
                # Slicing a plain array is several times as fast as slicing a memmap.
                found = np.asarray(np.memmap(path, dtype, "r"))
            except (OSError, ValueError) as error:
                raise DataError(f"{path}: cannot be read: {error}") from error
            if suffix != "tokens":
                _check_rising(found, self._ends[suffix][shard], path)
            self._mapped[shard, suffix] = found
        return found


def _running(counts: list[int]) -> Array:
    return np.cumsum([0, *counts], dtype=np.int64)


def _check_size(path: Path, size: int) -> None:
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno()).st_size
    except DataError as error:
        raise DataError(
            f"{error.message}, and {MANIFEST_FILE} names it; copy the corpus again"
        ) from error
    if found != size:
        raise DataError(
            f"{path}: {found:,} bytes where {MANIFEST_FILE} says {size:,}; it is cut short or from "
            "another corpus: copy the corpus again"
        )


def _check_rising(bounds: npt.NDArray[Any], end: int, path: Path) -> None:
    """Raise DataError unless bounds (N + 1,) rise from 0 to the end of what they divide."""
    if bounds[0] == 0 and bounds[-1] == end and bool((bounds[1:] > bounds[:-1]).all()):
        return
    raise DataError(
        f"{path}: its numbers do not rise from 0 to {end:,}: the file is damaged; copy the corpus "
        "again"
    )


# Writes one part of a corpus, shard after shard; a kill loses only what came after the last sync.
#
# Files only grow.  ``sync`` returns a state that is on the disk; a writer with that state cuts off
# everything later.

MAX_SHARD_TOKENS: Final = 2**27


@dataclass(frozen=True)
class Block:
    """Documents as ids: ids (T,), tokens of each sentence (S,), sentences of each document (D,)."""

    ids: npt.NDArray[Any]
    sentence_lengths: npt.NDArray[np.int64]
    document_sentences: npt.NDArray[np.int64]

    def document_lengths(self) -> npt.NDArray[np.int64]:
        ends = np.cumsum(self.sentence_lengths, dtype=np.int64)
        return np.diff(np.append(0, ends)[np.cumsum(self.document_sentences)], prepend=0)

    def chosen(self, documents: npt.NDArray[np.bool_]) -> "Block":
        """The block of some of the documents, named by a mask (D,)."""
        sentences = np.repeat(documents, self.document_sentences)
        return Block(
            self.ids[np.repeat(sentences, self.sentence_lengths)],
            self.sentence_lengths[sentences],
            self.document_sentences[documents],
        )


class PartState(msgspec.Struct, forbid_unknown_fields=True):
    """How far a part is: its finished shards, and the one that grows."""

    shards: list[Shard] = []
    open: Shard | None = None


class PartWriter:
    """Appends documents to the shards of a part; a shard ends with the document that fills it."""

    def __init__(
        self,
        directory: Path,
        part: Part,
        dtype: np.dtype[Any],
        max_shard_tokens: int = MAX_SHARD_TOKENS,
        state: PartState | None = None,
    ) -> None:
        self._directory, self._part, self._dtype = directory, part, dtype
        self._max_shard_tokens = max_shard_tokens
        state = state or PartState()
        self.shards, self._open = list(state.shards), state.open
        self._files: dict[str, GrowingFile] = {}
        kept = {self._path(shard, suffix) for shard in self._all() for suffix in SUFFIXES}
        ours = re.compile(rf"{part}-[0-9]{{5}}\.({'|'.join(SUFFIXES)})")
        for path in directory.iterdir():
            if ours.fullmatch(path.name) and path not in kept:
                remove_tree(path)
        if self._open:
            for suffix, size in self._open.sizes(dtype.itemsize).items():
                self._files[suffix] = GrowingFile(self._path(self._open, suffix), size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def num_tokens(self) -> int:
        return sum(shard.num_tokens for shard in self._all())

    def add(self, block: Block) -> None:
        """Append documents, in order, none of them empty."""
        lengths = np.cumsum(block.document_lengths())
        sentences = np.cumsum(block.document_sentences)
        token = sentence = document = 0
        while document < len(lengths):
            shard = self._open or self._begin()
            room = self._max_shard_tokens - shard.num_tokens
            end = min(int(np.searchsorted(lengths, token + room)) + 1, len(lengths))
            last_token, last_sentence = int(lengths[end - 1]), int(sentences[end - 1])
            some = Block(
                block.ids[token:last_token],
                block.sentence_lengths[sentence:last_sentence],
                block.document_sentences[document:end],
            )
            self._append(shard, some)
            token, sentence, document = last_token, last_sentence, end

    def sync(self) -> PartState:
        """Wait until everything is on the disk, and return the state for another writer."""
        for file in self._files.values():
            file.sync()
        return PartState(list(self.shards), self._open)

    def finish(self) -> list[Shard]:
        """End the last shard; returns all."""
        if self._open:
            self._end(self._open)
        return self.shards

    def _all(self) -> list[Shard]:
        return [*self.shards, self._open] if self._open else self.shards

    def _path(self, shard: Shard, suffix: str) -> Path:
        return self._directory / f"{shard.name}.{suffix}"

    def _begin(self) -> Shard:
        shard = self._open = Shard(f"{self._part}-{len(self.shards):05}", 0, 0, 0, {})
        for suffix in SUFFIXES:
            self._files[suffix] = GrowingFile(self._path(shard, suffix))
        for suffix in ("sentences", "documents"):
            self._files[suffix].write(bytes(4))
        return shard

    def _append(self, shard: Shard, block: Block) -> None:
        sentences = shard.num_tokens + np.cumsum(block.sentence_lengths)
        documents = shard.num_sentences + np.cumsum(block.document_sentences)
        assert sentences[-1] < 2**32, "a document of billions of tokens"
        self._files["tokens"].write(block.ids.astype(self._dtype, copy=False).tobytes())
        self._files["sentences"].write(sentences.astype("<u4").tobytes())
        self._files["documents"].write(documents.astype("<u4").tobytes())
        num_documents = shard.num_documents + len(documents)
        self._open = Shard(shard.name, num_documents, int(documents[-1]), int(sentences[-1]), {})
        if self._open.num_tokens >= self._max_shard_tokens:
            self._end(self._open)

    def _end(self, shard: Shard) -> None:
        self.sync()
        self._close()
        digests = {suffix: file_sha256(self._path(shard, suffix)) for suffix in SUFFIXES}
        self.shards.append(replace(shard, sha256=digests))
        self._open = None

    def _close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
