"""A graph of anybody: what names other files, code or other sizes is refused before a session."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from tests.tiny_graph import CONFIG, WORDS, tiny_graph, write_graph

from tidybert.checkpoints.graph_check import check_graph
from tidybert.errors import LimitError, WeightsError
from tidybert.storage.limits import GRAPH_BYTES, GRAPH_NODES, MESSAGE_FIELDS
from tidybert.storage.protobuf import bytes_field, number_field, numbers_of, read_fields, varint


def changed(change: Callable[[ModelProto], object]) -> ModelProto:
    graph = tiny_graph()
    change(graph)
    return graph


def with_node(operator: str, domain: str = "", **attributes: object) -> ModelProto:
    node = helper.make_node(operator, ["wide"], ["more"], domain=domain, **attributes)
    return changed(lambda model: model.graph.node.append(node))


def outside(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


BODY = helper.make_graph([], "body", [], [helper.make_tensor_value_info("x", 1, [1])])
FUNCTION = helper.make_function("own", "f", ["x"], ["y"], [], [])
HOSTILE = {
    "another file": (changed(outside), "field 13"),
    "a place elsewhere alone": (
        changed(lambda m: setattr(m.graph.initializer[0], "data_location", 1)),
        "where its values are",
    ),
    "a branch": (with_node("If", then_branch=BODY, else_branch=BODY), "'If'"),
    "a graph in a known operator": (with_node("Softmax", body=BODY), "field 6"),
    "a tensor in an attribute": (
        with_node("Softmax", value=numpy_helper.from_array(np.ones(2, "f4"))), "field 5"
    ),
    "an operator of its own": (with_node("MatMul", "evil"), "'evil.MatMul'"),
    "no operator": (with_node(""), "the operator ''"),
    "a function": (changed(lambda m: m.functions.append(FUNCTION)), "field 25"),
    "training": (changed(lambda m: m.training_info.add()), "field 20"),
    "another domain": (
        changed(lambda m: m.opset_import.append(helper.make_opsetid("own", 1))), "opset 1 of own"
    ),
    "an old opset": (changed(lambda m: setattr(m.opset_import[0], "version", 13)), "opset 13 of"),
    "a new opset": (
        changed(lambda m: setattr(m.opset_import[0], "version", 99)), "a newer tidybert may"
    ),
    "no opset": (changed(lambda m: m.ClearField("opset_import")), "no ONNX file"),
    "no graph": (changed(lambda m: m.ClearField("graph")), "no ONNX file"),
    "a sparse tensor": (
        changed(lambda m: m.graph.sparse_initializer.add(dims=[2])), "field 15"
    ),
    "texts": (
        changed(lambda m: m.graph.initializer.append(helper.make_tensor("t", 8, [1], [b"x"]))),
        "field 6",
    ),
    "numbers outside of the bytes": (
        changed(lambda m: m.graph.initializer.append(helper.make_tensor("t", 1, [1], [2.0]))),
        "field 4",
    ),
    "fewer bytes": (
        changed(lambda m: m.graph.initializer[0].dims.append(2)), "has 384 bytes"
    ),
    "a shape of 2^126 values": (
        changed(lambda m: m.graph.initializer[0].dims.extend([2**62, 2**62])), "has 384 bytes"
    ),
    "a negative size": (changed(lambda m: m.graph.initializer[0].dims.append(-1)), "has 384"),
    "a hundred axes": (changed(lambda m: m.graph.initializer[0].dims.extend([1] * 99)), "has 384"),
    "not a number": (tiny_graph(joint=np.full((4, 12), np.nan, "f4")), "joint: values are not fin"),
    "another vocabulary": (tiny_graph(**{WORDS: np.ones((23, 4), "f4")}), "vocab_size 24"),
    "another width": (tiny_graph(joint=np.ones((4, 8), "f4")), "hidden_size 4 and num_hidden"),
    "another inner width": (tiny_graph(output=np.ones((8, 4), "f4")), "intermediate_size 12"),
    "more layers": (with_node("Softmax"), "2 layers, and config.json beside it says num_hidden_la"),
    "nothing": (b"", "the file is empty"),
    "a pickle": (b"\x80\x04\x95cos\nsystem\n", "model.onnx"),
    "zeros": (bytes(2000), "model.onnx"),
    "a length of 2^63": (b"\x3a" + varint(2**63), "longer than its message"),
    "a number without an end": (b"\xff" * 40, "does not end"),
}  # fmt: skip


def test_a_good_graph_passes_and_is_named(tmp_path: Path) -> None:
    path = write_graph(tmp_path, tiny_graph())

    found = check_graph(path, CONFIG)

    assert found == (("input_ids",), ("last_hidden_state",))
    assert len(onnxruntime.InferenceSession(path).get_outputs()) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_what_our_export_never_writes_is_refused(name: str, tmp_path: Path) -> None:
    graph, said = HOSTILE[name]

    with pytest.raises(WeightsError) as caught:
        check_graph(write_graph(tmp_path, graph), CONFIG)

    assert said in str(caught.value)
    assert str(tmp_path / "model.onnx") in str(caught.value)


def test_tables_have_the_rows_of_the_configuration(tmp_path: Path) -> None:
    graph = tiny_graph(**{"e.position_embeddings.weight": np.ones((16, 4), "f4")})
    path = write_graph(tmp_path, graph)
    check_graph(path, CONFIG)

    with pytest.raises(WeightsError, match=r"position_embeddings.weight of \[16, 4\].* 32"):
        check_graph(path, replace(CONFIG, max_position_embeddings=32))


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = write_graph(tmp_path, b"")
    with path.open("wb") as file:
        file.truncate(GRAPH_BYTES.value + 1)
    with pytest.raises(LimitError, match="an ONNX graph"):
        check_graph(path, CONFIG)

    node = bytes_field(1, b"")
    message = b"".join(
        [bytes_field(8, number_field(2, 20)), bytes_field(7, node * (GRAPH_NODES.value + 1))]
    )
    with pytest.raises(LimitError, match="operations"):
        check_graph(write_graph(tmp_path, message), CONFIG)
    with pytest.raises(LimitError, match="fields"):
        read_fields(node * (MESSAGE_FIELDS.value + 1), "x")


def test_packed_numbers_are_those_that_lie_apart() -> None:
    apart = number_field(1, 3) + number_field(1, 300)

    packed = bytes_field(1, varint(3) + varint(300))

    for each in (apart, packed):
        assert numbers_of(read_fields(memoryview(each), "x"), 1, "x") == [3, 300]


def test_the_reader_finds_what_onnx_finds(tmp_path: Path) -> None:
    content = tiny_graph().SerializeToString()

    fields = read_fields(content, "x")

    theirs = {each.number: value for each, value in onnx.load_from_string(content).ListFields()}
    assert fields.keys() == theirs.keys()
