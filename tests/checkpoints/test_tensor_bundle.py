"""TensorFlow's checkpoints: literal checksums, round trips, the published ones, and damage."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.checkpoints.tensorflow_bundle import (
    TensorBundle,
    crc32c,
    masked_crc32c,
    read_table,
    to_tensorflow,
    write_bundle,
    write_table,
)
from tidybert.checkpoints.weights import to_huggingface
from tidybert.configuration import BertConfig
from tidybert.errors import LimitError, TidyBertError, WeightsError
from tidybert.modeling import Rows
from tidybert.modeling.heads import BertForPreTraining
from tidybert.storage.limits import TABLE_BYTES
from tidybert.storage.protobuf import read_varint, varint

# 2 kB with every dtype, a scalar, an empty tensor and a name that is not ASCII.
TENSORS = {
    "bert/embeddings/word_embeddings": torch.arange(12.0).reshape(3, 4),
    "bert/pooler/dense/kernel": torch.randn(4, 4, generator=torch.Generator().manual_seed(0)),
    "bert/pooler/dense/bias": torch.ones(4, dtype=torch.float16),
    "cls/größe": torch.zeros(2, 0),
    "global_step": torch.tensor(7),
    "half": torch.ones(3, dtype=torch.bfloat16),
}


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_checksums_are_the_published_ones(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


@pytest.mark.parametrize("length", [1, 4095, 4096, 4097, 3 * 4096 + 17])
def test_lanes_change_no_checksum(length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    expected = 0xFFFFFFFF
    for byte in data:
        expected ^= byte
        for _ in range(8):
            expected = expected >> 1 ^ (0x82F63B78 if expected & 1 else 0)

    assert crc32c(data) == expected ^ 0xFFFFFFFF


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_varints_come_back(number: int, after: bytes) -> None:
    written = varint(number)

    assert read_varint(written + after, 0, "x") == (number, len(written))


@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=200), max_size=60))
def test_a_table_comes_back(entries: dict[bytes, bytes]) -> None:
    ordered = sorted(entries.items())

    assert list(read_table(write_table(ordered), "x")) == ordered


def test_a_table_of_several_blocks_comes_back() -> None:
    entries = [(f"{i:06}".encode(), bytes(1000)) for i in range(500)]

    assert list(read_table(write_table(entries), "x")) == entries


def test_a_bundle_comes_back_to_the_bit(tmp_path: Path) -> None:
    index = tmp_path / "model.ckpt.index"

    write_bundle(index, TENSORS)

    bundle = TensorBundle(index)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.ckpt.data-00000-of-00001",
        "model.ckpt.index",
    ]
    assert list(bundle.variables) == sorted(TENSORS)
    for name, tensor in TENSORS.items():
        found = bundle.read(name)
        assert found.dtype == tensor.dtype
        assert torch.equal(found, tensor)


@pytest.mark.real_data
def test_the_complete_checkpoint_is_read_and_its_139_checksums_match(real_data: Path) -> None:
    bundle = TensorBundle(real_data / "tf/tiny/bert_model.ckpt.index")

    assert len(bundle.variables) == 139
    for name, variable in bundle.variables.items():
        assert bundle.read(name).shape == variable.shape


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("chinese_L-12_H-768_A-12", 206, (21128, 768)),
        ("uncased_L-8_H-512_A-8", 142, (30522, 512)),
    ],
)
def test_an_index_alone_lists_names_and_shapes_and_says_what_is_missing(
    real_data: Path, name: str, count: int, words: tuple[int, int]
) -> None:
    directory = ModelDirectory(real_data / "tf" / name)

    bundle = TensorBundle(directory.path / "bert_model.ckpt.index")

    assert len(bundle.variables) == count
    assert bundle.variables["bert/embeddings/word_embeddings"].shape == words
    with pytest.raises(WeightsError, match=r"bert_model\.ckpt\.data-00000-of-00001: .* is missing"):
        directory.tensors()


@pytest.mark.real_data
def test_the_checkpoint_is_a_model_with_both_heads(real_data: Path) -> None:
    """Its answers are those of the formulas of modeling.py, in NumPy and from the variables."""
    directory = ModelDirectory(real_data / "tf/tiny")
    bundle = TensorBundle(directory.path / "bert_model.ckpt.index")
    value = {name: bundle.read(name).double().numpy() for name in bundle.variables}
    ids = list(directory.tokenizer.encode_batch(["all work and no play"])[0])
    model, report = directory.build(BertForPreTraining)
    model.eval()

    with torch.inference_mode():
        found = model(Rows.from_lists([ids]))

    assert (report.new, report.ignored) == ((), ("93 variables of the optimizer",))
    words, pairs = _forward(value, ids, num_layers=2, num_heads=4)
    np.testing.assert_allclose(found.prediction_logits.numpy(), words, atol=1e-5)
    np.testing.assert_allclose(found.seq_relationship_logits.numpy()[0], pairs, atol=1e-5)


def _forward(
    value: dict[str, np.ndarray], ids: list[int], num_layers: int, num_heads: int
) -> tuple[np.ndarray, np.ndarray]:
    """The logits of the words (T, V) and of the pair (2,)."""
    erf = torch.special.erf

    def dense(states: np.ndarray, name: str) -> np.ndarray:
        return states @ value[f"{name}/kernel"] + value[f"{name}/bias"]

    def norm(states: np.ndarray, name: str) -> np.ndarray:
        centred = states - states.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return (
            centred / deviation * value[f"{name}/LayerNorm/gamma"] + value[f"{name}/LayerNorm/beta"]
        )

    def gelu(states: np.ndarray) -> np.ndarray:
        return states * 0.5 * (1 + erf(torch.from_numpy(states) / 2**0.5).numpy())

    words = value["bert/embeddings/word_embeddings"]
    states = words[ids] + value["bert/embeddings/position_embeddings"][: len(ids)]
    states = norm(states + value["bert/embeddings/token_type_embeddings"][0], "bert/embeddings")
    for layer in range(num_layers):
        name = f"bert/encoder/layer_{layer}"
        query, key, content = (
            dense(states, f"{name}/attention/self/{each}").reshape(len(ids), num_heads, -1)
            for each in ("query", "key", "value")
        )
        scores = np.exp(np.einsum("qhd,khd->hqk", query, key) / query.shape[-1] ** 0.5)
        probs = scores / scores.sum(-1, keepdims=True)
        context = np.einsum("hqk,khd->qhd", probs, content).reshape(len(ids), -1)
        output = f"{name}/attention/output"
        states = norm(states + dense(context, f"{output}/dense"), output)
        inner = gelu(dense(states, f"{name}/intermediate/dense"))
        states = norm(states + dense(inner, f"{name}/output/dense"), f"{name}/output")
    transform = "cls/predictions/transform"
    hidden = norm(gelu(dense(states, f"{transform}/dense")), transform)
    pooled = np.tanh(dense(states[0], "bert/pooler/dense"))
    pair = "cls/seq_relationship/output"
    return (
        hidden @ words.T + value["cls/predictions/output_bias"],
        pooled @ value[f"{pair}_weights"].T + value[f"{pair}_bias"],
    )


def test_two_checkpoints_in_a_directory_are_refused(tmp_path: Path) -> None:
    for name in ("a.ckpt.index", "b.ckpt.index"):
        write_bundle(tmp_path / name, TENSORS)

    with pytest.raises(WeightsError, match=r"2 TensorFlow checkpoints \(a.ckpt.index, b.ckpt"):
        read_tensors(tmp_path)


def test_a_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt.index", {"conv/kernel": torch.ones(2)})

    with pytest.raises(WeightsError, match="none of its 1 variables is of the original BERT code"):
        read_tensors(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write_bundle(folder / "model.ckpt.index", TENSORS)
    return folder


@given(st.data())
def test_no_byte_can_change_unnoticed(written: Path, data: st.DataObject) -> None:
    """A changed byte or a cut in either file is an error of ours, or changes nothing."""
    content = {path.name: path.read_bytes() for path in written.iterdir() if path.is_file()}
    name = data.draw(st.sampled_from(sorted(content)))
    place = data.draw(st.integers(0, len(content[name]) - 1))
    damaged = bytearray(content[name])
    if data.draw(st.booleans()):
        damaged[place] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[place:]
    folder = written / "damaged"
    folder.mkdir(exist_ok=True)
    for each, original in content.items():
        (folder / each).write_bytes(damaged if each == name else original)

    try:
        bundle = TensorBundle(folder / "model.ckpt.index")
        found = {each: bundle.read(each) for each in bundle.variables}
    except TidyBertError:
        return
    finally:
        shutil.rmtree(folder)
    # The padding of the footer is the only part that nothing reads.
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[each], TENSORS[each]) for each in found)


def _snappy_table(block: bytes, length: int | None = None) -> bytes:
    """A table whose only block of entries is compressed, and says that it has this length."""
    packed = bytes(pyarrow.compress(block, "snappy", asbytes=True))
    if length is not None:
        packed = varint(length) + packed[len(varint(len(block))) :]
    stored = packed + b"\x01"
    content = stored + masked_crc32c(stored).to_bytes(4, "little")
    whole = write_table([(b"key", varint(0) + varint(len(packed)))])
    # The block of this table, with the handle as its value, becomes the index block.
    inner = whole[: whole.index(b"key") + 5]
    body = inner + (0).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"\x00"
    index = body + masked_crc32c(body).to_bytes(4, "little")
    handles = varint(0) + varint(0) + varint(len(content)) + varint(len(body) - 1)
    return content + index + handles.ljust(40, b"\0") + whole[-8:]


def test_a_compressed_block_is_unpacked() -> None:
    # shared 0, unshared 1, length 2; then one restart at 0
    block = b"\x00\x01\x02kvv" + bytes(4) + b"\x01\0\0\0"

    assert list(read_table(_snappy_table(block), "x")) == [(b"k", b"vv")]


def test_a_block_that_unpacks_to_too_much_is_refused() -> None:
    with pytest.raises(LimitError, match="a TensorFlow checkpoint's index"):
        list(read_table(_snappy_table(bytes(8), TABLE_BYTES.value + 1), "x"))


def test_a_block_of_another_length_is_refused() -> None:
    with pytest.raises(WeightsError, match="does not unpack"):
        list(read_table(_snappy_table(bytes(8), 1000), "x"))


@pytest.mark.parametrize("content", [b"", b"text", bytes(48), b"\xff" * 100])
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(WeightsError, match="not a TensorFlow checkpoint's index"):
        list(read_table(content, "x"))


def test_a_directory_of_the_original_code_is_a_model(tmp_path: Path) -> None:
    """BERT's states under the original names and layout; the optimizer's are left out."""
    config = BertConfig(
        vocab_size=7, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8
    )
    model = BertForPreTraining(config).eval()
    theirs = to_tensorflow(to_huggingface(model.state_dict(), config))
    for name in list(theirs):
        theirs[f"{name}/adam_m"] = theirs[f"{name}/adam_v"] = torch.zeros(1)
    theirs["global_step"] = torch.tensor(9)
    write_bundle(tmp_path / "bert_model.ckpt.index", theirs)
    (tmp_path / "bert_config.json").write_text(json.dumps(config.to_dict()))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")

    found, report = ModelDirectory(tmp_path).build(BertForPreTraining)

    assert theirs["bert/encoder/layer_1/intermediate/dense/kernel"].shape == (4, 8)
    assert (report.new, report.ignored) == ((), ("93 variables of the optimizer",))
    assert all(
        torch.equal(tensor, model.state_dict()[name]) for name, tensor in found.state_dict().items()
    )


def test_a_head_of_ours_alone_has_no_name_there() -> None:
    with pytest.raises(WeightsError, match=r"lm_head\.bias has no name in a checkpoint"):
        to_tensorflow({"lm_head.bias": torch.ones(1)})
