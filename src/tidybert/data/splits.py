"""Hold out a part of the examples for evaluation, with no text on both sides."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import ConfigError, DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.storage.atomic_files import atomic_write_bytes
from tidybert.storage.limits import HASHES_BYTES
from tidybert.storage.model_files import TRAINING_TEXTS_FILE
from tidybert.storage.opening import present, read_bytes

Indices = npt.NDArray[np.int64]


def stratified_split(
    labels: Sequence[str],
    fraction: float,
    seed: int,
    *,
    texts: Sequence[Hashable] | None = None,
) -> tuple[Indices, Indices]:
    """Indices of the examples to train on and to evaluate on, both ascending.

    Each class gives about ``fraction`` of its examples to evaluation, at least one and never all.
    Examples with equal ``texts`` (a text, or a pair as a tuple) stay on one side; a text under
    several labels is trained on.  So a class stays out of evaluation only where it has a single
    example, or no text that is its own and can be spared.  The same arguments give the same split.
    """
    groups = _groups(len(labels), fraction, texts)
    generator = np.random.default_rng(seed)
    by_class: dict[str, list[list[int]]] = {name: [] for name in sorted(set(labels))}
    sizes = dict.fromkeys(by_class, 0)
    own = dict.fromkeys(by_class, 0)
    for label in labels:
        sizes[label] += 1
    for group in groups:
        names = {labels[index] for index in group}
        if len(names) == 1:
            name = names.pop()
            by_class[name].append(group)
            own[name] += len(group)
    dev: list[int] = []
    for name, candidates in by_class.items():
        order = generator.permutation(len(candidates))
        wanted = max(1, round(fraction * sizes[name]))
        # A class must keep one example to train on: one of its own, or a text of several labels.
        spare = len(candidates) - (1 if own[name] == sizes[name] else 0)
        dev += _take([candidates[at] for at in order], wanted, spare)
    return _sides(len(labels), dev)


def random_split(
    num_examples: int,
    fraction: float,
    seed: int,
    *,
    texts: Sequence[Hashable] | None = None,
    labels: Sequence[Collection[str]] | None = None,
) -> tuple[Indices, Indices]:
    """The same without classes: a random share of about ``fraction`` of all examples.

    Where ``labels`` gives each example's, any number of them, each label that is evaluated is
    trained on too: what has the only ones stays out of evaluation.
    """
    groups = _groups(num_examples, fraction, texts)
    order = np.random.default_rng(seed).permutation(len(groups))
    shuffled = [groups[at] for at in order]
    wanted = max(1, round(fraction * num_examples))
    candidates = shuffled if labels is None else _without_the_last(shuffled, labels)
    spare = min(len(candidates), len(groups) - 1)
    return _sides(num_examples, _take(candidates, wanted, spare))


def grouped_split(
    groups: Sequence[Hashable],
    fraction: float,
    seed: int,
    *,
    texts: Sequence[Hashable],
    labels: Sequence[Collection[str]],
) -> tuple[Indices, Indices]:
    """``random_split`` with no group, and no text, on both sides."""
    return random_split(len(groups), fraction, seed, texts=_joined(groups, texts), labels=labels)


def drawn_split(
    drawn: Sequence[int],
    fraction: float,
    seed: int,
    *,
    texts: Sequence[Hashable],
    labels: Sequence[Collection[str]],
) -> tuple[Indices, Indices]:
    """About ``fraction`` of all to evaluate on, only of those whose indices are ``drawn``.

    Texts that occur twice are trained on, and so are the last examples of a label.
    """
    left = Counter(label for names in labels for label in names)
    times, dev = Counter(texts), list[int]()
    for at in np.random.default_rng(seed).permutation(drawn).tolist():
        is_free = times[texts[at]] == 1 and all(left[label] > 1 for label in labels[at])
        if is_free and len(dev) < round(fraction * len(labels)):
            left.subtract(labels[at])
            dev.append(at)
    return _sides(len(labels), dev)


def _joined(groups: Sequence[Hashable], texts: Sequence[Hashable]) -> list[int]:
    """One number for examples that a group or a text connects, however indirectly."""
    parent = list(range(len(groups)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[tuple[str, Hashable], int] = {}
    for index, (group, text) in enumerate(zip(groups, texts, strict=True)):
        for key in (("group", group), ("text", text)):
            parent[root(index)] = root(first.setdefault(key, index))
    return [root(index) for index in range(len(groups))]


LEAST_ALIKE: Final = 0.7
"""Of the runs of four characters that one of two texts has: what near-duplicates share."""


def folds_of(
    identities: Sequence[Hashable], strata: Sequence[Collection[str]], num_folds: int
) -> Indices:
    """(N,) a fold for each example: near-duplicates are in one, and each fold has all strata.

    A stratum, as a class, is what the folds have a like share of.  Texts are compared without case,
    white space and the values of numbers.  There are fewer folds where there are fewer groups.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import connected_components

    texts = [re.sub(r"\d+", "0", _canonical(each).decode()) for each in identities]
    different = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for text, row in different.items():
        found = {text[at : at + 4] for at in range(max(1, len(text) - 3))}
        places += [(row, numbers.setdefault(each, len(numbers))) for each in sorted(found)]
    rows, columns = np.array(places).T
    runs = csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)))
    shared, sizes = coo_array(runs @ runs.T), runs.sum(1)
    first, second = shared.coords
    is_alike = shared.data >= LEAST_ALIKE * (sizes[first] + sizes[second] - shared.data)
    edges = (np.ones(is_alike.sum(), dtype=np.int8), (first[is_alike], second[is_alike]))
    count = len(different)
    group = connected_components(coo_array(edges, shape=(count, count)), directed=False)[1]
    members: dict[int, list[int]] = {}
    for example, text in enumerate(texts):
        members.setdefault(int(group[different[text]]), []).append(example)
    groups = list(members.values())
    drawn = np.random.default_rng(0).permutation(len(groups)).tolist()
    fold_of = np.empty(len(texts), dtype=np.int64)
    for place, number in enumerate(sorted(drawn, key=lambda at: sorted(strata[groups[at][0]]))):
        fold_of[groups[number]] = place % num_folds
    return fold_of


