"""A check of an ONNX file of anybody, before a session is made: is it as our export writes it?

ONNX Runtime would read other files that a graph names, and run loops and functions in it.  Here is
read what the graph consists of: no tensor is copied, and the package onnx is not needed.  Source of
the numbers of fields: onnx/onnx.proto3.
"""

import math
import mmap
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError
from tidybert.storage.limits import GRAPH_BYTES, GRAPH_NODES, TENSORS
from tidybert.storage.model_files import CONFIG_FILE
from tidybert.storage.opening import open_regular, os_reason
from tidybert.storage.protobuf import (
    Fields,
    Message,
    messages_of,
    number_of,
    numbers_of,
    read_fields,
    texts_of,
)

OPSET: Final = 20
"""The first with a Gelu of its own."""
_OPERATORS: Final = """
    Abs Add And Cast Clip Concat Cos CumSum Div Equal Expand Gather Gelu Gemm LayerNormalization
    LessOrEqual MatMul MatMulInteger Max Mul Not Range ReduceL2 ReduceMax ReduceSum Relu
    Reshape Round Shape Sigmoid Sin Slice Softmax Split Squeeze Sub Tanh Transpose Unsqueeze Where
"""
OPERATORS: Final = frozenset(_OPERATORS.split())
"""All that ``export_onnx`` writes; none of them holds another graph or reads a file."""

# By the numbers in TensorProto.DataType: what tensors hold.
_DTYPES: Final = {1: "<f4", 2: "<u1", 3: "<i1", 7: "<i8", 9: "?"}
# The numbers of the fields that each message may have.  Others bring functions, sparse tensors, and
# data in other files.
_MODEL: Final = {1, 2, 3, 4, 5, 6, 7, 8, 14}
_GRAPH: Final = {1, 2, 5, 10, 11, 12, 13, 16}
_NODE: Final = {1, 2, 3, 4, 5, 6, 7, 9}
# Numbers, texts, and lists of them; none of the fields with tensors, graphs or names of arguments.
_ATTRIBUTE: Final = {1, 2, 3, 4, 7, 8, 9, 13, 20}
_TENSOR: Final = {1, 2, 8, 9, 12, 14, 16}
_MOST_AXES: Final = 8
_TABLES: Final = {
    "word_embeddings.weight": "vocab_size",
    "position_embeddings.weight": "max_position_embeddings",
    "token_type_embeddings.weight": "type_vocab_size",
}
"""The ends of the names of tables, and what config.json says of their rows."""
_AGAIN: Final = "convert the model again with tidybert convert --to onnx"


