"""TensorFlow's checkpoints (V2, a "tensor bundle"), read and written without TensorFlow.

NAME.index is a sorted table: under the empty key a header, then under each variable's name its
dtype, shape, and place in NAME.data-00000-of-00001, whose tensors lie end to end.  Source:
tensorflow/core/protobuf/tensor_bundle.proto and tensorflow/core/util/tensor_bundle/.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from tidybert.checkpoints.crc32c import masked_crc32c
from tidybert.checkpoints.sorted_table import read_table, write_table
from tidybert.checkpoints.tensor_shards import shards_of
from tidybert.checkpoints.wire_format import (
    Fields,
    bytes_field,
    fixed32_field,
    number_field,
    read_fields,
)
from tidybert.errors import WeightsError
from tidybert.storage.atomic_files import atomic_write_bytes
from tidybert.storage.limits import TABLE_BYTES
from tidybert.storage.opening import open_regular, os_reason, present, read_bytes

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
        self.num_shards = _number(header, 1)
        if not 0 < self.num_shards <= _MOST_SHARDS or _number(header, 2):
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
            _number(read_fields(dimension, str(self.path)), 1)
            for shape in _messages(fields, 2)
            for dimension in _messages(read_fields(shape, str(self.path)), 2)
        )
        variable = Variable(
            name=name,
            dtype=_DTYPES.get(_number(fields, 1)),
            shape=shape,
            shard=_number(fields, 3),
            offset=_number(fields, 4),
            size=_number(fields, 5),
            checksum=_number(fields, 6),
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

    ``max_bytes`` cuts the data as ``shards_of`` does; None: one file.  Raises DiskError where a
    file cannot be written; the index then is not there.
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


def _number(fields: Fields, number: int) -> int:
    """The last value of a field with a number, 0 where it is missing."""
    value = fields.get(number, [0])[-1]
    return value if isinstance(value, int) else 0


def _messages(fields: Fields, number: int) -> list[bytes]:
    """The values of a field with messages."""
    return [value for value in fields.get(number, []) if isinstance(value, bytes)]
