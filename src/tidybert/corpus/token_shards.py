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

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.corpus.manifest import (
    MANIFEST_FILE,
    HashedFile,
    Part,
    Shard,
    check_sha256,
    described,
    differing,
    read_manifest,
    verify_files,
)
from tidybert.errors import DataError
from tidybert.storage.model_files import TOKENIZER_CONFIG_FILE, VOCABULARY_FILE
from tidybert.storage.opening import open_regular
from tidybert.tokenization import BertTokenizer

Array = npt.NDArray[np.int64]


class TokenCorpus:
    """One part of a corpus directory, mapped into memory.

    Raises DataError for a directory without a corpus, and for a file that is missing or of another
    size than corpus.json says.  The bounds in a shard are checked when it is first used, and
    ``verify`` compares all contents.
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
        """A hash of all that training reads: the vocabulary, and each shard by its own hashes."""
        return self.manifest.contents_sha256()

    def hashed_files(self) -> list[HashedFile]:
        """Every file of the part."""
        return [
            HashedFile(self._path(shard, suffix), shard.sizes(self.dtype.itemsize)[suffix], digest)
            for shard in self.shards
            for suffix, digest in shard.sha256.items()
        ]

    def verify(self) -> None:
        """Read all of the part and compare with the sha256 of each file; raises DataError."""
        check_sha256(self.directory / VOCABULARY_FILE, self.manifest.vocabulary["sha256"])
        verify_files(self.hashed_files())

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the mapped files by itself.
        return {"directory": self.directory, "part": self.part}

    def __setstate__(self, state: dict[str, Any]) -> None:
        TokenCorpus.__init__(self, **state)

    def _path(self, shard: Shard, suffix: str) -> Path:
        return self.directory / f"{shard.name}.{suffix}"

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
            path = self._path(self.shards[shard], suffix)
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
