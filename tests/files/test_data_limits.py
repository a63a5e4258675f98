"""Hostile files of labelled texts: each ends soon, in little memory, with the limit's name."""

import gzip
import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidybert.errors import DataError, LimitError, TidyBertError, in_shell
from tidybert.files import arrow_files
from tidybert.files.arrow_files import arrow_columns, parquet_columns
from tidybert.files.example_reader import ExampleReader
from tidybert.files.reading import ReadOptions, ReadReport
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


def arrow(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


REPEATED = {
    "a dictionary": pa.DictionaryArray.from_arrays(pa.array([0] * 9000, "int8"), ["x" * 10_000]),
    "nulls": pa.nulls(2**31 - 2),
    "a run": pa.RunEndEncodedArray.from_arrays(pa.array([2**30], "int32"), ["x"]),
    "lists": pa.ListArray.from_arrays(
        pa.array([0, 2**31 - 2, 2**31 - 2], "int32"), pa.nulls(2**31 - 2)
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_a_table_repeats_counts_as_often_as_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("tidybert.files.text_lines.UNPACKED_RATIO_FROM", 1 << 20)
    path = arrow(tmp_path / "a.arrow", pa.table({"text": REPEATED[name]}))
    assert path.stat().st_size < 25_000

    assert "the limit for " in failure(path)


@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY"])
def test_a_parquet_that_repeats_a_long_text_is_decoded_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr("tidybert.files.text_lines.UNPACKED_RATIO_FROM", 1 << 20)
    monkeypatch.setattr("tidybert.files.arrow_files._AT_ONCE", 1 << 20)
    path = tmp_path / "a.parquet"
    is_dictionary = encoding == "dictionary"
    pq.write_table(
        pa.table({"text": ["x" * 100_000] * 500}),
        path,
        use_dictionary=is_dictionary,
        column_encoding=None if is_dictionary else {"text": encoding},
    )

    assert "bytes unpacked from each byte" in failure(path)
    with arrow_files._parquet(str(path), None) as (file, stream):
        rows = [batch.num_rows for batch in arrow_files._parquet_batches(file, stream, ["text"])]
    assert sum(rows) == 500
    assert max(rows) <= 10


def test_values_made_one_by_one_are_those_of_the_table(tmp_path: Path) -> None:
    nested = pa.array([{"a": ["x", None], "b": {"c": 1}}, None, {"a": None, "b": None}])
    pairs = pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string()))
    words = pa.array(["w", None, "w"]).dictionary_encode()
    fixed = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    table = pa.table({"nested": nested, "pairs": pairs, "words": words, "fixed": fixed})
    names = table.schema.names
    pq.write_table(table, tmp_path / "a.parquet")
    report = ReadReport()

    for columns, path in (
        (arrow_columns, arrow(tmp_path / "a.arrow", table)),
        (parquet_columns, tmp_path / "a.parquet"),
    ):
        rows = columns(str(path), report)[1](names)
        assert list(rows) == list(enumerate(table.to_pylist(), start=1))


def test_a_repeated_row_of_a_sheet_ends_at_the_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidybert.files.text_lines.UNPACKED_RATIO_FROM", 1 << 20)
    cell = '<table:table-cell office:value-type="string"><text:p>a</text:p></table:table-cell>'
    row = f'<table:table-row table:number-rows-repeated="2000000000">{cell}</table:table-row>'
    content = (
        "<office:document-content><office:body><office:spreadsheet>"
        f'<table:table table:name="S">{row}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as packed:
        packed.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        packed.writestr("content.xml", content)
        packed.writestr("META-INF/manifest.xml", "<manifest/>")

    assert "bytes unpacked from each byte" in failure(tmp_path / "a.ods", text=0)


def test_a_gzip_of_short_lines_ends_at_the_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidybert.files.text_lines.UNPACKED_RATIO_FROM", 1 << 21)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"0\n" * 100_000))

    assert "bytes unpacked from each byte" in failure(tmp_path / "a.txt.gz")


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
    for last, shown in [("t", "'s', 't'. Columns"), ("u", "'s', 't', …. Columns")]:
        names = [chr(each) for each in range(ord("a"), ord(last) + 1)]
        path.write_text(",".join([*names, *names]) + "\n")
        assert shown in failure(path, DataError)


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
