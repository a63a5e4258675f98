"""A corpus of hostile files for each format: each is refused in a second and 200 MiB.

test_readers.py mutates good files; these are crafted, with right checksums where a format has some.
"""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow
import pytest
import torch
from safetensors.torch import save_file

from tidybert.checkpoints import tensorflow_bundle as sorted_table
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.tensor_files import read_tensors
from tidybert.checkpoints.tensorflow_bundle import (
    TensorBundle,
    masked_crc32c,
    write_bundle,
    write_table,
)
from tidybert.configuration import BertConfig
from tidybert.errors import TidyBertError
from tidybert.storage.limits import JSON_BYTES, TABLE_BYTES, TENSORS, TOKENIZER_BYTES
from tidybert.storage.protobuf import bytes_field, fixed32_field, number_field, varint
from tidybert.tokenization import BertTokenizer

Refused = Callable[[Callable[[], object]], TidyBertError]
DEEP: Final = "[" * 100_000
NUMBER: Final = "9" * 10_000
LARGE: Final = 2**40


def sparse(path: Path, size: int, head: bytes = b"") -> None:
    """A file of any size that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


# --- safetensors

ENTRY: Final = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
EMPTY: Final = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
PAIR: Final = {"a": ENTRY, "b": ENTRY}


def weights(header: Any, data: bytes = bytes(8), length: int | None = None) -> bytes:
    text = header if isinstance(header, str) else json.dumps(header)
    size = len(text.encode()) if length is None else length
    return size.to_bytes(8, "little") + text.encode() + data


def entry(**changed: Any) -> dict[str, Any]:
    return {"a": {**ENTRY, **changed}}


SAFETENSORS: Final[dict[str, bytes]] = {
    "empty": b"",
    "shorter than a length": bytes(7),
    "no header": bytes(8),
    "a header of 2^63 bytes": weights("{}", length=2**63),
    "a header of 2^64 - 1 bytes": weights("{}", length=2**64 - 1),
    "a header longer than the file": weights("{}", length=100),
    "a header cut short": weights({"a": ENTRY}, length=20),
    "not JSON": weights("weights"),
    "a list": weights("[]"),
    "a deep header": weights(DEEP),
    "a deep object": weights('{"a":' * 100_000),
    "NaN for an offset": weights('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,NaN]}}'),
    "a number of 10,000 digits": weights(
        f'{{"a":{{"dtype":"F32","shape":[{NUMBER}],"data_offsets":[0,8]}}}}'
    ),
    "a name twice": weights(f'{{"a":{json.dumps(ENTRY)},"a":{json.dumps(ENTRY)}}}'),
    "a negative offset": weights(entry(data_offsets=[-8, 0])),
    "offsets in reverse": weights(entry(data_offsets=[8, 0])),
    "an offset of 2^63": weights(entry(data_offsets=[0, 2**63])),
    "an offset of 2^64": weights(entry(data_offsets=[0, 2**64])),
    "an offset after the end": weights(entry(data_offsets=[8, 16])),
    "a begin in the middle": weights(entry(data_offsets=[4, 12]), bytes(12)),
    "tensors that overlap": weights({**PAIR, "b": {**ENTRY, "data_offsets": [4, 12]}}, bytes(12)),
    "two tensors in one place": weights(PAIR),
    "room between tensors": weights({**PAIR, "b": {**ENTRY, "data_offsets": [12, 20]}}, bytes(20)),
    "bytes after the last tensor": weights({"a": ENTRY}, bytes(9)),
    "data cut short": weights({"a": ENTRY}, bytes(7)),
    "a shape of other bytes": weights(entry(shape=[3])),
    "a shape of 2^64 values": weights(entry(shape=[2**32, 2**32])),
    "a shape of 2^66 values, and none": weights(entry(shape=[2**33, 2**33, 0])),
    "a negative dimension": weights(entry(shape=[-2])),
    "two negative dimensions": weights(entry(shape=[-1, -2])),
    "a fractional dimension": weights(entry(shape=[2.0])),
    "100,000 dimensions": weights(entry(shape=[1] * 100_000)),
    "an unknown dtype": weights(entry(dtype="F8_E4M3", data_offsets=[0, 2])),
    "a dtype of ours that is no float": weights(entry(dtype="BOOL", data_offsets=[0, 2])),
    "a dtype that is a list": weights(entry(dtype=["F32"])),
    "no dtype": weights({"a": {"shape": [2], "data_offsets": [0, 8]}}),
    "no offsets": weights({"a": {"dtype": "F32", "shape": [2]}}),
    "a tensor that is a number": weights({"a": 3}),
    "metadata that is a list": weights({"__metadata__": [], "a": ENTRY}),
    "too many tensors": weights(
        {str(number): EMPTY for number in range(TENSORS.value + 1)}, b""
    ),
    "NaN": weights({"a": ENTRY}, b"\0\0\xc0\x7f" * 2),
    "infinity": weights({"a": ENTRY}, bytes(4) + b"\0\0\x80\xff"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors(name: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(SAFETENSORS[name])

    assert "model.safetensors" in str(refused(lambda: read_tensors(tmp_path)))


def test_a_header_that_fills_a_huge_file(refused: Refused, tmp_path: Path) -> None:
    head = (LARGE - 8).to_bytes(8, "little")
    sparse(tmp_path / "model.safetensors", LARGE, head)

    assert "the header of weights" in str(refused(lambda: read_tensors(tmp_path)))


def test_a_tensor_that_fills_a_huge_file(refused: Refused, tmp_path: Path) -> None:
    text = json.dumps({"a": {"dtype": "F32", "shape": [LARGE], "data_offsets": [0, 4 * LARGE]}})
    head = len(text).to_bytes(8, "little") + text.encode()
    sparse(tmp_path / "model.safetensors", len(head) + 4 * LARGE, head)

    refused(lambda: read_tensors(tmp_path))


# --- what a file is not: a pickle in disguise, a link, a pipe, a device


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


DISGUISES: Final = {
    "weights": ("model.safetensors", lambda folder: read_tensors(folder, allow_pickle=True)),
    "configuration": ("config.json", lambda folder: BertConfig.from_file(folder / "config.json")),
    "tokenizer": ("tokenizer.json", BertTokenizer.from_pretrained),
    "vocabulary": ("vocab.txt", BertTokenizer.from_pretrained),
    "index": ("bert_model.ckpt.index", read_tensors),
    "parts": ("model.safetensors.index.json", read_tensors),
    "metadata": ("tidybert.json", lambda folder: ModelDirectory(folder).metadata),
}


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("kind", DISGUISES)
def test_a_pickle_in_disguise_runs_no_code(
    kind: str, is_zip: bool, refused: Refused, tmp_path: Path
) -> None:
    name, read = DISGUISES[kind]
    payload = {"a": Payload(tmp_path / "ran")}
    if is_zip:
        torch.save(payload, tmp_path / name)
    else:
        (tmp_path / name).write_bytes(pickle.dumps(payload))

    refused(lambda: read(tmp_path))

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("target", ["nowhere", "/dev/zero", "/dev/full", "/proc/self/mem", "loop"])
@pytest.mark.parametrize("kind", DISGUISES)
def test_a_link_to_what_is_not_a_file(
    kind: str, target: str, refused: Refused, tmp_path: Path
) -> None:
    name, read = DISGUISES[kind]
    (tmp_path / name).symlink_to(name if target == "loop" else target)

    refused(lambda: read(tmp_path))


@pytest.mark.parametrize("kind", DISGUISES)
def test_a_pipe_is_not_waited_for(kind: str, refused: Refused, tmp_path: Path) -> None:
    name, read = DISGUISES[kind]
    os.mkfifo(tmp_path / name)

    refused(lambda: read(tmp_path))


# --- the index of parts

PARTS: Final[dict[str, Any]] = {
    "a part in the folder above": {"weight_map": {"a": "../secret.safetensors"}},
    "a part by its whole path": {"weight_map": {"a": "/etc/passwd"}},
    "a part in a folder": {"weight_map": {"a": "folder/secret.safetensors"}},
    "a part in a folder of Windows": {"weight_map": {"a": "..\\secret.safetensors"}},
    "the folder above": {"weight_map": {"a": ".."}},
    "this folder": {"weight_map": {"a": "."}},
    "no name": {"weight_map": {"a": ""}},
    "a name with a zero": {"weight_map": {"a": "a\0b.safetensors"}},
    "a name of 10,000 letters": {"weight_map": {"a": "a" * 10_000 + ".safetensors"}},
    "a number": {"weight_map": {"a": 3}},
    "the index itself": {"weight_map": {"a": "model.safetensors.index.json"}},
    "a missing part": {"weight_map": {"a": "model-00001-of-00001.safetensors"}},
    "a part without the tensor": {"weight_map": {"b": "part.safetensors"}},
    "a pickle as a part": {"weight_map": {"a": "part.bin"}},
    "a map that is a list": {"weight_map": ["a"]},
    "an empty map": {"weight_map": {}},
    "no map": {"metadata": {}},
    "a list": [],
    "a deep map": DEEP,
    "a deep name": '{"weight_map":' * 100_000,
    "too many bytes": " " * (JSON_BYTES.value + 1),
}


@pytest.mark.parametrize("name", PARTS)
def test_an_index_of_parts(name: str, refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    for path in (tmp_path / "secret", folder / "folder" / "secret", folder / "part"):
        save_file({"a": torch.ones(2)}, path.with_suffix(".safetensors"))
    torch.save({"a": torch.ones(2)}, folder / "part.bin")
    content = PARTS[name]
    index = folder / "model.safetensors.index.json"
    index.write_text(content if isinstance(content, str) else json.dumps(content))

    refused(lambda: read_tensors(folder))


# --- config.json

SIZES: Final = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
CONFIGURATIONS: Final[dict[str, bytes]] = {
    "empty": b"",
    "a list": b"[]",
    "deep": DEEP.encode(),
    "a deep value": b'{"id2label":' * 100_000,
    "UTF-16": json.dumps(SIZES).encode("utf-16"),
    "half a character": b'{"vocab_size": "\xe2\x82"}',
    "too many bytes": b" " * (JSON_BYTES.value + 1),
    "a key twice": b'{"vocab_size": 30, "vocab_size": 31}',
    "NaN": json.dumps({**SIZES, "layer_norm_eps": float("nan")}).encode(),
    "a misspelt key": json.dumps({**SIZES, "layer_norm_epsilon": 1e-5}).encode(),
    "code to fetch": json.dumps({**SIZES, "auto_map": {"AutoModel": "evil.Model"}}).encode(),
    "a number of 10,000 digits": json.dumps(SIZES).replace("30", NUMBER).encode(),
    **{
        f"{key} of {value}": json.dumps({**SIZES, key: value}).encode()
        for key in SIZES
        for value in (2**31, 2**63, -1, 0, 1.5, True, "8", None, [8])
    },
    "a thousand layers of a million": json.dumps(
        {**SIZES, "num_hidden_layers": 1000, "hidden_size": 2**20, "intermediate_size": 2**20}
    ).encode(),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration(name: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(CONFIGURATIONS[name])

    error = refused(lambda: ModelDirectory(tmp_path).config)

    assert str(error).startswith(str(tmp_path))


# --- the tokenizer's files

TOKENS: Final = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
WORDPIECE: Final = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "vocab": {token: index for index, token in enumerate(TOKENS)},
}


def with_token(token: str, index: Any) -> dict[str, Any]:
    return {"model": {**WORDPIECE, "vocab": {**WORDPIECE["vocab"], token: index}}}


TOKENIZERS: Final[dict[str, Any]] = {
    "empty": "",
    "a list": [],
    "deep": DEEP,
    "a deep value": '{"model":' * 100_000,
    "too many bytes": " " * (TOKENIZER_BYTES.value + 1),
    "another tokenizer": {"model": {"type": "BPE", "vocab": {}, "merges": []}},
    "a vocabulary that is a list": {"model": {**WORDPIECE, "vocab": TOKENS}},
    **{
        f"an id of {value!r:.20}": with_token("b", value)
        for value in (-1, 0, 7, 2**31, 2**63, 10**30, 6.0, "6", None, [6], True)
    },
    "a token with a line break": with_token("b\n", 6),
    "half a character": with_token("\ud800", 6),
    "a token twice": json.dumps({"model": WORDPIECE}).replace('"a": 5', '"a": 5, "a": 6'),
    "no special tokens": {"model": {**WORDPIECE, "vocab": {"a": 0}}},
    "code in a normalizer": {"normalizer": {"type": "Replace"}, "model": WORDPIECE},
    "normalizers in each other": {
        "normalizer": json.loads(
            '{"type":"Sequence","normalizers":[' * 40 + "]}" * 40
        ),
        "model": WORDPIECE,
    },
    "a token outside the vocabulary": {"added_tokens": [{"content": "z"}], "model": WORDPIECE},
    "added tokens that are a number": {"added_tokens": 3, "model": WORDPIECE},
}  # fmt: skip


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer(name: str, refused: Refused, tmp_path: Path) -> None:
    content = TOKENIZERS[name]
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "tokenizer.json").write_text(text)

    refused(lambda: BertTokenizer.from_pretrained(tmp_path))


LINES: Final[dict[str, bytes]] = {
    "empty": b"",
    "no special tokens": b"a\nb\n",
    "a token twice": "\n".join([*TOKENS, "a"]).encode(),
    "half a character": "\n".join(TOKENS).encode() + b"\n\xe2\x82\n",
    "zeros": bytes(1000),
    "too many bytes": b"a" * (TOKENIZER_BYTES.value + 1),
    "too many tokens": b"".join(b"%d\n" % number for number in range(2_100_000)),
}


@pytest.mark.parametrize("name", LINES)
def test_a_vocabulary(name: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(LINES[name])

    refused(lambda: BertTokenizer.from_pretrained(tmp_path))


# --- TensorFlow's checkpoints, with right checksums


def block(content: bytes, kind: int = 0) -> bytes:
    """A block and its trailer."""
    stored = content + bytes([kind])
    return stored + masked_crc32c(stored).to_bytes(4, "little")


def entries(*pairs: tuple[bytes, bytes]) -> bytes:
    """The content of a block whose keys are whole."""
    body = b"".join(
        varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in pairs
    )
    return body + bytes(4) + (1).to_bytes(4, "little")


def handle(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


def footer(index: bytes) -> bytes:
    magic = (0xDB4775248B80FB57).to_bytes(8, "little")
    return (handle(0, 0) + index).ljust(40, b"\0") + magic


def table(data: bytes, handles: list[bytes]) -> bytes:
    """Blocks and an index that names them by these handles."""
    index = entries(*((b"%08d" % number, each) for number, each in enumerate(handles)))
    return data + block(index) + footer(handle(len(data), len(index)))


def checkpoint(*fields: bytes, header: bytes | None = None, name: bytes = b"a") -> bytes:
    """The index of one variable with these fields."""
    head = number_field(1, 1) if header is None else header
    return write_table([(b"", head), (name, b"".join(fields))])


def shape(*sizes: int) -> bytes:
    return bytes_field(2, b"".join(bytes_field(2, number_field(1, size)) for size in sizes))


def snappy(content: bytes) -> bytes:
    return bytes(pyarrow.compress(content, "snappy", asbytes=True))


NOTHING: Final = bytes(4 * 50_000) + (50_000).to_bytes(4, "little")
"""A block of 200 kB that has no entry: its list of restarts fills it."""
BOMB: Final = snappy(bytes(TABLE_BYTES.value - 4) + (1).to_bytes(4, "little"))
FLOAT: Final = number_field(1, 1)
ONE: Final = entries((b"", FLOAT))
_first = entries((b"a" * 200_000, b""))[:-8]
LONG_KEYS: Final = (
    _first
    + b"".join(varint(200_000 + number) + varint(1) + varint(0) + b"b" for number in range(60_000))
    + bytes(4)
    + (1).to_bytes(4, "little")
)
"""Each key is the one before and a letter more: 12 GB of keys in a block of 400 kB."""

INDEXES: Final[dict[str, bytes]] = {
    "empty": b"",
    "another magic": checkpoint(FLOAT, shape(2))[:-1] + b"x",
    "cut at the front": checkpoint(FLOAT, shape(2))[9:],
    "a footer alone": footer(handle(0, 0)),
    "handles without end": b"\xff" * 40 + checkpoint()[-8:],
    "a handle of 2^64": b"x" * 60 + footer(handle(2**64 - 1, 2**64 - 1)),
    "an index after the end": b"x" * 60 + footer(handle(2**40, 10)),
    "an index of 2^62 bytes": b"x" * 60 + footer(handle(0, 2**62)),
    "a block after the end": table(b"", [handle(2**40, 10)]),
    "a block of 2^62 bytes": table(b"", [handle(0, 2**62)]),
    "a handle without end": table(b"", [b"\xff" * 20]),
    "an empty handle": table(b"", [b""]),
    "the index as its own block": (
        lambda size: block(entries((b"k", handle(0, size)))) + footer(handle(0, size))
    )(len(entries((b"k", handle(0, 20))))),
    "a block twice": table(block(ONE), [handle(0, len(ONE))] * 2),
    "a block without entries 10,000 times": table(
        block(NOTHING), [handle(0, len(NOTHING))] * 10_000
    ),
    "more restarts than bytes": table(block(b"\xff" * 8), [handle(0, 8)]),
    "a block of three bytes": table(block(b"abc"), [handle(0, 3)]),
    "an entry longer than its block": table(
        block(b"\0\1\x7fa" + bytes(4) + b"\1\0\0\0"), [handle(0, 12)]
    ),
    "a key that shares what is not there": table(
        block(b"\5\1\0a" + bytes(4) + b"\1\0\0\0"), [handle(0, 12)]
    ),
    "a length without end": table(block(b"\xff" * 30 + bytes(4) + b"\1\0\0\0"), [handle(0, 38)]),
    "keys that grow": table(block(snappy(LONG_KEYS), 1), [handle(0, len(snappy(LONG_KEYS)))]),
    "an unknown compression": table(block(b"abcdefgh", 9), [handle(0, 8)]),
    "a snappy block of 2^62 bytes": table(block(varint(2**62) + b"abc", 1), [handle(0, 12)]),
    "a snappy block of another length": table(
        block(varint(99) + snappy(ONE)[1:], 1), [handle(0, len(snappy(ONE)))]
    ),
    "snappy bombs": table(
        block(BOMB, 1) * 15, [handle(at * (len(BOMB) + 5), len(BOMB)) for at in range(15)]
    ),
    "a wrong checksum": table(block(ONE)[:-1] + b"x", [handle(0, 13)]),
    "too many bytes": bytes(TABLE_BYTES.value) + checkpoint(FLOAT, shape(2)),
    "no header": write_table([(b"a", FLOAT)]),
    "another byte order": checkpoint(FLOAT, header=number_field(1, 1) + number_field(2, 1)),
    "2^40 data files": checkpoint(FLOAT, header=number_field(1, 2**40)),
    "no data file": checkpoint(FLOAT, header=b""),
    "a field without end": checkpoint(b"\x08" + b"\xff" * 30),
    "a field longer than its message": checkpoint(b"\x12\xff\xff\xff\x7f"),
    "a group": checkpoint(b"\x0b\x0c"),
    "a message of 200,000 fields": checkpoint(b"\x08\x01" * 200_000),
    "shapes in shapes": checkpoint(FLOAT, shape(*([1] * 50_000))),
    "slices": checkpoint(FLOAT, shape(2), bytes_field(7, b"")),
    "a data file that does not exist": checkpoint(FLOAT, shape(2), number_field(3, 7)),
    "fewer bytes than its shape": checkpoint(FLOAT, shape(2), number_field(5, 4)),
    "a shape of 2^64 values": checkpoint(FLOAT, shape(2**32, 2**32), number_field(5, 0)),
    "a negative dimension": checkpoint(FLOAT, shape(2**64 - 2), number_field(5, 8)),
    "offsets of 2^63": checkpoint(
        FLOAT, shape(2), number_field(4, 2**63), number_field(5, 8), name=b"output_weights"
    ),
    "an offset after the end": checkpoint(
        FLOAT, shape(2), number_field(4, 8), number_field(5, 8), name=b"output_weights"
    ),
    "a wrong checksum of data": checkpoint(
        FLOAT, shape(2), number_field(5, 8), fixed32_field(6, 1), name=b"output_weights"
    ),
    "NaN": checkpoint(
        FLOAT,
        shape(2),
        number_field(5, 8),
        fixed32_field(6, masked_crc32c(b"\0\0\xc0\x7f" * 2)),
        name=b"output_weights",
    ),
    "a variable of text": checkpoint(number_field(1, 7), name=b"output_weights"),
    "another program's": checkpoint(FLOAT, shape(2), number_field(5, 8), name=b"conv"),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXES)
def test_a_tensorflow_checkpoint(name: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "model.ckpt.index").write_bytes(INDEXES[name])
    data = b"\0\0\xc0\x7f" * 2 if name == "NaN" else bytes(8)
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(data)

    assert "model.ckpt" in str(refused(lambda: read_tensors(tmp_path)))


def test_the_crafted_parts_make_a_good_checkpoint(tmp_path: Path) -> None:
    """Or they would be refused for another reason than theirs."""
    good = [
        (b"", number_field(1, 1)),
        (
            b"output_weights",
            FLOAT + shape(2) + number_field(5, 8) + fixed32_field(6, masked_crc32c(bytes(8))),
        ),
    ]
    content = entries(*good)
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(bytes(8))
    for data in (block(content), block(snappy(content), 1)):
        path = tmp_path / "model.ckpt.index"
        path.write_bytes(table(data, [handle(0, len(data) - 5)]))
        assert read_tensors(tmp_path)["classifier.weight"].tolist() == [0.0, 0.0]
    assert sorted_table.write_table(good).endswith(footer(b"")[-8:])


def test_a_variable_that_fills_a_huge_data_file(refused: Refused, tmp_path: Path) -> None:
    content = checkpoint(FLOAT, shape(LARGE), number_field(5, 4 * LARGE), name=b"output_weights")
    (tmp_path / "model.ckpt.index").write_bytes(content)
    sparse(tmp_path / "model.ckpt.data-00000-of-00001", 4 * LARGE)

    refused(lambda: read_tensors(tmp_path))


@pytest.mark.parametrize("target", ["nowhere", "/dev/zero", "/proc/self/mem"])
def test_a_data_file_that_is_a_link(target: str, refused: Refused, tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt.index", {"output_weights": torch.ones(2)})
    data = TensorBundle(tmp_path / "model.ckpt.index").data_file(0)
    data.unlink()
    data.symlink_to(target)

    refused(lambda: read_tensors(tmp_path))
