"""A graph with the parts of an exported encoder that check_graph looks for, made in a moment."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tidybert.configuration import BertConfig

CONFIG = BertConfig(
    vocab_size=24,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
)
WORDS = "model.embeddings.word_embeddings.weight"


def tiny_graph(**tensors: Any) -> ModelProto:
    """Softmax over products of the words' embeddings; ``tensors`` replaces some by their names."""
    rng = np.random.default_rng(0)
    shapes = {WORDS: (24, 4), "joint": (4, 12), "output": (12, 4)}
    values = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gather", [WORDS, "input_ids"], ["states"]),
        helper.make_node("MatMul", ["states", "joint"], ["wide"]),
        helper.make_node("Softmax", ["wide"], ["softmax"], axis=-1),
        helper.make_node("MatMul", ["softmax", "output"], ["last_hidden_state"]),
    ]
    info, axes = helper.make_tensor_value_info, ["batch_size", "sequence_length"]
    return helper.make_model(
        helper.make_graph(
            nodes,
            "main",
            [info("input_ids", TensorProto.INT64, axes)],
            [info("last_hidden_state", TensorProto.FLOAT, [*axes, 4])],
            [numpy_helper.from_array(each, name) for name, each in (values | tensors).items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )


def write_graph(folder: Path, graph: ModelProto | bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(graph if isinstance(graph, bytes) else graph.SerializeToString())
    return path
