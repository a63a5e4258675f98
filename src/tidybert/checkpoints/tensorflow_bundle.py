"""TensorFlow's checkpoints (V2, a "tensor bundle"), read and written without TensorFlow.

NAME.index is a sorted table: under the empty key a header, then under each variable's name its
dtype, shape, and place in NAME.data-00000-of-00001, whose tensors lie end to end.  Source:
tensorflow/core/protobuf/tensor_bundle.proto and tensorflow/core/util/tensor_bundle/.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.errors import WeightsError
from tidybert.storage.atomic_files import atomic_write_bytes
from tidybert.storage.limits import TABLE_BYTES, TENSORS
from tidybert.storage.opening import open_regular, os_reason, present, read_bytes
from tidybert.storage.protobuf import (
    Fields,
    bytes_field,
    fixed32_field,
    messages_of,
    number_field,
    number_of,
    read_fields,
    read_varint,
    varint,
)

# Tensors cut into shards, each a file of its own.


def shards_of(tensors: Mapping[str, Tensor], max_bytes: int | None) -> list[dict[str, Tensor]]:
    """The tensors in their order, cut where a shard would have more bytes; at least one shard.

    A tensor that is larger has a shard of its own.  None: one shard.
    """
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if max_bytes is not None and shards[-1] and size + tensor.nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards


# CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, on NumPy.
#
# The polynomial is that of RFC 3720, appendix B.4.  Long data is cut into lanes of one length,
# whose checksums are computed side by side, a byte of each at a time, and then joined.

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


# A sorted string table: the keys and values in which TensorFlow keeps a checkpoint's index.
#
#     blocks of entries | metaindex block | index block | footer of 48 bytes
#
# An entry holds only the part of its key that differs from the key before.  The index block has one
# entry for each block of entries: a key that none of them exceeds, and the block's place.  Source:
# doc/table_format.md of LevelDB; tensorflow/core/lib/io/format.cc and block_builder.cc.

_MAGIC: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER: Final = 48
# A byte for the compression, and the checksum of the block and that byte.
_TRAILER: Final = 5
_RAW, _SNAPPY = 0, 1
_RESTART_INTERVAL: Final = 16
_BLOCK_BYTES: Final = 2**18


def read_table(content: bytes, source: str) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table, in the order of the keys."""
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


INDEX: Final = ".index"
# tensorflow/core/framework/types.proto
_DTYPES: Final = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    9: torch.int64,
    14: torch.bfloat16,
    19: torch.float16,
}
_MOST_SHARDS: Final = 10_000


@dataclass(frozen=True)
class Variable:
    """A variable in the index.

    Args:
        dtype: None for one that no tensor of ours has, such as text.
        shard: number of the data file.
        offset, size: its bytes there.
        checksum: masked CRC-32C of its bytes.
    """

    name: str
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class TensorBundle:
    """The checkpoint whose index is at ``path``; reads the index at once, and tensors when asked.

    Raises:
        WeightsError: the index is missing, cut short or damaged, of another byte order, or says
            that a variable has other bytes than its shape and dtype.
        LimitError: the index is longer than TABLE_BYTES, or has more variables than TENSORS.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = read_bytes(path, TABLE_BYTES, error=WeightsError)
        entries = dict(read_table(content, str(path)))
        header = read_fields(entries.pop(b"", b""), str(path))
        self.num_shards = number_of(header, 1)
        if not 0 < self.num_shards <= _MOST_SHARDS or number_of(header, 2):
            raise WeightsError(
                f"{path}: not a checkpoint in little-endian order with 1 to {_MOST_SHARDS:,} data "
                "files"
            )
        found = (
            self._variable(key, read_fields(entry, str(path))) for key, entry in entries.items()
        )
        self.variables = {each.name: each for each in found}

    def data_file(self, shard: int) -> Path:
        """The path of a data file, which need not be there."""
        name = f"{self.path.stem}.data-{shard:05d}-of-{self.num_shards:05d}"
        return self.path.with_name(name)

    def read(self, name: str) -> Tensor:
        """A variable's tensor; WeightsError where its data file is missing, short or damaged."""
        variable = self.variables[name]
        path = self.data_file(variable.shard)
        if not present(path, error=WeightsError):
            raise WeightsError(
                f"{path}: this data file of the checkpoint is missing; {self.path.name} says that "
                f"{name} and its other variables are in {self.num_shards} data file(s) beside it"
            )
        with open_regular(path, error=WeightsError) as file:
            if variable.offset + variable.size > os.fstat(file.fileno()).st_size:
                raise WeightsError(
                    f"{path}: cut short: {name} ends at byte "
                    f"{variable.offset + variable.size:,}; copy or download it again"
                )
            try:
                content = bytearray(variable.size)
                file.seek(variable.offset)
                file.readinto(content)
            except MemoryError:
                raise WeightsError(f"{path}: too little memory to read {name}") from None
            except OSError as error:
                raise WeightsError(f"{path}: cannot be read: {os_reason(error)}") from None
        if masked_crc32c(content) != variable.checksum:
            raise WeightsError(f"{path}: the checksum of {name} differs: the file is damaged")
        assert variable.dtype is not None
        if not content:
            return torch.empty(variable.shape, dtype=variable.dtype)
        return torch.frombuffer(content, dtype=variable.dtype).reshape(variable.shape)

    def _variable(self, key: bytes, fields: Fields) -> Variable:
        name = key.decode(errors="replace")
        shape = tuple(
            number_of(read_fields(dimension, str(self.path)), 1)
            for shape in messages_of(fields, 2)
            for dimension in messages_of(read_fields(shape, str(self.path)), 2)
        )
        variable = Variable(
            name=name,
            dtype=_DTYPES.get(number_of(fields, 1)),
            shape=shape,
            shard=number_of(fields, 3),
            offset=number_of(fields, 4),
            size=number_of(fields, 5),
            checksum=number_of(fields, 6),
        )
        if fields.keys() & {7}:
            raise WeightsError(f"{self.path}: {name} is cut into slices; tidybert reads whole ones")
        if variable.shard >= self.num_shards:
            raise WeightsError(f"{self.path}: {name} is in a data file that does not exist")
        if variable.dtype is not None:
            size = variable.dtype.itemsize
            for dimension in shape:
                size *= dimension
            if size != variable.size:
                raise WeightsError(
                    f"{self.path}: {name} has {variable.size:,} bytes, and its shape "
                    f"{list(shape)!s:.60} in {variable.dtype} needs {size:,}"
                )
        return variable


