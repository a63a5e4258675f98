"""Several corpora as one: their documents, sentences and tokens are numbered one after another."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.corpus.manifest import HashedFile, differing
from tidybert.corpus.token_shards import TokenCorpus
from tidybert.errors import UsageError, param


class JoinedCorpora(TokenCorpus):
    """The same part of several corpora.

    ``manifest``, ``directory`` and ``dtype`` are those of the first: all have one vocabulary.
    Raises UsageError for corpora of different vocabularies or casing.
    """

    def __init__(self, corpora: Sequence[TokenCorpus]) -> None:
        first = corpora[0]
        for other in corpora[1:]:
            _check_alike(first, other)
        self._corpora = list(corpora)
        self.directory, self.part = first.directory, first.part
        self.manifest, self.dtype = first.manifest, first.dtype
        self.shards = [shard for each in corpora for shard in each.shards]
        self._owners = [(each, place) for each in corpora for place in range(len(each.shards))]
        self._number()

    @property
    def corpora(self) -> list[TokenCorpus]:
        """The corpora in their order."""
        return self._corpora

    def source_of(self, document: int) -> str:
        """The file that a document was read from."""
        for each in self._corpora:
            if document < each.num_documents:
                return each.source_of(document)
            document -= each.num_documents
        raise IndexError(document)

    def contents_sha256(self) -> str:
        """A hash of all that training reads, in the order of the corpora."""
        words = "".join(each.contents_sha256() for each in self._corpora)
        return hashlib.sha256(words.encode()).hexdigest()

    def hashed_files(self) -> list[HashedFile]:
        """Every file of the part."""
        return [file for each in self._corpora for file in each.hashed_files()]

    def verify(self) -> None:
        """Read all of every corpus and compare with its sha256; raises DataError."""
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
    """One corpus as it is, or several as one."""
    return corpora[0] if len(corpora) == 1 else JoinedCorpora(corpora)


def first_documents(corpus: TokenCorpus) -> list[int]:
    """(K + 1,): the first document of each of the joined corpora, and the end."""
    return [0, *np.cumsum([each.num_documents for each in corpus.corpora]).tolist()]


def _check_alike(first: TokenCorpus, other: TokenCorpus) -> None:
    mine, theirs = first.manifest.vocabulary, other.manifest.vocabulary
    if mine["sha256"] != theirs["sha256"]:
        raise UsageError(
            f"{first.directory} and {other.directory} have different vocabularies; build both with "
            f"the same {param('vocab')}"
        )
    if names := differing(mine, theirs):
        shown = ", ".join(f"{name} {mine[name]} and {theirs[name]}" for name in names)
        raise UsageError(
            f"{first.directory} and {other.directory} were made with other tokenizers ({shown}); "
            f"build both with the same {param('vocab')}"
        )
