"""training_texts.npy: hashes of the texts that trained a RUN, sorted, at most 8 MB.

They tell which texts of another file had a part in training, and hold no text.
"""

import unicodedata
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import ConfigError
from tidybert.storage.atomic_files import atomic_write_bytes
from tidybert.storage.limits import HASHES_BYTES
from tidybert.storage.model_files import TRAINING_TEXTS_FILE
from tidybert.storage.opening import present, read_bytes

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

    Args:
        identities: each a text, None, or a tuple or a frozenset of identities.

    Returns:
        (N,) uint64.
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
    parts = list(map(_canonical, _members(identity)))
    if isinstance(identity, frozenset):
        parts.sort()
    return b"(%b)" % b"".join(parts)


def _members(identity: Hashable) -> Iterator[Hashable]:
    if not isinstance(identity, tuple | frozenset):
        raise TypeError(f"an identity holds texts, None, tuples and frozensets, not {identity!r}")
    return iter(identity)
