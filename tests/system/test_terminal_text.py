"""A terminal gets no control character that came from a file or a user."""

import json

import pytest

from tidybert.system.terminal import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten\x08", "over\\x0dwritten\\x08"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("a\u2028b\x85", "a\\u2028b\\x85"),
        ("caf\udce9.csv", "caf\\udce9.csv"),
        ("a\ttab and\na line", "a\ttab and\na line"),
        ("שלום, naïve ☕ 👨‍👩‍👧 日本", "שלום, naïve ☕ 👨‍👩‍👧 日本"),
        ("a\u200e\u200f\u061cb", "a\\u200e\\u200f\\u061cb"),
    ],
)
def test_controls_are_shown_and_letters_stay(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_json_keeps_its_value() -> None:
    value = {"label": "\x1b[2J\x7f\x9b\u202e\u2028é", "cut": "\ud800"}

    line = printable_json(json.dumps(value, ensure_ascii=False))

    assert printable(line) == line
    assert "é" in line
    assert json.loads(line) == value
