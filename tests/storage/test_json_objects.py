"""Damaged and hostile JSON files are an error that names the file."""

from pathlib import Path

import pytest

from tidybert.errors import ConfigError, LimitError
from tidybert.storage.json_objects import parse_json, read_json_object


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not valid JSON"),
        (b'{"vocab_size": 3', "not valid JSON"),
        (b"\xff\xfe{}", ":1: not UTF-8"),
        (b"[1, 2]", "a JSON object was expected, not list"),
        (b'{"a": 1, "b": 2, "a": 3}', "the key 'a' appears twice"),
        (b'{"id2label": {"0": "\\ud83d"}}', "not valid JSON: .* surrogates not allowed"),
        (b'{"a": NaN}', "NaN is not a finite number"),
        (b'{"a": -Infinity}', "-Infinity is not a finite number"),
        (b'{"a": 1e999}', "1e999 is not a finite number"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        read_json_object(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b" " * (2**24 + 1), "16,777,217 bytes; the limit for a JSON file is 16,777,216"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "101 levels of nesting; the limit for JSON is 100"),
        (b'{"a":' * 200_000, "more than 100 levels of nesting"),
        (b'{"a":' + b"[" * 200_000, "more than 100 levels of nesting"),
    ],
)
def test_a_file_above_a_limit_is_an_error_that_names_it(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(LimitError, match=f"{path}: {said}"):
        read_json_object(path)


def test_many_keys_with_one_twice_are_refused_in_linear_time() -> None:
    keys = [f'"{number}": 0' for number in range(200_000)]
    with pytest.raises(ConfigError, match="the key '199999' appears twice"):
        parse_json("{" + ", ".join([*keys, keys[-1]]) + "}", "here")


def test_a_file_of_the_allowed_depth_is_read() -> None:
    assert parse_json("[" * 100 + "]" * 100, "here")
