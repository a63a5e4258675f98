"""Damaged and hostile JSON files are an error that names the file."""

from pathlib import Path

import pytest

from tidybert.errors import ConfigError
from tidybert.json_objects import read_json_object


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not valid JSON"),
        (b'{"vocab_size": 3', "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[1, 2]", "a JSON object was expected, not list"),
        (b'{"a": 1, "b": 2, "a": 3}', "the key 'a' appears twice"),
        (b'{"id2label": {"0": "\\ud83d"}}', "not valid JSON: .* surrogates not allowed"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b" " * (16 * 2**20 + 1), "at most"),
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
