"""The cursor over JSON against json.loads, and the line of every entry."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import DataError
from tidybert.files.reading import ReadReport
from tidybert.files.records import JsonCursor, json_cursor

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def walk(cursor: JsonCursor) -> Any:
    """The value under the cursor, walked into as deep as it goes."""
    if cursor.peek() == "{":
        return {key: walk(cursor) for key in cursor.entries()}
    if cursor.peek() == "[":
        return [walk(cursor) for _ in cursor.entries()]
    return cursor.value()


@given(VALUES, st.sampled_from([None, 0, 2]), st.booleans())
def test_walking_reads_what_json_reads(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = f" {json.dumps(value, indent=indent, ensure_ascii=ascii_only)}\n"
    cursor = JsonCursor(text)

    assert walk(cursor) == value
    cursor.end()


def test_each_entry_has_its_line() -> None:
    cursor = JsonCursor('{"a":\n [1,\n\n 2, {"b": 3}],\n "c": "\\n"\n}')
    lines = []
    for key in cursor.entries():
        lines.append((key, cursor.line))
        if key == "a":
            for _ in cursor.entries():
                lines.append((cursor.value(), cursor.line))
        else:
            cursor.value()

    assert lines == [("a", 1), (1, 2), (2, 4), ({"b": 3}, 4), ("c", 5)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"a": [1,\n 2}',
            "2: not JSON: a comma or ] is expected at column 3; for one object",
        ),
        ('{"a" 1}', '1: not JSON: "name": is expected at column 6; for one object'),
        ("[1]\n[2]", "2: not JSON: more text after the end at column 1; for one object"),
        (
            '[1, "x',
            "1: not JSON: Unterminated string starting at at column 5; for one object",
        ),
        ("[1,", "1: not JSON: Expecting value at column 4; for one object"),
        ("", "1: not JSON: Expecting value at column 1; for one object"),
        ("[" * 100_000, " JSON that cannot be read: too many levels of nesting"),
    ],
)
def test_what_is_no_json_is_told_with_its_line(content: str, message: str) -> None:
    with pytest.raises(DataError) as caught:  # noqa: PT012 (the block is what raises)
        stream = io.BytesIO(content.encode())
        with json_cursor(stream, ReadReport("f.json")) as cursor:
            if content.startswith("[["):
                cursor.value()
            walk(cursor)
            cursor.end()
    assert str(caught.value).startswith(f"f.json:{message}")


def test_a_byte_order_mark_is_dropped_and_a_wrong_byte_named() -> None:
    with json_cursor(io.BytesIO('\ufeff"é"'.encode()), ReadReport("f.json")) as cursor:
        assert cursor.value() == "é"
    with (
        pytest.raises(DataError, match=r"f.json:2: byte 0xe9 at column 3 is not utf-8; save the"),
        json_cursor(io.BytesIO(b'[\n "\xe9"]'), ReadReport("f.json")),
    ):
        pass
