"""corpus.json: what a corpus was built from and how, and whether its files are as it says."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, cast, get_args

from tidybert.errors import DataError
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.json_objects import parse_json
from tidybert.storage.limits import MANIFEST_BYTES
from tidybert.storage.opening import os_reason, present, read_text
from tidybert.tokenization import BertTokenizer

FORMAT: Final = "tidybert-corpus"
FORMAT_VERSION: Final = 1
MANIFEST_FILE: Final = "corpus.json"
SUFFIXES: Final = ("tokens", "sentences", "documents")
# Hashing works outside Python's lock.  Two threads keep a disk busy while one of them computes.
_HASHING_THREADS: Final = 2
# Bounds of sentences and documents have 32 bits.
_MOST: Final = 2**32 - 1

Part = Literal["train", "held-out"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)


def described(tokenizer: BertTokenizer) -> dict[str, Any]:
    """Everything that decides the ids of a text, and their dtype."""
    return {
        "sha256": tokenizer.vocabulary.sha256,
        "vocab_size": tokenizer.vocab_size,
        "dtype": _dtype(tokenizer.vocab_size),
        "do_lower_case": tokenizer.do_lower_case,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.tokenize_chinese_chars,
    }


def differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The names of what makes two tokenizers unlike, of what ``described`` says of them.

    Accents that follow the casing are as if they were named.
    """
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
        """Raises KeyError, TypeError or ValueError for content of another form."""
        vocabulary, sources = content["settings"]["vocabulary"], content["sources"]
        _check_count(vocabulary, "vocab_size")
        _check_digest(vocabulary["sha256"])
        if vocabulary["dtype"] != _dtype(vocabulary["vocab_size"]):
            raise ValueError(f"dtype {vocabulary['dtype']!r:.20} does not fit the vocabulary")
        parts: dict[str, list[Shard]] = {}
        for part in PARTS:
            parts[part] = [Shard(**shard) for shard in content["parts"][part]]
            for number, shard in enumerate(parts[part]):
                _check_shard(shard, f"{part}-{number:05}")
            for source in sources:
                _check_count(source, part, least=0)
            if sum(source[part] for source in sources) != sum(
                shard.num_documents for shard in parts[part]
            ):
                raise ValueError(f"sources and shards of {part} have other numbers of documents")
        if not all(isinstance(source["file"], str) for source in sources):
            raise TypeError("a source without a file's name")
        return cls(dict(content["settings"]), list(sources), dict(content["counts"]), parts)


def _check_shard(shard: Shard, name: str) -> None:
    if shard.name != name:
        raise ValueError(f"a shard is named {shard.name!r:.40} where {name} is expected")
    counts = asdict(shard)
    for count in ("num_documents", "num_sentences", "num_tokens"):
        _check_count(counts, count)
    if set(shard.sha256) != set(SUFFIXES):
        raise ValueError(f"{name} has hashes of other files")
    for digest in shard.sha256.values():
        _check_digest(digest)


def _check_count(content: Mapping[str, Any], name: str, least: int = 1) -> None:
    value = content[name]
    if type(value) is not int or not least <= value <= _MOST:
        raise ValueError(f"{name} is {value!r:.40}")


def _check_digest(value: object) -> None:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r:.40} is not a sha256")


def is_corpus(directory: str | Path) -> bool:
    """Whether a directory holds a finished corpus."""
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
    content = parse_json(read_text(path, MANIFEST_BYTES), path, error=DataError)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{path}: not written by tidybert build-corpus (no format {FORMAT!r})")
    if content.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{path}: format version {content.get('format_version')}, and this tidybert reads "
            f"{FORMAT_VERSION}; build the corpus again"
        )
    try:
        return Manifest.from_dict(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: damaged ({error}); copy the corpus again") from error


@dataclass(frozen=True)
class HashedFile:
    """A file with its bytes and its sha256 in hexadecimal, as they should be."""

    path: Path
    num_bytes: int
    sha256: str


def verify_files(
    files: Sequence[HashedFile], progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Read every file and compare its sha256.

    progress: called after each file with the bytes read so far and those of all files.

    Raises DataError for the first file in order that differs or cannot be read.
    """
    total, done = sum(file.num_bytes for file in files), 0
    with ThreadPoolExecutor(_HASHING_THREADS) as pool:
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
