"""Tensor files round trip, and a damaged or hostile one is an error that says what is wrong."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from tidybert.checkpoints import tensor_files
from tidybert.checkpoints.tensor_files import check_finite, read_tensors, write_tensors
from tidybert.errors import DiskError, LimitError, WeightsError

TENSORS = {
    "a.weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "a.bias": torch.tensor([1.0, -2.0]),
    "count": torch.tensor(3),
}
Same = Callable[[dict[str, Tensor], dict[str, Tensor]], bool]

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
]


def safetensors_bytes(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of the format: eight bytes of length, a JSON header, the data."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def header_of(**entries: Any) -> bytes:
    return json.dumps(entries).encode()


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_round_trip_through_a_directory(tmp_path: Path, same_state: Same) -> None:
    path = write_tensors(tmp_path, TENSORS)
    assert path == tmp_path / "model.safetensors"
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    assert same_state(read_tensors(tmp_path), TENSORS)
    assert same_state(read_tensors(path), TENSORS)
    assert same_state(load_file(path), TENSORS)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o007, 0o660)])
def test_a_file_has_the_permissions_of_any_other(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        assert write_tensors(tmp_path, TENSORS).stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
            lambda name: name != "__metadata__"
        ),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)),
        max_size=5,
    )
)
def test_round_trip_of_any_names_dtypes_and_shapes(
    tmp_path_factory: pytest.TempPathFactory,
    same_state: Same,
    specification: dict[str, tuple[torch.dtype, list[int]]],
) -> None:
    tensors = {
        name: torch.randint(0, 2, shape).to(dtype) for name, (dtype, shape) in specification.items()
    }
    path = write_tensors(tmp_path_factory.mktemp("tensors") / "x.safetensors", tensors)
    found = read_tensors(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name].double(), tensor.double())


def test_views_shared_and_transposed_tensors_are_stored_apart(
    tmp_path: Path, same_state: Same
) -> None:
    whole = torch.arange(12.0).view(6, 2)
    q, k, v = whole.chunk(3)
    tensors = {"whole": whole, "q": q, "k": k, "v": v, "again": whole, "turned": whole.T}
    parameter = torch.nn.Parameter(torch.ones(2))
    write_tensors(tmp_path, {**tensors, "p": parameter})
    assert same_state(read_tensors(tmp_path), {**tensors, "p": parameter.detach()})


def test_the_same_tensors_make_the_same_bytes(tmp_path: Path) -> None:
    a = write_tensors(tmp_path / "a.safetensors", TENSORS)
    b = write_tensors(tmp_path / "b.safetensors", dict(reversed(TENSORS.items())))
    assert a.read_bytes() == b.read_bytes()


def test_what_was_read_outlives_its_file(tmp_path: Path, same_state: Same) -> None:
    write_tensors(tmp_path, TENSORS)
    found = read_tensors(tmp_path)
    write_tensors(tmp_path, {name: torch.zeros_like(t) for name, t in TENSORS.items()})
    assert same_state(found, TENSORS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    stored = {"w": torch.tensor([1.5, -0.25]).to(dtype), "n": torch.tensor([7])}
    write_tensors(tmp_path, stored)
    found = read_tensors(tmp_path)
    assert found["w"].dtype == dtype
    assert found["w"].tolist() == [1.5, -0.25]
    assert found["n"].dtype == torch.int64


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_state: Same
) -> None:
    write_tensors(tmp_path, TENSORS)

    def full(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidybert.checkpoints.tensor_files.save_file", full)
    with pytest.raises(DiskError, match=r"cannot be written: No space left on device; .* are free"):
        write_tensors(tmp_path, {"b": torch.ones(1)})
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert same_state(read_tensors(tmp_path), TENSORS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        safetensors_bytes(b"{}", length=2**63),
        safetensors_bytes(b"{}", length=200_000_000),
        safetensors_bytes(b"{}", length=3),
        safetensors_bytes(b"[1]"),
        safetensors_bytes(header_of(a=entry(0, 8, [2])), b"\x00" * 7),
        safetensors_bytes(header_of(a=entry(0, 8, [2])), b"\x00" * 9),
        safetensors_bytes(header_of(a=entry(8, 0, [2])), b"\x00" * 8),
        safetensors_bytes(header_of(a=entry(4, 12, [2])), b"\x00" * 12),
        safetensors_bytes(header_of(a=entry(0, 2**62, [2**60])), b"\x00" * 8),
        safetensors_bytes(header_of(a=entry(0, 8, [2**33, 2**33])), b"\x00" * 8),
        safetensors_bytes(header_of(a=entry(0, 8, [3])), b"\x00" * 8),
        safetensors_bytes(header_of(a=entry(0, 8, [-2])), b"\x00" * 8),
        safetensors_bytes(header_of(a=entry(0, 8, [2]), b=entry(4, 12, [2])), b"\x00" * 12),
    ],
)
def test_a_hostile_safetensors_is_a_weights_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="truncated or damaged") as caught:
        read_tensors(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"not json", "header: not valid JSON"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "header: (more than 100|101) levels of nesting"),
        (b" " * (2**24 + 1), "16,777,217 bytes; the limit for the header of weights is"),
        (header_of(a=entry(0, 8, [2]))[:-1] + b', "a": 1}', "header: .* the key 'a' appears"),
        *(
            (header_of(a=entry(0, 8, [1], dtype)), f"'a' has the dtype {dtype}; weights are read")
            for dtype in ("F64", "F8_E4M3", "I32", "BOOL", "F99")
        ),
        (
            json.dumps({n: {"dtype": "F32"} for n in range(100_001)}).encode(),
            "100,001 tensors; the limit for",
        ),
    ],
)
def test_a_header_that_the_library_would_let_pass(tmp_path: Path, header: bytes, said: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes(header, b"\x00" * 8))
    with pytest.raises((WeightsError, LimitError), match=f"{path}: {said}"):
        read_tensors(path)


def test_a_header_is_parsed_a_few_times_whatever_the_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    plain = tensor_files.safe_open
    monkeypatch.setattr(
        tensor_files,
        "safe_open",
        lambda *given, **named: opened.append(1) or plain(*given, **named),
    )
    path = tmp_path / "model.safetensors"
    names = (f"x{number}" for number in range(3000))
    path.write_bytes(safetensors_bytes(header_of(**{name: entry(0, 0, [0]) for name in names})))

    assert len(read_tensors(path)) == 3000

    assert len(opened) <= 3


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_a_link_to_nowhere_is_not_passed_over_for_other_weights(tmp_path: Path, name: str) -> None:
    torch.save(TENSORS, tmp_path / "pytorch_model.bin")
    (tmp_path / name).symlink_to("nowhere")
    with pytest.raises(WeightsError, match=f"{name}: cannot be read: it is a link to nowhere"):
        read_tensors(tmp_path, allow_pickle=True)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pipe_in_the_place_of_weights_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(WeightsError, match="it is a named pipe; a regular file is expected"):
        read_tensors(tmp_path, allow_pickle=True)


@given(st.data())
def test_a_cut_or_altered_file_never_escapes_as_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = write_tensors(tmp_path_factory.mktemp("cut"), TENSORS)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
        path.write_bytes(content)
        with pytest.raises(WeightsError):
            read_tensors(path)
        return
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read_tensors(path)
    except (WeightsError, LimitError):
        return


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_counted(
    tmp_path: Path, dtype: torch.dtype, value: float
) -> None:
    weight = torch.zeros(3, 4, dtype=dtype)
    weight[1, 2:] = value
    write_tensors(tmp_path, {"fine": torch.ones(2), "x.weight": weight})
    with pytest.raises(WeightsError, match=r"not finite in x.weight \(2 of 12\)"):
        read_tensors(tmp_path)


def test_only_a_few_damaged_tensors_are_named() -> None:
    tensors = {f"w{i}": torch.tensor([float("nan")]) for i in range(9)}
    with pytest.raises(WeightsError, match=r"w4 \(1 of 1\) and 4 more"):
        check_finite(tensors, "here")
    check_finite({"n": torch.tensor([2])}, "here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_large_values_are_finite_though_their_sum_is_not(dtype: torch.dtype) -> None:
    check_finite({"w": torch.full((9,), torch.finfo(dtype).max, dtype=dtype)}, "here")


def test_an_empty_or_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no weights here"):
        read_tensors(tmp_path)
    with pytest.raises(WeightsError, match="no such file or directory"):
        read_tensors(tmp_path / "absent")


def write_parts(directory: Path, weight_map: dict[str, Any] | None = None) -> Path:
    """TENSORS in two parts and their index, whose map may be replaced."""
    names = list(TENSORS)
    parts = {"one.safetensors": names[:2], "two.safetensors": names[2:]}
    for part, its_names in parts.items():
        save_file({name: TENSORS[name] for name in its_names}, directory / part)
    true_map = {name: part for part, its_names in parts.items() for name in its_names}
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": true_map if weight_map is None else weight_map}))
    return index


def test_parts_are_read_as_one(tmp_path: Path, same_state: Same) -> None:
    index = write_parts(tmp_path)
    assert same_state(read_tensors(tmp_path), TENSORS)
    assert same_state(read_tensors(index), TENSORS)


def test_parts_as_transformers_writes_them(
    make_reference: Callable[..., Any], tmp_path: Path, same_state: Same
) -> None:
    model = make_reference("BertModel")
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert same_state(read_tensors(tmp_path), dict(model.state_dict()))


@pytest.mark.parametrize(
    ("weight_map", "said"),
    [
        ({"a.weight": "../one.safetensors"}, "not a plain file name"),
        ({"a.weight": "/etc/passwd"}, "not a plain file name"),
        ({"a.weight": "folder\\one.safetensors"}, "not a plain file name"),
        ({"a.weight": ".."}, "not a plain file name"),
        ({"a.weight": "x\x00.safetensors"}, "not a plain file name"),
        ({"a.weight": "three.safetensors"}, "missing"),
        ({"a.weight": 3}, "missing"),
        ({"other": "one.safetensors"}, "'other' is not in its part 'one.safetensors'"),
        (
            {"a.weight": "two.safetensors", "a.bias": "one.safetensors"},
            "holds 'a.weight', which model.safetensors.index.json places in 'two.safetensors'",
        ),
        ({}, "no 'weight_map'"),
        ([], "no 'weight_map'"),
    ],
)
def test_a_hostile_index(tmp_path: Path, weight_map: Any, said: str) -> None:
    write_parts(tmp_path, weight_map)
    with pytest.raises(WeightsError, match=said):
        read_tensors(tmp_path)


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    write_parts(tmp_path, {"a.bias": "one.safetensors", "count": "two.safetensors"})
    save_file({"a.weight": torch.ones(2), "count": torch.tensor(3)}, tmp_path / "two.safetensors")
    with pytest.raises(WeightsError, match=r"'a\.weight' is in another part too"):
        read_tensors(tmp_path)


def test_a_damaged_index(tmp_path: Path) -> None:
    write_parts(tmp_path).write_text("{")
    with pytest.raises(WeightsError, match="not valid JSON"):
        read_tensors(tmp_path)


def test_a_pickle_is_read_only_on_request(tmp_path: Path, same_state: Same) -> None:
    torch.save(TENSORS, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="allow_pickle=True"):
        read_tensors(tmp_path)
    assert same_state(read_tensors(tmp_path, allow_pickle=True), TENSORS)


def test_pickled_parts(tmp_path: Path, same_state: Same) -> None:
    torch.save(TENSORS, tmp_path / "pytorch_model-00001-of-00001.bin")
    weight_map = dict.fromkeys(TENSORS, "pytorch_model-00001-of-00001.bin")
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(WeightsError, match="allow_pickle=True"):
        read_tensors(tmp_path)
    assert same_state(read_tensors(tmp_path, allow_pickle=True), TENSORS)


class Attack:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("plain", [False, True])
def test_a_pickle_runs_no_code(tmp_path: Path, plain: bool) -> None:
    content = {"w": Attack(tmp_path / "written")}
    with (tmp_path / "pytorch_model.bin").open("wb") as file:
        if plain:
            pickle.dump(content, file, protocol=2)
        else:
            torch.save(content, file)
    with pytest.raises(WeightsError, match="cannot be read as weights alone"):
        read_tensors(tmp_path, allow_pickle=True)
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "not list"),
        ({"w": {"nested": torch.ones(1)}}, "'w' is dict, not a tensor"),
        ({3: torch.ones(1)}, "3 is Tensor"),
        ({"w": torch.ones(1).double()}, "'w' has the dtype torch.float64"),
        ({"w": torch.ones(2).to_sparse()}, "sparse"),
    ],
)
def test_a_pickle_of_something_else(tmp_path: Path, content: Any, said: str) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=said):
        read_tensors(tmp_path, allow_pickle=True)


@pytest.mark.parametrize("content", [b"", b"\x80", b"PK\x03\x04", b"\x00" * 100, b"x" * 100])
def test_a_damaged_pickle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(WeightsError, match="cannot be read as weights alone"):
        read_tensors(tmp_path, allow_pickle=True)


def test_safetensors_come_before_a_pickle(tmp_path: Path, same_state: Same) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    write_tensors(tmp_path, TENSORS)
    assert same_state(read_tensors(tmp_path, allow_pickle=True), TENSORS)


@pytest.mark.weights
def test_reads_minilm(minilm_directory: Path) -> None:
    tensors = read_tensors(minilm_directory)
    assert len(tensors) == 104
    assert tensors["embeddings.word_embeddings.weight"].shape == (30522, 384)
