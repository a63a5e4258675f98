"""Writes one part of a corpus, shard after shard; a kill loses only what came after the last sync.

Files only grow.  ``sync`` returns a state that is on the disk; a writer with that state cuts off
everything later.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tidybert.corpus.token_shards import SUFFIXES, Part, Shard
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.own_files import GrowingFile, remove_tree

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
