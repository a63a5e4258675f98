"""Filters by the columns beside the texts, against a plain loop over the rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from tidybert.errors import DataError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.search.index import Index
from tidybert.search.index_files import delete_texts

Make = Callable[..., Path]
ROWS: list[dict[str, Any]] = [
    {
        "label": "ab"[n % 2],
        "size": n,
        "day": f"2026-01-{n + 1:02}",
        "ok": n % 3 == 0,
        "price": "" if n == 5 else str(n / 2),
    }
    for n in range(20)
]


@pytest.fixture
def index(make_index: Make) -> Index:
    texts = [
        TextExample(f"the red cat {'saw ' * number}", None, None, number + 1, columns=columns)
        for number, columns in enumerate(ROWS)
    ]
    return Index(make_index(texts=texts))


def found(index: Index, where: Any, top_k: int = 100) -> list[int]:
    hits = index.nearest(np.ones((1, 16), dtype=np.float32), top_k, where=where)[0]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return sorted(hit.position for hit in hits)


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("label=b", lambda row: row["label"] == "b"),
        ("label!=b", lambda row: row["label"] != "b"),
        (["label=a", "size>=10"], lambda row: row["label"] == "a" and row["size"] >= 10),
        ("size<3", lambda row: row["size"] < 3),
        ("day>2026-01-15", lambda row: row["day"] > "2026-01-15"),
        (["ok=true", "size<=6"], lambda row: row["ok"] and row["size"] <= 6),
        (
            (pc.field("size") + 1 > 18) | (pc.field("label") == "zz"),
            lambda row: row["size"] + 1 > 18,
        ),
        ("label=c", lambda row: False),
        ("label>=a1", lambda row: row["label"] == "b"),
        ("price>=9", lambda row: row["size"] >= 18),
        ("price<1e1", lambda row: row["size"] != 5),
    ],
)
def test_a_filter_keeps_what_a_loop_over_the_rows_keeps(
    index: Index, where: Any, holds: Callable[[dict[str, Any]], bool]
) -> None:
    expected = [number for number, row in enumerate(ROWS) if holds(row)]

    assert found(index, where) == expected
    assert len(found(index, where, 2)) == min(2, len(expected))

    delete_texts(index.directory, ["1", "4"])
    assert found(Index(index.directory), where) == [n for n in expected if n not in (1, 4)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("colour=red", r"where='colour=red': no column 'colour'; the columns are label \(string\)"),
        ("label", "expected COLUMN=VALUE"),
        ("size=many", "where='size=many': .*'many'.* the columns are label"),
        ("label>3", "where='label>3': Failed to parse string: '[ab]'.*; the columns are label"),
        (pc.field("colour") == "red", "No match for .*colour.*; the columns are label"),
    ],
)
def test_a_filter_that_does_not_fit_is_a_mistake(index: Index, where: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        found(index, where)


def test_a_column_of_two_types_is_a_mistake_of_the_texts(make_index: Make) -> None:
    texts = [
        TextExample("a cat", None, None, row, columns={"size": size})
        for row, size in enumerate((1, "large"), start=1)
    ]

    with pytest.raises(DataError, match=r"size\) changed from number to string in row 1; give"):
        found(Index(make_index(texts=texts)), "size=1")


def test_texts_without_columns_have_none_to_filter_by(make_index: Make) -> None:
    texts = [TextExample("a cat", None, None, 1)]

    with pytest.raises(UsageError, match="no column 'size'; the columns are none"):
        found(Index(make_index(texts=texts)), "size=1")
