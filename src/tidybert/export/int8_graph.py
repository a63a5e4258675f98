"""A graph in int8: weights with a scale for each output, activations with a scale for each row.

onnxruntime.quantization has one scale of activations a batch, so an answer would depend on its
company; here it has the same bits in any batch.  The operators are those of ONNX itself, and the
numbers those that ONNX Runtime is fast at: unsigned activations times signed weights.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

# Weights have 7 bits: sums of two products of 8 bits overflow on processors without VNNI.
_WEIGHT_MOST: Final = 63
_ROW_MOST: Final = 127
# The fewest outputs of a product for each of its inputs: the few outputs of a head stay exact.
_FEWEST_OUTPUTS: Final = 0.25
_VOCABULARY: Final = "word_embeddings.weight"
_CONSTANTS: Final = {
    "int8.axis": np.array([-1], np.int64),
    "int8.most": np.array(_ROW_MOST, np.float32),
    # What a row of zeros is divided by.
    "int8.tiny": np.array(1e-30, np.float32),
    # What 0 is as an unsigned number.
    "int8.middle": np.array(_ROW_MOST + 1, np.float32),
    "int8.zero": np.array(_ROW_MOST + 1, np.uint8),
}


def write_int8(source: Path, target: Path) -> None:
    """Write a graph of ``export_onnx`` with its products and its vocabulary in int8."""
    model = onnx.load(source)
    graph: Any = model.graph
    given = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    tensors = given | _CONSTANTS
    nodes: list[Any] = []
    rounded: set[str] = set()

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def rows_of(name: str) -> tuple[str, str]:
        """The names of a tensor's rows in int8, and of the largest magnitude in each."""
        largest, whole = f"{name}.largest", f"{name}.int8"
        if name not in rounded:
            rounded.add(name)
            magnitudes = add("Abs", [name], f"{name}.magnitudes")
            found = add("ReduceMax", [magnitudes, "int8.axis"], f"{name}.found", keepdims=1)
            add("Max", [found, "int8.tiny"], largest)
            factor = add("Div", ["int8.most", largest], f"{name}.factor")
            scaled = add("Mul", [name, factor], f"{name}.scaled")
            near = add("Round", [scaled], f"{name}.near")
            moved = add("Add", [near, "int8.middle"], f"{name}.moved")
            add("Cast", [moved], whole, to=TensorProto.UINT8)
        return whole, largest

    for node in graph.node:
        weights = node.input[{"MatMul": 1}.get(node.op_type, 0)] if node.input else ""
        values, output = given.get(weights), node.output[0]
        if values is None or values.ndim != 2:
            nodes.append(node)
        elif node.op_type == "MatMul" and values.shape[1] >= values.shape[0] * _FEWEST_OUTPUTS:
            name, scales = f"{weights}.int8", f"{weights}.scales"
            tensors[name], tensors[scales] = _rounded(values, 0, _WEIGHT_MOST)
            tensors[scales] /= _ROW_MOST
            rows, largest = rows_of(node.input[0])
            sums = add("MatMulInteger", [rows, name, "int8.zero"], f"{output}.sums")
            numbers = add("Cast", [sums], f"{output}.numbers", to=TensorProto.FLOAT)
            scaled = add("Mul", [numbers, scales], f"{output}.scaled")
            add("Mul", [scaled, largest], output)
        elif node.op_type == "Gather" and weights.endswith(_VOCABULARY):
            scales = f"{weights}.scales"
            tensors[weights], tensors[scales] = _rounded(values, 1, _ROW_MOST)
            taken = add("Gather", [weights, node.input[1]], f"{output}.int8", axis=0)
            numbers = add("Cast", [taken], f"{output}.numbers", to=TensorProto.FLOAT)
            scale = add("Gather", [scales, node.input[1]], f"{output}.scales", axis=0)
            add("Mul", [numbers, scale], output)
        else:
            nodes.append(node)
    read = {name for node in nodes for name in node.input}
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(
        numpy_helper.from_array(values, name) for name, values in tensors.items() if name in read
    )
    onnx.save(model, target)


def _rounded(
    values: npt.NDArray[np.float32], axis: int, most: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """(A, B) in int8, up to ``most``, and the scales that undo it: (B,) over axis 0, or (A, 1)."""
    scales = np.abs(values).max(axis=axis, keepdims=axis == 1) / np.float32(most)
    scales[scales == 0] = 1
    return np.round(values / scales).astype(np.int8), scales