def _groups(
    num_examples: int, fraction: float, texts: Sequence[Hashable] | None
) -> list[list[int]]:
    """Indices of the examples that must stay together, in order of first appearance."""
    if not 0.0 < fraction < 1.0:
        raise UsageError(f"a fraction of {fraction} cannot be held out; give one between 0 and 1")
    if texts is None:
        return [[index] for index in range(num_examples)]
    if len(texts) != num_examples:
        raise ValueError(f"{len(texts)} texts were given for {num_examples} examples")
    groups: dict[Any, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(text, []).append(index)
    return list(groups.values())


def _without_the_last(
    groups: Sequence[list[int]], labels: Sequence[Collection[str]]
) -> list[list[int]]:
    """The groups in order, without those that hold the last examples of a label."""
    found = [{label for index in group for label in labels[index]} for group in groups]
    left = Counter(label for names in found for label in names)
    kept = []
    for group, names in zip(groups, found, strict=True):
        if all(left[name] > 1 for name in names):
            left.subtract(names)
            kept.append(group)
    return kept


def _take(groups: Sequence[list[int]], wanted: int, spare: int) -> list[int]:
    """About ``wanted`` members of at most ``spare`` groups, without overshooting where possible."""
    taken: list[int] = []
    count = 0
    for group in groups:
        if count < spare and len(taken) + len(group) <= wanted:
            taken += group
            count += 1
    if not taken and spare > 0:
        taken = list(groups[int(np.argmin([len(group) for group in groups]))])
    return taken


def _sides(num_examples: int, dev: list[int]) -> tuple[Indices, Indices]:
    if not dev:
        raise DataError(
            f"{count_of(num_examples, 'example')} cannot be split: no text can be spared for "
            f"evaluation; add examples, or name a dev file with {param('dev')}"
        )
    is_dev = np.zeros(num_examples, dtype=np.bool_)
    is_dev[dev] = True
    return np.flatnonzero(~is_dev).astype(np.int64), np.flatnonzero(is_dev).astype(np.int64)


# training_texts.npy: hashes of the texts that trained a RUN, sorted, at most 8 MB.
#
# They tell which texts of another file had a part in training, and hold no text.

MAX_HASHES: Final = 1_000_000

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class TrainingTexts:
    """The hashes of the training texts; ``is_whole`` is False where only the smallest are kept."""

    hashes: Hashes
    is_whole: bool

    def num_among(self, hashes: Hashes) -> int:
        """How many of ``hashes`` trained the model; at least as many where not all are kept."""
        return int(np.isin(hashes, self.hashes).sum())


def write_training_texts(run: Path, hashes: Hashes) -> None:
    """Write the hashes; of more than MAX_HASHES the smallest, which are a random part of them."""
    kept = np.unique(hashes)[:MAX_HASHES]
    content = BytesIO()
    np.lib.format.write_array(content, kept.astype("<u8"), allow_pickle=False)
    atomic_write_bytes(run / TRAINING_TEXTS_FILE, content.getvalue())


def read_training_texts(run: Path) -> TrainingTexts | None:
    """The hashes of a RUN; None where it has none.  Raises ConfigError for a damaged file."""
    path = run / TRAINING_TEXTS_FILE
    if not present(path, error=ConfigError):
        return None
    content = BytesIO(read_bytes(path, HASHES_BYTES, error=ConfigError))
    try:
        version = np.lib.format.read_magic(content)
        shape, _, dtype = np.lib.format.read_array_header_1_0(content, max_header_size=1000)
        # Memory is only taken for what the file holds, not for what its header says.
        hashes = np.frombuffer(content.read(), "<u8")
    # The damaged byte decides which exception NumPy raises.
    except Exception as error:
        raise ConfigError(f"{path}: not the hashes that tidybert wrote: {error}") from None
    if (version, shape, dtype) != ((1, 0), hashes.shape, hashes.dtype):
        raise ConfigError(f"{path}: not the hashes that tidybert wrote")
    return TrainingTexts(hashes, len(hashes) < MAX_HASHES)


def text_hashes(identities: Iterable[Hashable]) -> Hashes:
    """A hash of each identity (``Task.identity``), the same on every machine and in every process.

    Texts that differ only in case, white space or Unicode's composition have one hash.  The order
    of the texts of a pair counts.  Two different texts have one hash with a chance of 2**-64.
    """
    digests = b"".join(
        blake2b(_canonical(identity), digest_size=8).digest() for identity in identities
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _canonical(identity: Hashable) -> bytes:
    """Bytes that are equal for equal identities alone: lengths keep texts apart."""
    if isinstance(identity, str):
        text = " ".join(unicodedata.normalize("NFC", identity).casefold().split()).encode()
        return b"%d:%b" % (len(text), text)
    if identity is None:
        return b"-"
    if not isinstance(identity, tuple | frozenset):
        raise TypeError(f"an identity holds texts, None, tuples and frozensets, not {identity!r}")
    parts = list(map(_canonical, identity))
    if isinstance(identity, frozenset):
        parts.sort()
    return b"(%b)" % b"".join(parts)
