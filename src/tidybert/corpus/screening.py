"""Documents that a corpus leaves out: near-duplicates, and those that quote evaluation data.

Near-duplicates are found by MinHash (Broder 1997) over runs of five words, in bands (Leskovec,
Rajaraman and Ullman 2020, "Mining of massive datasets", section 3.4): two documents are alike if
all numbers of a band agree.  rensa computes the numbers.

A document is excluded if it shares thirteen words in a row with an evaluation file, the rule of
Brown et al. (2020, "Language models are few-shot learners", appendix C).  Words are lowercase runs
of letters and digits; each ideograph is a word.
"""

import hashlib
import heapq
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.corpus.documents import Document, corpus_files, open_stored
from tidybert.errors import DataError, UsageError, param
from tidybert.files.text_lines import decoded_lines

# Hashes of documents: which have been seen before, and which to hold out.
#
# A hash takes 16 bytes.  It also decides which documents are held out, so that equal texts are on
# the same side in any order of the corpus, in ``tidybert build-corpus`` and in HeldOut.

DIGEST_BYTES: Final = 16
MAX_CHARACTERS: Final = 1 << 23
Digests = npt.NDArray[np.bytes_]
_PARTS: Final = 16


def digests_of(documents: Sequence[Sequence[str]]) -> tuple[Digests, int]:
    """(D,) of 16 bytes, a hash of each document's paragraphs; and the bytes of all in UTF-8."""
    texts = ["\n".join(document).encode() for document in documents]
    return np.frombuffer(b"".join(map(_digest, texts)), f"S{DIGEST_BYTES}"), sum(map(len, texts))