class GraphNames(NamedTuple):
    """The names of a graph's inputs and outputs, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def check_graph(path: Path, config: BertConfig) -> GraphNames:
    """The inputs and outputs of a graph that ONNX Runtime may open.

    Raises:
        WeightsError: it is damaged or no graph of our export: other operators, data in other files,
            values that are not finite, or sizes that are not those of ``config``.
        LimitError: it is too large.
    """
    with open_regular(path, error=WeightsError) as file:
        size = path.stat().st_size
        GRAPH_BYTES.check(size, path)
        if not size:
            raise WeightsError(f"{path}: the file is empty")
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as failure:
            raise WeightsError(f"{path}: cannot be read: {os_reason(failure)}") from None
        # An error keeps views of it alive, so it closes when the last of them goes.
        return _Check(path, config).model(memoryview(content))


class _Check:
    """The same, part by part."""

    def __init__(self, path: Path, config: BertConfig) -> None:
        self.path, self.config = path, config

    def model(self, view: Message) -> GraphNames:
        fields = self._read(view, _MODEL, "a model")
        opsets = [self._read(each, {1, 2}, "an opset") for each in messages_of(fields, 8)]
        for each in opsets:
            domain, version = "".join(texts_of(each, 1)), number_of(each, 2)
            if domain or version != OPSET:
                newer = "a newer tidybert may read it, or " if version > OPSET else ""
                raise self._error(
                    f"opset {version} of {domain or 'ONNX':.40}; tidybert reads opset {OPSET} of "
                    f"ONNX: {newer}{_AGAIN}"
                )
        graphs = messages_of(fields, 7)
        if len(graphs) != 1 or not opsets:
            raise self._error("damaged, or no ONNX file")
        graph = self._read(graphs[0], _GRAPH, "a graph")
        used = Counter(self._operators(graph))
        self._check_sizes(used["Softmax"], dict(self._tensors(graph)))
        return GraphNames(self._names(graph, 11), self._names(graph, 12))

    def _operators(self, graph: Fields) -> Iterator[str]:
        nodes = messages_of(graph, 1)
        GRAPH_NODES.check(len(nodes), self.path)
        for each in nodes:
            node = self._read(each, _NODE, "an operation")
            name = ".".join(filter(None, (*texts_of(node, 7), *texts_of(node, 4))))
            if name not in OPERATORS:
                raise self._error(f"the operator {name!r:.80}, which tidybert never writes")
            for attribute in messages_of(node, 5):
                self._read(attribute, _ATTRIBUTE, f"an attribute of {name}")
            yield name

    def _tensors(self, graph: Fields) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Their names and shapes, once their values have been looked at."""
        tensors = messages_of(graph, 5)
        TENSORS.check(len(tensors), self.path)
        for each in tensors:
            tensor = self._read(each, _TENSOR, "a tensor")
            name = f"{''.join(texts_of(tensor, 8)):.80}"
            shape = tuple(numbers_of(tensor, 1, str(self.path)))
            dtype = _DTYPES.get(number_of(tensor, 2))
            if dtype is None or number_of(tensor, 14):
                raise self._error(f"{name}: its type, or where its values are, is not ours")
            data = (messages_of(tensor, 9) or [b""])[0]
            if len(shape) > _MOST_AXES or len(data) != math.prod(shape) * np.dtype(dtype).itemsize:
                raise self._error(
                    f"damaged: {name} has {len(data):,} bytes, which are not those of its shape "
                    f"{list(shape)!s:.60}"
                )
            # A number alone may be what masks a score.
            if dtype == "<f4" and shape and not np.isfinite(np.frombuffer(data, dtype)).all():
                raise self._error(f"{name}: values are not finite")
            yield name, shape

    def _check_sizes(self, layers: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise WeightsError where the graph is that of another config.json."""
        config = self.config
        width, many = config.hidden_size, config.num_hidden_layers
        if layers != many:
            raise self._other(f"{layers} layers", f"num_hidden_layers {many}")
        counts = Counter(shapes.values())
        joint, output = (width, 3 * width), (config.intermediate_size, width)
        for key, pair in (("hidden_size", joint), ("intermediate_size", output)):
            if counts[pair] < many:
                raise self._other(
                    f"{counts[pair]} tensors of {pair[0]} x {pair[1]}",
                    f"{key} {getattr(config, key)} and num_hidden_layers {many}",
                )
        for table, key in _TABLES.items():
            for name, shape in shapes.items():
                if name.endswith(table) and shape[:1] != (getattr(config, key),):
                    raise self._other(f"{table} of {list(shape)}", f"{key} {getattr(config, key)}")

    def _names(self, graph: Fields, number: int) -> tuple[str, ...]:
        infos = (read_fields(each, str(self.path)) for each in messages_of(graph, number))
        return tuple("".join(texts_of(each, 1)) for each in infos)

    def _read(self, message: Message, known: Container[int], what: str) -> Fields:
        fields = read_fields(message, str(self.path))
        for number in fields:
            if number not in known:
                raise self._error(
                    f"{what} with field {number}, which may name another file or hold code"
                )
        return fields

    def _other(self, found: str, expected: str) -> WeightsError:
        return WeightsError(
            f"{self.path}: {found}, and {CONFIG_FILE} beside it says {expected}: these files do "
            f"not belong together; {_AGAIN}"
        )

    def _error(self, what: str) -> WeightsError:
        return WeightsError(f"{self.path}: {what}; {_AGAIN}")
