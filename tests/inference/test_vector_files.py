"""Files of vectors: what other programs read in them, and the same bytes after any stop."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tidybert.errors import DataError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.inference import answer_files as vector_files
from tidybert.inference.answer_files import Layout, chunk_size, format_of, write_vectors
from tidybert.inference.embedding import Embedder
from tidybert.storage.part_file import Written
from tidybert.system.reporter import Reporter

SUFFIXES = ("npy", "parquet", "jsonl")
NUM_TEXTS = 22


@pytest.fixture(scope="module")
def embedder(tiny_model: Path) -> Embedder:
    return Embedder(tiny_model, max_seq_length=8)


@pytest.fixture(scope="module")
def examples(toy_examples: Callable[..., list[TextExample]]) -> list[TextExample]:
    return toy_examples(NUM_TEXTS)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_files, "LARGEST_CHUNK", 4)
    monkeypatch.setattr("tidybert.storage.part_file.SECONDS_BETWEEN_SAVES", 0.0)


def write(
    embedder: Embedder,
    examples: Any,
    target: Path,
    *,
    per_token: bool = False,
    dtype: str = "float32",
    **options: Any,
) -> Written:
    kind = format_of(target, Layout(embedder.dimension, per_token, dtype))
    return write_vectors(embedder, examples, target, kind, **options)


def texts_of(examples: list[TextExample]) -> list[str]:
    return [one.text for one in examples]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.filterwarnings("ignore:.*were cut to")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_npy_file_is_the_one_that_numpy_would_write(
    embedder: Embedder, examples: list[TextExample], tmp_path: Path, dtype: str
) -> None:
    written = write(embedder, examples, tmp_path / "out.npy", dtype=dtype)

    # Chunk by chunk, as it is computed, to the bit.
    texts = texts_of(examples)
    parts = [embedder.embed(texts[at : at + 4]) for at in range(0, NUM_TEXTS, 4)]
    expected = io.BytesIO()
    np.save(expected, np.concatenate(parts).astype(dtype))
    assert (tmp_path / "out.npy").read_bytes() == expected.getvalue()
    mapped = np.load(tmp_path / "out.npy", mmap_mode="r")
    assert (mapped.shape, mapped.dtype) == ((NUM_TEXTS, 16), dtype)
    cut = sum(len(text.split()) > 6 for text in texts)
    assert 0 < cut < NUM_TEXTS
    assert written == Written(NUM_TEXTS, cut, 0)


@pytest.mark.filterwarnings("ignore:.*were cut to")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_lines_and_parquet_hold_the_same(
    embedder: Embedder, examples: list[TextExample], tmp_path: Path, dtype: str
) -> None:
    for suffix in SUFFIXES:
        write(embedder, examples, tmp_path / f"out.{suffix}", dtype=dtype)

    array = np.load(tmp_path / "out.npy")
    lines = lines_of(tmp_path / "out.jsonl")
    table = pq.read_table(tmp_path / "out.parquet")
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 6
    assert str(table.schema.field("vector").type).endswith("[16]")
    for rows in (lines, table.to_pylist()):
        assert [one["row"] for one in rows] == list(range(1, NUM_TEXTS + 1))
        assert [one["num_tokens"] for one in rows] == [
            len(one.text.split()) + 2 for one in examples
        ]
        assert [one["truncated"] for one in rows] == [one["num_tokens"] > 8 for one in rows]
        # Each number has digits enough to be the same bits again.
        found = np.array([one["vector"] for one in rows], dtype=dtype)
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tokens_in_lines_and_parquet(embedder: Embedder, tmp_path: Path, dtype: str) -> None:
    examples = [
        TextExample(text, pair, None, row)
        for text, pair, row in [("The RED dog", "a cow", 2), ("", "we saw it", 3), ("cät", "", 5)]
    ]
    expected = embedder.embed_tokens(texts_of(examples), [str(one.text_pair) for one in examples])
    for suffix in ("parquet", "jsonl"):
        write(embedder, examples, tmp_path / f"out.{suffix}", per_token=True, dtype=dtype)

    for rows in (
        lines_of(tmp_path / "out.jsonl"),
        pq.read_table(tmp_path / "out.parquet").to_pylist(),
    ):
        assert [one["row"] for one in rows] == [2, 3, 5]
        for one, theirs in zip(rows, expected, strict=True):
            assert one["tokens"] == theirs.tokens
            assert [tuple(span) for span in one["offset_mapping"]] == theirs.offset_mapping
            assert one["sequence_ids"] == theirs.sequence_ids
            np.testing.assert_array_equal(
                np.array(one["vectors"], dtype=dtype), theirs.vectors.astype(dtype)
            )


class Stop(Exception):
    """What stops a run in these tests."""


def stopping(examples: list[TextExample], after: int) -> Iterator[TextExample]:
    yield from examples[:after]
    raise Stop


@pytest.mark.parametrize(
    ("suffix", "per_token"),
    [*((suffix, False) for suffix in SUFFIXES), ("parquet", True), ("jsonl", True)],
)
def test_a_run_that_was_stopped_ends_with_the_same_bytes(
    embedder: Embedder,
    examples: list[TextExample],
    tmp_path: Path,
    suffix: str,
    per_token: bool,
) -> None:
    whole, resumed = tmp_path / f"whole.{suffix}", tmp_path / f"resumed.{suffix}"
    write(embedder, examples, whole, per_token=per_token)

    for after in (3, 9, 10, NUM_TEXTS):
        with pytest.raises(Stop):
            write(embedder, stopping(examples, after), resumed, per_token=per_token, resume=True)
        assert not resumed.exists()
    told: list[int] = []
    written = write(
        embedder,
        examples,
        resumed,
        per_token=per_token,
        resume=True,
        reporter=Reporter(advance=told.append),
    )

    assert written.num_resumed == 20
    assert told == [20, 22]
    assert written.num_texts == NUM_TEXTS
    assert written.num_truncated == sum(len(one.text.split()) > 6 for one in examples)
    assert resumed.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == [resumed, whole]


def test_a_resume_wants_the_same_texts_settings_and_weights(
    embedder: Embedder, examples: list[TextExample], tiny_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.npy"
    with pytest.raises(Stop):
        write(embedder, stopping(examples, 12), out)

    other = [TextExample("another", None, None, 1), *examples[1:]]
    for texts in (other, examples[:5]):
        with pytest.raises(DataError, match=r"\.part was begun with other texts"):
            write(embedder, texts, out, resume=True)
    changed = Embedder(tiny_model, max_seq_length=8, pooling="cls")
    with pytest.raises(UsageError, match=r"pooling: mean before, cls now\n  dtype: float32 before"):
        write(changed, examples, out, dtype="float16", resume=True)
    changed = Embedder(tiny_model, max_seq_length=8)
    with torch.no_grad():
        changed.encoder.embeddings.layer_norm.bias += 1
    with pytest.raises(UsageError, match="weights: not the same as before"):
        write(changed, examples, out, resume=True)

    assert write(embedder, examples, out, resume=True).num_resumed == 12


def test_vectors_too_large_for_half_precision_are_refused(
    tiny_model: Path, examples: list[TextExample], tmp_path: Path
) -> None:
    embedder = Embedder(tiny_model)
    with torch.no_grad():
        embedder.encoder.encoder.layers[-1].output_layer_norm.bias += 1e5

    with pytest.raises(UsageError, match=r"dtype='float16' has no number as large as 10\d+"):
        write(embedder, examples, tmp_path / "out.npy", dtype="float16")
    assert list(tmp_path.iterdir()) == []


def test_formats_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pooling='token' .*ends in \.parquet or \.jsonl"):
        format_of(tmp_path / "out.npy", Layout(16, True, "float32"))
    for name in ("out", "out.csv", "npy"):
        with pytest.raises(UsageError, match=r"name that ends in \.npy, \.parquet, \.jsonl"):
            format_of(tmp_path / name, Layout(16, False, "float32"))


@pytest.mark.parametrize(
    ("dimension", "per_token", "expected"),
    [(384, False, 1024), (9984, False, 1024), (768, True, 170), (3072, True, 42)],
)
def test_a_chunk_of_many_vectors_has_fewer_texts(
    monkeypatch: pytest.MonkeyPatch, dimension: int, per_token: bool, expected: int
) -> None:
    monkeypatch.setattr(vector_files, "LARGEST_CHUNK", 1024)

    class Long:
        max_seq_length = 512

    size = chunk_size(Long(), Layout(dimension, per_token, "float32"))  # type: ignore[arg-type]

    assert size == expected