def shares(digests: Digests) -> npt.NDArray[np.float64]:
    """(D,): a number in [0, 1) for each, the same for equal texts in any place."""
    words = np.frombuffer(digests.tobytes(), "<u8")[:: DIGEST_BYTES // 8]
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def share_of(document: Sequence[str]) -> float:
    """The number in [0, 1) of one document."""
    digest = _digest("\n".join(document).encode())
    return (int.from_bytes(digest[:8], "little") >> 11) * 2.0**-53


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


class SeenDigests:
    """A set of digests in parts, by a few of their bits, so that merging copies one part alone."""

    def __init__(self, digests: Digests) -> None:
        places = _parts_of(digests)
        self._parts = [_SortedRuns(digests[places == part]) for part in range(_PARTS)]

    def add(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """Add (D,) digests; returns which of them are new, the first of equal ones only."""
        places = _parts_of(digests)
        is_new = np.zeros(len(digests), np.bool_)
        for part, runs in enumerate(self._parts):
            at = np.flatnonzero(places == part)
            if len(at):
                is_new[at] = runs.add(digests[at])
        return is_new


def _parts_of(digests: Digests) -> npt.NDArray[np.uint8]:
    """(D,): the part that each digest belongs to."""
    return np.frombuffer(digests.tobytes(), np.uint8)[::DIGEST_BYTES] % np.uint8(_PARTS)


class _SortedRuns:
    """A set of digests as a few sorted arrays, each more than twice as long as the next."""

    def __init__(self, digests: Digests) -> None:
        self.runs = [np.sort(digests)]

    def add(self, digests: Digests) -> npt.NDArray[np.bool_]:
        fresh, first = np.unique(digests, return_index=True)
        known = np.zeros(len(fresh), np.bool_)
        for run in self.runs:
            if len(run):
                place = np.minimum(np.searchsorted(run, fresh), len(run) - 1)
                known |= run[place] == fresh
        self.runs.append(fresh[~known])
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            last = self.runs.pop()
            # A stable sort merges runs that are sorted already.
            self.runs[-1] = np.sort(np.concatenate([self.runs[-1], last]), kind="stable")
        is_new = np.zeros(len(digests), np.bool_)
        is_new[first[~known]] = True
        return is_new


class HeldOut:
    """Sets a few documents of a stream apart; ``documents`` is complete when the stream has ended.

    Holds out the share ``fraction``, at most ``max_characters``, and always the document with the
    smallest hash.  The only document of a corpus is on both sides.  Raises UsageError for a
    fraction out of range.
    """

    def __init__(self, fraction: float, max_characters: int = MAX_CHARACTERS) -> None:
        check_held_out(fraction)
        self.fraction = fraction
        self.max_characters = max_characters
        self.is_apart = False
        # The largest hash comes first, because it is the first to go.
        self._heap: list[tuple[float, Document]] = []

    @property
    def documents(self) -> list[Document]:
        """The documents held out, in the order of their hashes."""
        return [document for _, document in sorted(self._heap, reverse=True)]

    def rest(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The other documents, in a different order."""
        num_characters = 0
        for document in documents:
            heapq.heappush(self._heap, (-share_of(document), document))
            num_characters += sum(map(len, document))
            while len(self._heap) > 1 and (
                num_characters > self.max_characters or -self._heap[0][0] >= self.fraction
            ):
                released = heapq.heappop(self._heap)[1]
                num_characters -= sum(map(len, released))
                self.is_apart = True
                yield released
        if not self.is_apart:
            yield from self.documents


def check_held_out(share: float) -> None:
    """Raise UsageError for a share of the documents that is not from 0 to below 1."""
    if not 0 <= share < 1:
        raise UsageError(f"{param('held_out')} {share:g}: expected a fraction from 0 to below 1")


RUN: Final = 13
_SHINGLE: Final = 5
_NUMBERS: Final = 128
_SEED: Final = 1
_WORD: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W_\u3400-\u9fff]+")
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Evaluation:
    """The runs of words of evaluation files.

    hashes: (R,) uint64, sorted.  files: (R,) the number of each one's file, in ``names``.
    num_short: texts of fewer than RUN words, which are not looked for.
    """

    hashes: Hashes
    files: npt.NDArray[np.int64]
    names: tuple[str, ...]
    num_short: int

    def sha256(self) -> str:
        return hashlib.sha256(self.hashes.tobytes()).hexdigest()


@dataclass(frozen=True)
class Screening:
    """What to look for in documents; goes to the processes that tokenise."""

    near_duplicates: float | None = None
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        if self.near_duplicates is None:
            return
        if not 0 < self.near_duplicates <= 1:
            raise UsageError(
                f"{param('near_duplicates', self.near_duplicates)}: expected a similarity above 0 "
                "and at most 1"
            )
        try:
            import rensa  # noqa: F401
        except ImportError as error:
            raise UsageError(
                f"{param('near_duplicates')} needs the package rensa: pip install 'tidybert[dedup]'"
            ) from error

    @property
    def num_bands(self) -> int:
        """The hashes that a document has for finding those like it; 0 where none are sought."""
        return 0 if self.near_duplicates is None else bands_for(self.near_duplicates)[0]

    def found(self, documents: Sequence[Document]) -> "Found":
        """The bands of documents, and which of them quote evaluation data."""
        if self.near_duplicates is None and self.evaluation is None:
            return NOTHING_FOUND
        bands = []
        excluded = []
        for place, document in enumerate(documents):
            words = [_WORD.findall(paragraph.lower()) for paragraph in document]
            if self.near_duplicates is not None:
                bands.append(_bands([word for each in words for word in each], self.num_bands))
            if self.evaluation is not None and (match := _quoted(words, self.evaluation)):
                excluded.append((place, *match))
        return Found(np.frombuffer(b"".join(bands), f"S{DIGEST_BYTES}"), excluded)


@dataclass(frozen=True)
class Found:
    """bands (D * bands,) of 16 bytes; excluded: each document's place, its file and the words."""

    bands: Digests
    excluded: list[tuple[int, str, str]]


NOTHING_FOUND: Final = Found(np.empty(0, f"S{DIGEST_BYTES}"), [])


def bands_for(similarity: float) -> tuple[int, int]:
    """Bands, and numbers in each, that find half of the pairs with this similarity."""
    options = [(_NUMBERS // rows, rows) for rows in range(1, _NUMBERS + 1)]
    return min(
        options, key=lambda each: abs((1 - 0.5 ** (1 / each[0])) ** (1 / each[1]) - similarity)
    )


def read_evaluation(paths: Sequence[str | Path]) -> Evaluation:
    """The runs of words in evaluation files: every text of JSON, every line of other text."""
    hashes, files, names, num_short = [], [], [], 0
    for number, source in enumerate(corpus_files(paths, any_format=True)):
        runs = [run_hashes(_WORD.findall(text.lower())) for text in _texts(source)]
        num_short += sum(not len(each) for each in runs)
        found = np.unique(np.concatenate([np.empty(0, np.uint64), *runs]))
        if not len(found):
            raise DataError(
                f"{param('exclude', str(source))}: no text has {RUN} words, so nothing can be found"
            )
        hashes.append(found)
        files.append(np.full(len(found), number))
        names.append(str(source))
    all_hashes = np.concatenate(hashes)
    order = np.argsort(all_hashes, kind="stable")
    return Evaluation(all_hashes[order], np.concatenate(files)[order], tuple(names), num_short)


def run_hashes(words: Sequence[str]) -> Hashes:
    """(W - 12,) a hash of each RUN words in a row; none for fewer words."""
    if len(words) < RUN:
        return np.empty(0, np.uint64)
    codes = np.frombuffer(
        b"".join(hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words), "<u8"
    )
    found = np.zeros(len(words) - RUN + 1, np.uint64)
    for place in range(RUN):
        found = found * _FACTOR + codes[place : place + len(found)]
    return found


def _quoted(paragraphs: Sequence[Sequence[str]], evaluation: Evaluation) -> tuple[str, str] | None:
    """The evaluation file that a document quotes, and the words; None where it quotes none."""
    for words in paragraphs:
        hashes = run_hashes(words)
        if not len(hashes):
            continue
        places = np.minimum(np.searchsorted(evaluation.hashes, hashes), len(evaluation.hashes) - 1)
        matches = np.flatnonzero(evaluation.hashes[places] == hashes)
        if len(matches):
            first = int(matches[0])
            file = evaluation.names[evaluation.files[places[first]]]
            return file, " ".join(words[first : first + RUN])
    return None


def _bands(words: Sequence[str], num_bands: int) -> bytes:
    from rensa import RMinHash

    starts = range(max(1, len(words) - _SHINGLE + 1))
    sketch = RMinHash(num_perm=_NUMBERS, seed=_SEED)
    sketch.update([" ".join(words[start : start + _SHINGLE]) for start in starts])
    numbers = np.array(sketch.digest(), "<u4")
    rows = _NUMBERS // num_bands
    return b"".join(
        hashlib.blake2b(
            bytes([band]) + numbers[band * rows : (band + 1) * rows].tobytes(),
            digest_size=DIGEST_BYTES,
        ).digest()
        for band in range(num_bands)
    )


def _texts(source: Any) -> Iterator[str]:
    is_json = ".json" in Path(source.name).suffixes or ".jsonl" in Path(source.name).suffixes
    with open_stored(source) as (unpacked, _):
        if is_json and ".jsonl" not in Path(source.name).suffixes:
            yield from _strings(_parsed(unpacked.read(), source))
            return
        for number, line, problem in decoded_lines(unpacked, "utf-8", str(source)):
            if problem:
                raise DataError(f"{source}:{number}: {problem}")
            if is_json and line.strip():
                yield from _strings(_parsed(line, f"{source}:{number}"))
            elif line.strip():
                yield line


def _parsed(content: str | bytes, where: object) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from error


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inside: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for each in inside:
            yield from _strings(each)
