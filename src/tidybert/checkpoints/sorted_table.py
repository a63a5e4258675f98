"""A sorted string table: the keys and values in which TensorFlow keeps a checkpoint's index.

    blocks of entries | metaindex block | index block | footer of 48 bytes

An entry holds only the part of its key that differs from the key before.  The index block has one
entry for each block of entries: a key that none of them exceeds, and the block's place.  Source:
doc/table_format.md of LevelDB; tensorflow/core/lib/io/format.cc and block_builder.cc.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tidybert.checkpoints.crc32c import masked_crc32c
from tidybert.checkpoints.wire_format import read_varint, varint
from tidybert.errors import WeightsError
from tidybert.storage.limits import TABLE_BYTES, TENSORS

_MAGIC: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER: Final = 48
# A byte for the compression, and the checksum of the block and that byte.
_TRAILER: Final = 5
_RAW, _SNAPPY = 0, 1
_RESTART_INTERVAL: Final = 16
_BLOCK_BYTES: Final = 2**18


def read_table(content: bytes, source: str) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table, in the order of the keys.

    Raises WeightsError for a table that is cut short or damaged, and LimitError for a block that
    unpacks to more than TABLE_BYTES, or for more of keys and values together.
    """
    footer = content[-_FOOTER:]
    if len(footer) < _FOOTER or not footer.endswith(_MAGIC):
        raise WeightsError(
            f"{source}: not a TensorFlow checkpoint's index, or cut short: it does not end with "
            "the table's magic number"
        )
    _, end = _read_handle(footer, 0, source)
    index, _ = _read_handle(footer, end, source)
    before, count, size, stop = b"", 0, 0, 0
    for _, handle in _entries(_block(content, index, source), source):
        place, _ = _read_handle(handle, 0, source)
        # An index could name one block a million times, or itself.
        if place[0] < stop:
            raise WeightsError(f"{source}: damaged: the blocks are not in order")
        stop = sum(place)
        for key, value in _entries(_block(content, place, source), source):
            if count and key <= before:
                raise WeightsError(f"{source}: damaged: the keys are not in order")
            before, count, size = key, count + 1, size + len(key) + len(value)
            TENSORS.check(count, source)
            # Keys hold what they share with the one before, so a small block can have long ones.
            TABLE_BYTES.check(size, source)
            yield key, value


def write_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A table of the entries, which must be in the order of their keys; nothing is compressed."""
    content, index = bytearray(), []
    block: list[tuple[bytes, bytes]] = []
    size = 0
    for entry in entries:
        block.append(entry)
        size += len(entry[0]) + len(entry[1])
        if size >= _BLOCK_BYTES:
            index.append((block[-1][0], _append(content, block)))
            block, size = [], 0
    if block:
        index.append((block[-1][0], _append(content, block)))
    handles = _append(content, []) + _append(content, index)
    return bytes(content) + handles.ljust(_FOOTER - len(_MAGIC), b"\0") + _MAGIC


def _block(content: bytes, place: tuple[int, int], source: str) -> bytes:
    """The block at an offset, of a size without its trailer, unpacked."""
    start, size = place
    stop = start + size
    if stop + _TRAILER > len(content) - _FOOTER:
        raise WeightsError(f"{source}: damaged or cut short: a block lies outside the file")
    stored = int.from_bytes(content[stop + 1 : stop + _TRAILER], "little")
    if masked_crc32c(content[start : stop + 1]) != stored:
        raise WeightsError(f"{source}: damaged: the checksum of a block differs")
    kind = content[stop]
    if kind == _RAW:
        return content[start:stop]
    if kind != _SNAPPY:
        raise WeightsError(f"{source}: a block is compressed in an unknown way ({kind})")
    import pyarrow

    # Snappy's data begin with their length when unpacked.
    length, _ = read_varint(content[start:stop], 0, source)
    TABLE_BYTES.check(length, source)
    try:
        unpacked: bytes = pyarrow.decompress(content[start:stop], length, "snappy", asbytes=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise WeightsError(f"{source}: damaged: a block does not unpack ({error})") from None
    return unpacked


def _entries(block: bytes, source: str) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block; its end lists the places where a key is whole."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise WeightsError(f"{source}: damaged: a block is shorter than its list of restarts")
    key, at = b"", 0
    while at < end:
        shared, at = read_varint(block, at, source)
        unshared, at = read_varint(block, at, source)
        length, at = read_varint(block, at, source)
        value_at = at + unshared
        if shared > len(key) or value_at + length > end:
            raise WeightsError(f"{source}: damaged: an entry is longer than its block")
        key = key[:shared] + block[at:value_at]
        at = value_at + length
        yield key, block[value_at:at]


def _append(content: bytearray, entries: list[tuple[bytes, bytes]]) -> bytes:
    """Write a block of entries and its trailer; returns its handle."""
    block, restarts, before = bytearray(), [0], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % _RESTART_INTERVAL:
            shortest = min(len(key), len(before))
            while shared < shortest and key[shared] == before[shared]:
                shared += 1
        elif number:
            restarts.append(len(block))
        block += varint(shared) + varint(len(key) - shared) + varint(len(value))
        block += key[shared:] + value
        before = key
    for number in (*restarts, len(restarts)):
        block += number.to_bytes(4, "little")
    handle = varint(len(content)) + varint(len(block))
    block.append(_RAW)
    content += block + masked_crc32c(block).to_bytes(4, "little")
    return handle


def _read_handle(data: bytes, at: int, source: str) -> tuple[tuple[int, int], int]:
    """A block's (offset, size), and where the handle ends."""
    offset, at = read_varint(data, at, source)
    size, at = read_varint(data, at, source)
    return (offset, size), at