def write_bundle(path: Path, tensors: Mapping[str, Tensor], max_bytes: int | None = None) -> None:
    """Write tensors on the CPU as the checkpoint with the index ``path`` and its data files.

    ``max_bytes`` cuts the data as ``shards_of`` does; None: one file.
    """
    kinds = {dtype: number for number, dtype in _DTYPES.items()}
    shards = shards_of({name: tensors[name] for name in sorted(tensors, key=str.encode)}, max_bytes)
    # The header: the number of data files, little-endian, and a version that says who wrote it.
    entries = [(b"", number_field(1, len(shards)) + bytes_field(3, number_field(1, 1)))]
    for number, shard in enumerate(shards):
        data = bytearray()
        for name, tensor in shard.items():
            content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            shape = b"".join(bytes_field(2, number_field(1, size)) for size in tensor.shape)
            entry = (
                number_field(1, kinds[tensor.dtype])
                + bytes_field(2, shape)
                + number_field(3, number)
                + number_field(4, len(data))
                + number_field(5, len(content))
                + fixed32_field(6, masked_crc32c(content))
            )
            entries.append((name.encode(), entry))
            data += content
        name = f"{path.stem}.data-{number:05d}-of-{len(shards):05d}"
        atomic_write_bytes(path.with_name(name), data)
    atomic_write_bytes(path, write_table(entries))


# The names of the original code's variables, in both directions, beside Hugging Face's.
#
# Source: modeling.py, run_classifier.py, run_squad.py and optimization.py of google-research/bert.

# Theirs to Hugging Face's, for names that are not cut at "/" and translated part by part.
_WHOLE: Final = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    **{
        f"bert/embeddings/{kind}_embeddings": f"bert.embeddings.{kind}_embeddings.weight"
        for kind in ("word", "position", "token_type")
    },
}
_WHOLE_BACK: Final = {theirs: ours for ours, theirs in _WHOLE.items()}
# The last part of every other name.  A kernel is (in, out), and its transpose the weight.
_KERNEL, _WEIGHT = "/kernel", ".weight"
_NORM: Final = {"/LayerNorm/gamma": ".LayerNorm.weight", "/LayerNorm/beta": ".LayerNorm.bias"}
_MODEL: Final = re.compile(r"(bert|cls)/.*(/kernel|/bias|/LayerNorm/gamma|/LayerNorm/beta)")
_OPTIMIZER: Final = re.compile(
    r"(.*/)?(adam_m|adam_v|global_step)(_\d+)?|.*/Adam(_1)?|beta[12]_power"
)


class Named(NamedTuple):
    """Variables under Hugging Face's names, and the names without one.

    Args:
        names: theirs to Hugging Face's.
        optimizer: of moments and of the step.
        unknown: the rest.
    """

    names: dict[str, str]
    optimizer: tuple[str, ...]
    unknown: tuple[str, ...]


def named(variables: Mapping[str, object]) -> Named:
    """Sort the names of a checkpoint."""
    names: dict[str, str] = {}
    optimizer, unknown = [], []
    for name in variables:
        if _OPTIMIZER.fullmatch(name):
            optimizer.append(name)
        elif name in _WHOLE:
            names[name] = _WHOLE[name]
        elif _MODEL.fullmatch(name):
            names[name] = _translated(name)
        else:
            unknown.append(name)
    return Named(names, tuple(optimizer), tuple(unknown))


def from_tensorflow(name: str, tensor: Tensor) -> Tensor:
    """A variable's tensor as Hugging Face has it."""
    return tensor.T.contiguous() if name.endswith(_KERNEL) else tensor


def to_tensorflow(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Hugging Face's tensors as the original code names and lays them."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        theirs = _WHOLE_BACK.get(name) or _translated_back(name)
        if theirs is None:
            raise WeightsError(f"{name} has no name in a checkpoint of the original code")
        found[theirs] = tensor.T.contiguous() if theirs.endswith(_KERNEL) else tensor
    return found


def _translated(name: str) -> str:
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    for theirs, ours in _NORM.items():
        name = name.replace(theirs, ours)
    return name.replace(_KERNEL, _WEIGHT).replace("/", ".")


def _translated_back(name: str) -> str | None:
    for theirs, ours in _NORM.items():
        name = name.replace(ours, theirs)
    name = re.sub(r"\.weight$", _KERNEL, name).replace(".", "/")
    name = re.sub(r"/layer/(\d+)/", r"/layer_\1/", name)
    return name if _MODEL.fullmatch(name) else None
