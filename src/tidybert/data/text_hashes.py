"""Short hashes of texts, so that a model can tell which texts trained it without keeping them."""

import unicodedata
from collections.abc import Hashable, Iterable, Iterator
from hashlib import blake2b

import numpy as np
import numpy.typing as npt


def text_hashes(identities: Iterable[Hashable]) -> npt.NDArray[np.uint64]:
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
