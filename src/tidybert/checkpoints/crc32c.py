"""CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, on NumPy.

The polynomial is that of RFC 3720, appendix B.4.  Long data is cut into lanes of one length, whose
checksums are computed side by side, a byte of each at a time, and then joined.
"""

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

_POLYNOMIAL: Final = 0x82F63B78
_ALL_ONES: Final = 0xFFFFFFFF
# Lanes cost a join each, and their steps cost one call each.
_LANES: Final = 4096

Checksums = npt.NDArray[np.uint32]


def crc32c(data: bytes | bytearray) -> int:
    """The checksum of the bytes, a number of 32 bits."""
    values = np.frombuffer(data, np.uint8)
    length = len(values) // _LANES
    head = values[: _LANES * length].reshape(_LANES, length)
    # The first bytes of all lanes lie together, then the second ones.
    lanes = _extended(np.zeros(_LANES, np.uint32), np.ascontiguousarray(head.T))
    while len(lanes) > 1:
        lanes = _shifted(lanes[::2], length) ^ lanes[1::2]
        length *= 2
    # A checksum begins with all bits set, which the zeros of the lanes left out.
    start = _shifted(np.array([_ALL_ONES], np.uint32), length) ^ lanes
    rest = values[_LANES * (len(values) // _LANES) :]
    return int(_extended(start, rest[:, None])[0]) ^ _ALL_ONES


def masked_crc32c(data: bytes | bytearray) -> int:
    """The checksum as files store it: a checksum of data that holds its own checksum is no test.

    Source: Mask in tensorflow/core/lib/hash/crc32c.h.
    """
    found = crc32c(data)
    return ((found >> 15 | found << 17) + 0xA282EAD8) & _ALL_ONES


def _extended(checksums: Checksums, rows: npt.NDArray[np.uint8]) -> Checksums:
    """Each lane's checksum after the bytes of its column; rows (length, lanes)."""
    table = _byte_table()
    for row in rows:
        checksums = table[(checksums ^ row) & 0xFF] ^ checksums >> 8
    return checksums


@cache
def _byte_table() -> Checksums:
    """(256,) the checksum's remainder for each value of a byte."""
    found = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = np.where(found & 1, found >> 1 ^ np.uint32(_POLYNOMIAL), found >> 1)
    return found.astype(np.uint32)


def _shifted(checksums: Checksums, length: int) -> Checksums:
    """The checksums after ``length`` zero bytes each."""
    while length:
        power = length & -length
        length -= power
        matrix = _zeros_matrix(power)
        checksums = np.bitwise_xor.reduce(
            np.where(checksums[:, None] >> np.arange(32, dtype=np.uint32) & 1, matrix, 0),
            axis=1,
            dtype=np.uint32,
        )
    return checksums


@cache
def _zeros_matrix(power: int) -> Checksums:
    """(32,) what ``power`` zero bytes, a power of two, make of each single bit."""
    if power == 1:
        bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
        return _extended(bits, np.zeros((1, 32), np.uint8))
    half = _zeros_matrix(power // 2)
    return _shifted(half, power // 2)
