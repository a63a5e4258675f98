"""Rows in memory are read as the same rows of a file: frames, columns, dicts and tuples."""

import enum
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidybert.errors import DataError, UsageError
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import in_memory
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples

TEXTS, LABELS = ["a red hen", "the dog", "a cow"], ["x", "y", "x"]
ROWS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
COLUMNS = {"text": TEXTS, "label": LABELS}


class Dataset:
    """What stands here for a Dataset of Hugging Face, whose table lacks what select has done."""

    features: Mapping[str, Any] = dict.fromkeys(COLUMNS, "a text")

    def __len__(self) -> int:
        return len(TEXTS)

    def with_format(self, name: str) -> "Dataset":
        assert name == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return pa.table(COLUMNS)[rows]


class Named(Dataset):
    """One whose classes are numbers with names; -1 is none."""

    def __init__(self, labels: list[Any], feature: Any) -> None:
        self.labels = labels
        self.features = {"text": "a text", "label": feature}

    def __getitem__(self, rows: slice) -> pa.Table:
        return pa.table({"text": ["a"] * len(self.labels), "label": self.labels})[rows]


def pandas_frame(columns: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def polars_frame(columns: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


KINDS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pandas_frame(COLUMNS),
    "polars": lambda: polars_frame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "dataset": Dataset,
    "dict of lists": lambda: COLUMNS,
    "dicts": lambda: ROWS,
    "generator of dicts": lambda: iter(ROWS),
    "tuples": lambda: list(zip(TEXTS, LABELS, strict=True)),
    "two lists": lambda: (TEXTS, LABELS),
    "a Series and an array": lambda: (pandas_frame(COLUMNS)["text"], np.array(LABELS)),
}


def read(data: Any, report: ReadReport | None = None, **options: Any) -> list[TextExample]:
    details = {name: options.pop(name) for name in ("multi_label", "scores") if name in options}
    memory = in_memory(data, "data", read_examples.tuple_names)
    given = ReadOptions(**options)
    return list(read_examples(memory, given, need_label=True, report=report, **details))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_examples(kind: str) -> None:
    report = ReadReport()

    found = read(KINDS[kind](), report)

    expected = zip(TEXTS, LABELS, strict=True)
    assert found == [TextExample(*pair, place) for place, pair in enumerate_pairs(expected)]
    assert report.columns == {"text": "text", "label": "label"}


def enumerate_pairs(pairs: Any) -> list[tuple[int, tuple[str, None, str]]]:
    return [(place, (text, None, label)) for place, (text, label) in enumerate(pairs)]


def test_pairs_and_columns_by_name() -> None:
    (from_tuple,) = read([("one", "two", "x")])
    frame = pandas_frame({"q": ["one"], "a": ["two"], "other": [[1, 2]], "right": ["x"]})
    (from_frame,) = read(frame, text="q", text_pair="a", label="right")

    assert from_tuple == from_frame == TextExample("one", "two", "x", 0)


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("label", "name"),
    [
        (3, "3"),
        (np.int64(3), "3"),
        (True, "true"),
        (np.bool_(False), "false"),
        (0.5, "0.5"),
        (Colour.RED, "RED"),
    ],
)
def test_labels_keep_their_values_beside_their_names(label: Any, name: str) -> None:
    for data in ([("a text", label)], [{"text": "a text", "label": label}]):
        report = ReadReport()

        (found,) = read(data, report)

        assert found.label == name
        assert report.label_values == {name: label}


def test_a_pandas_column_of_integers_gives_python_integers() -> None:
    report = ReadReport()

    read(pandas_frame({"text": TEXTS, "label": [2, 1, 2]}), report)

    assert report.label_values == {"2": 2, "1": 1}
    assert {type(each) for each in report.label_values.values()} == {int}


def test_a_dataset_gives_the_names_of_its_classes() -> None:
    classes = SimpleNamespace(names=["O", "B-x"])
    for labels, feature, expected in (
        ([1, 0, -1], classes, ["B-x", "O", None]),
        ([[0, 1]], SimpleNamespace(feature=classes), [["O", "B-x"]]),
    ):
        memory = in_memory(Named(labels, feature), "data", read_examples.tuple_names)
        assert [one["label"] for _, one in memory.records()] == expected


def test_any_number_of_labels() -> None:
    report = ReadReport()

    found = read([("a", [1, 2]), ("b", set()), ("c", (2,))], report, multi_label=True)

    assert [one.labels for one in found] == [("1", "2"), (), ("2",)]
    assert report.label_values == {"1": 1, "2": 2}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data holds no example"),
        (7, "data is 7, of type int: expected a file's path, a DataFrame"),
        (["a text"], r"data\[0\] is 'a text', of type str: expected"),
        ([("a", "x"), ("b",)], r"data\[1\] is 1 value, but data\[0\] has 2"),
        ([("a", "b", "c", "d")], "data: a row has 4 values: expected .text, label."),
        ((["a", "b"], ["x"]), "data: the columns have different lengths: text 2, label 1"),
        ([("a", None), ("b", "x")], r"data\[0\]: the label is empty"),
        ([("a", "x"), (float("nan"), "x")], r"data\[1\]: 'text' is null"),
        ([{"text": "a", "label": "x"}, {"text": "b"}], r"data\[1\]: no key 'label'"),
        (
            [{"text": "a", "label": "x"}, "b"],
            r"data\[1\]: a dict is expected, as before it, not 'b', of type str",
        ),
        ([{"word": "a", "label": "x"}], r"data\[0\]: cannot tell which key holds the text"),
        ({"word": ["a"], "label": ["x"]}, r"data: cannot tell which column holds the text"),
        ([("a", 1), ("b", "1")], "the labels 1 and '1' look the same"),
        (
            {"train": Dataset(), "test": Dataset()},
            r"several data sets: name one of 'train', 'test'",
        ),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(data)


def test_bad_rows_can_be_left_out() -> None:
    report = ReadReport()
    memory = in_memory([("a", None), ("b", "x")], "data", read_examples.tuple_names)

    found = list(read_examples(memory, need_label=True, skip_bad_rows=True, report=report))

    assert [one.row for one in found] == [1]
    assert report.lines()[-1] == "  data[0]: the label is empty"


def test_options_of_files_are_refused() -> None:
    with pytest.raises(UsageError, match="data: delimiter is for files"):
        read(ROWS, delimiter=";")


def test_a_frame_is_read_as_the_training_file_was() -> None:
    from tidybert.files.reading import Reading

    frame = pa.table({"message": ["a"], "other": ["b"], "team": ["x"]})
    memory = in_memory(frame, "data", read_examples.tuple_names)
    trained = Reading("csv", {"text": "other", "label": "team"}, delimiter=";")

    (found,) = read_examples(memory, need_label=True, like=trained)

    assert (found.text, found.label) == ("b", "x")


def test_a_lazy_frame_says_to_collect_it() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(DataError, match=r"data is a LazyFrame: give data.collect\(\)"):
        in_memory(polars.LazyFrame({"text": ["a"]}), "data", lambda _row: ("text",))


def test_a_series_alone_says_what_is_expected() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(DataError, match=r"data\[0\] is 'a', of type str: expected a file's path"):
        in_memory(pandas.Series(["a", "b"]), "data", lambda _row: ("text",))
