"""Indexes on disk: what other programs read in them, and the same bytes after any stop."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidybert.errors import DataError, InUseError, UsageError, WeightsError
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.search.index import Index
from tidybert.search.index_files import rounded, write_index
from tidybert.search.index_format import INDEX_FILE, PROGRESS_FILE, IndexState

Make = Callable[..., Path]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def stopped(examples: list[TextExample], number: int) -> Iterator[TextExample]:
    yield from examples[:number]
    raise KeyboardInterrupt


def test_numpy_and_arrow_read_an_index(
    make_index: Make, embedder: Embedder, examples: list[TextExample]
) -> None:
    directory = make_index()

    vectors = np.load(directory / "vectors.npy", mmap_mode="r")
    with pa.ipc.open_stream(directory / "texts.arrow") as stream:
        texts = stream.read_all()

    expected = embedder.embed([one.text for one in examples])
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, expected, atol=1e-6)
    assert texts["text"].to_pylist() == [one.text for one in examples]
    assert texts["row"].to_pylist() == [one.row for one in examples]
    assert json.loads(texts["columns"][3].as_py()) == {"id": "n4", "size": 4}
    assert not (directory / PROGRESS_FILE).exists()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("number", [0, 3, 9])
def test_a_stopped_index_goes_on_with_the_same_bytes(
    make_index: Make, examples: list[TextExample], dtype: str, number: int
) -> None:
    whole = contents(make_index("whole", dtype=dtype))

    with pytest.raises(KeyboardInterrupt):
        make_index("other", stopped(examples, number), dtype=dtype)
    other = make_index("other", dtype=dtype)

    assert contents(other) == whole


def test_texts_are_added_without_computing_again(
    make_index: Make, examples: list[TextExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_index(texts=examples[:10])
    before = np.load(directory / "vectors.npy")
    computed: list[int] = []
    vectors = Embedder.vectors

    def counted(self: Embedder, features: Any, *given: Any) -> Any:
        computed.append(len(features))
        return vectors(self, features, *given)

    monkeypatch.setattr(Embedder, "vectors", counted)

    make_index()

    after = np.load(directory / "vectors.npy")
    assert sum(computed) == 12
    assert (after[:10] == before).all()
    assert len(Index(directory)) == len(after) == 22
    assert [hit.text for hit in Index(directory).texts(range(22))] == [one.text for one in examples]


def test_an_index_stays_whole_while_texts_are_added(
    make_index: Make, examples: list[TextExample]
) -> None:
    directory = make_index(texts=examples[:10], dtype="int8")
    before = Index(directory)
    vectors = before.vectors.copy()

    with pytest.raises(KeyboardInterrupt):
        make_index("index", stopped(examples, 19), dtype="int8")

    # An index that was open before sees what it saw, and so does one that is opened now.
    for each in (before, Index(directory)):
        assert len(each) == 10
        assert (each.vectors == vectors).all()
        assert [hit.row for hit in each.texts([0, 9])] == [1, 10]
    make_index(dtype="int8")
    assert len(Index(directory)) == 22


def test_a_kill_after_the_headers_leaves_the_old_index(
    make_index: Make, examples: list[TextExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_index(texts=examples[:10])

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(IndexState, "with_hashes", killed)
        with pytest.raises(KeyboardInterrupt):
            make_index()

    assert len(np.load(directory / "vectors.npy", mmap_mode="r")) == 22
    assert len(Index(directory)) == 10
    make_index()
    assert len(Index(directory)) == 22


def test_the_same_texts_change_nothing(make_index: Make) -> None:
    directory = make_index()
    before = contents(directory)

    make_index()

    assert contents(directory) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda texts: texts[:5], "has 22 texts, and the file only its first 5"),
        (
            lambda texts: [*texts[:7], replace(texts[7], text="another text"), *texts[8:]],
            "line 8 is not what .* has of it: the file has changed since.* the file 'another text'",
        ),
        (
            lambda texts: [*texts[:7], replace(texts[7], columns={"id": "n9"}), *texts[8:]],
            "line 8 is not what",
        ),
    ],
)
def test_a_file_that_changed_is_refused_and_the_index_stays(
    make_index: Make, examples: list[TextExample], change: Any, message: str
) -> None:
    directory = make_index()
    before = contents(directory)

    with pytest.raises(DataError, match=message):
        make_index(texts=change(examples))

    assert contents(directory) == before


def test_other_settings_are_refused(
    make_index: Make,
    examples: list[TextExample],
    embedder: Embedder,
    tiny_model: Path,
    served: dict[str, str],
    tmp_path: Path,
) -> None:
    directory = make_index()

    with pytest.raises(UsageError, match=r"was made with other settings; .*\n  dtype: float32"):
        make_index(dtype="int8")
    longer = Embedder(tiny_model, normalize=True, max_seq_length=LENGTH_OF_ANOTHER, pooling="max")
    with pytest.raises(UsageError, match=r"pooling: mean .*\n  max_seq_length: 8 before"):
        write_index(longer, examples, directory)
    other = Embedder(served["base"], normalize=True, max_seq_length=8)
    with pytest.raises(UsageError, match=r"vectors of another model, .*: their cosines mean"):
        write_index(other, examples, directory)
    with pytest.raises(UsageError, match="dtype 'float64': expected one of float32"):
        make_index("new", dtype="float64")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and no index was begun there"):
        make_index("mine")
    with pytest.raises(DataError, match="there are no texts to index"):
        make_index("new", [])


LENGTH_OF_ANOTHER = 12


def test_an_error_before_the_first_text_binds_nobody_to_its_settings(
    make_index: Make, examples: list[TextExample]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        make_index("index", stopped(examples, 2))

    directory = make_index(dtype="int8")

    assert Index(directory).settings["dtype"] == "int8"


def test_pairs_are_refused(make_index: Make) -> None:
    with pytest.raises(UsageError, match="pairs of texts: name the column to search in with text"):
        make_index(texts=[TextExample("a cat", "a dog", None, 1)])


def test_vectors_that_are_not_finite_are_refused(
    make_index: Make, embedder: Embedder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(self: Embedder, rows: Any, pooling: Any) -> Any:
        import torch

        return torch.full((len(rows.lengths), self.dimension), torch.nan)

    monkeypatch.setattr(Embedder, "_vectors", broken)

    with pytest.raises(WeightsError, match="outputs are not finite"):
        make_index()

    with pytest.raises(UsageError, match="unfinished index of 0 texts"):
        Index(tmp_path / "index")


def test_a_second_writer_is_refused(make_index: Make, begin: Any, tmp_path: Path) -> None:
    """The lock is that of all outputs; here another process has it."""
    import subprocess
    import sys

    program = (
        "import sys, time; from tidybert.storage.output_lock import output_lock\n"
        f"with output_lock({str(tmp_path / 'index')!r}): print('locked', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(InUseError, match="in use by"):
            make_index()
        other.communicate("\n")
    assert len(Index(make_index())) == 22


@pytest.mark.parametrize("name", ["vectors.npy", "scales.npy", "texts.arrow", "postings.npy"])
def test_damage_is_said(make_index: Make, name: str, tmp_path: Path) -> None:
    whole = make_index(dtype="int8")

    def damaged(number: str, change: Callable[[bytes], bytes]) -> Path:
        directory = Path(shutil.copytree(whole, tmp_path / number))
        path = directory / name
        path.write_bytes(change(path.read_bytes()))
        return directory

    flipped = damaged("1", lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=f"{name} is damaged: its content is not what index.json"):
        Index(flipped)
    with pytest.raises(DataError, match=rf"{name} is damaged: it has [\d,]+ bytes of [\d,]+"):
        Index(damaged("2", lambda content: content[:-5]))
    if name != "texts.arrow":
        with pytest.raises(DataError, match=f"{name} is damaged"):
            Index(damaged("3", lambda content: content.replace(b"False", b"True ", 1)))
        with pytest.raises(DataError, match=f"{name} is damaged"):
            Index(damaged("4", lambda content: b"x" + content[1:]))
    (damaged("5", bytes) / name).unlink()
    with pytest.raises(DataError, match=f"{name}: cannot be read: no such file"):
        Index(tmp_path / "5")


def test_an_index_of_another_version_or_of_other_hands_is_refused(make_index: Make) -> None:
    from tidybert.storage.json_objects import json_checksum

    path = make_index() / INDEX_FILE
    content = json.loads(path.read_text())

    path.write_text(json.dumps({**content, "num_texts": 21}))
    with pytest.raises(DataError, match=r"index\.json is damaged: its content has another"):
        Index(path.parent)
    del content["checksum"]
    settings = content["settings"]
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"num_texts": -1}, "num_texts is -1; a whole number of at least 0 is needed"),
        ({"text_bytes": "1"}, "text_bytes is '1'; a whole number is needed"),
        (
            {"settings": {**settings, "dtype": "float64"}},
            "settings: dtype is 'float64'; one of float32, float16, int8 is",
        ),
        ({"settings": {"dtype": "int8"}}, "settings: missing key 'model'"),
        ({"settings": []}, r"settings is \[\]; a JSON object is needed"),
        ({"more": 1}, "unknown key 'more'"),
    )
    for change, said in changes:
        changed = {**content, **change}
        path.write_text(json.dumps({**changed, "checksum": json_checksum(changed)}))
        with pytest.raises(DataError, match=f"index.json is damaged: {said}.*; make the index ag"):
            Index(path.parent)
    content["index_version"] = 4
    path.write_text(json.dumps({**content, "checksum": json_checksum(content)}))
    with pytest.raises(DataError, match="index_version 4, expected 3 or less"):
        Index(path.parent)


def test_int8_keeps_the_largest_number_of_each_vector() -> None:
    vectors = np.array([[0.5, -1.0, 0.25], [0, 0, 0], [1e-3, 2e-3, 0]], dtype=np.float32)

    numbers, scales = rounded(vectors, "int8")

    assert scales is not None
    assert numbers.tolist() == [[64, -127, 32], [0, 0, 0], [64, 127, 0]]
    assert np.allclose(numbers * scales[:, None], vectors, atol=float(scales.max()) / 2)
