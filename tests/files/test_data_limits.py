"""Hostile files of labelled texts: each ends soon, in little memory, with the limit's name."""

import gzip
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidybert.errors import DataError, LimitError, TidyBertError, in_shell
from tidybert.files.example_reader import ExampleReader
from tidybert.files.reading import ReadOptions
from tidybert.files.text_examples import TextExample, label_names
from tidybert.files.text_files import FORMATS, read_examples
from tidybert.storage.limits import Limit

Lower = Callable[[str, int], None]


@pytest.fixture
def lower(monkeypatch: pytest.MonkeyPatch) -> Lower:
    """Lowers a limit in a module: ``lower("text_lines.UNPACKED_BYTES", 10)``."""

    def lowered(name: str, value: int) -> None:
        limit = Limit(name.partition(".")[2], value, "units")
        monkeypatch.setattr(f"tidybert.files.{name}", limit)

    return lowered


def read(path: Path | str, **flags: Any) -> list[TextExample]:
    return list(read_examples(path, ReadOptions(**flags), need_label=False))


def failure(path: Path | str, kind: type[TidyBertError] = LimitError, **flags: Any) -> str:
    with pytest.raises(kind) as caught:
        read(path, **flags)
    return in_shell(caught.value.message)


def zeros(path: Path, megabytes: int) -> Path:
    """A gzip of lines of zeros, a thousandth of its content's size."""
    line = b"0" * (1 << 20) + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(megabytes):
            file.write(line)
    return path


def test_a_gzip_bomb_ends_at_the_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidybert.files.text_lines.UNPACKED_RATIO_FROM", 1 << 22)
    path = zeros(tmp_path / "bomb.txt.gz", 8)

    message = failure(path)

    assert "the limit for a compressed file is 200; if you trust the file, unpack it" in message


def test_a_gzip_ends_at_the_bytes_in_all(tmp_path: Path, lower: Lower) -> None:
    lower("text_lines.UNPACKED_BYTES", 1 << 20)

    assert "the limit for UNPACKED_BYTES is 1,048,576" in failure(zeros(tmp_path / "a.txt.gz", 2))


def test_a_parquet_bomb_ends_before_it_is_unpacked(tmp_path: Path, lower: Lower) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["0" * 100_000]}), path, compression="zstd")
    assert len(read(path)) == 1
    lower("text_lines.UNPACKED_BYTES", 50_000)

    assert "if you trust the file, unpack it" in failure(path)


def test_a_header_of_too_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join(["x"] * 200_000) + "\n")
    keys = tmp_path / "a.jsonl"
    keys.write_text("{" + ",".join(f'"{at}": 0' for at in range(10_001)) + "}\n")

    assert "200,000 columns; the limit for columns is 10,000" in failure(path)
    assert "200,000 columns" in failure(path, text=0, header=False)
    assert "10,001 columns" in failure(keys)


def test_a_header_of_many_equal_names_takes_no_quadratic_time(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join(f"x{at // 2}" for at in range(10_000)) + "\n")

    assert "several are named 'x0', 'x1'" in failure(path, DataError)
    assert len(failure(path, DataError)) < 2000


def test_a_cell_of_too_many_characters(tmp_path: Path, lower: Lower) -> None:
    lower("text_files.CELL_CHARACTERS", 10)
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "short"}\n{"text": "longer than ten"}\n')

    message = failure(path, DataError)

    assert ":2: 'text': 15 units; the limit for CELL_CHARACTERS is 10" in message


def test_a_json_file_of_too_many_bytes(tmp_path: Path, lower: Lower) -> None:
    lower("records.DATA_JSON_BYTES", 10)
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a"}]')

    assert "save one object a line (--format jsonl)" in failure(path)


def test_more_labels_than_can_be_scored_end_before_training() -> None:
    examples = [TextExample("a", None, str(row), row) for row in range(5001)]

    assert len(label_names(examples[1:])) == 5000
    with pytest.raises(LimitError) as caught:
        label_names(examples)
    assert "5,001 labels; the limit for labels is 5,000; is --label the right" in in_shell(
        caught.value.message
    )


def test_a_named_pipe_is_data_that_the_user_names(tmp_path: Path) -> None:
    for name, flags in (("plain", {}), ("a.csv", {}), ("b", {"format": "csv"})):
        path = tmp_path / name
        os.mkfifo(path)
        content = "one\ntwo\n" if name == "plain" else "text\none\ntwo\n"
        writer = threading.Thread(target=path.write_text, args=(content,))
        writer.start()
        assert [one.text for one in read(path, **flags)] == ["one", "two"]
        writer.join()


def test_a_device_is_not_data() -> None:
    assert "it is a device" in failure("/dev/zero", DataError, format="text")


def test_no_memory_is_a_message(tmp_path: Path) -> None:
    def rows(*_: object, **__: object) -> Any:
        yield TextExample("a", None, None, 1)
        raise MemoryError

    reader = ExampleReader[TextExample](rows, FORMATS)
    with pytest.raises(LimitError, match="too little memory to read on after 1 example"):
        list(reader(tmp_path / "a.csv", need_label=False))
