"""API keys from a file and from the environment."""

from pathlib import Path

import pytest

from tidybert.errors import UsageError
from tidybert.server.settings import KEYS_VARIABLE, api_keys


def test_keys_come_from_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text("first-key\n\nsecond-key\n")
    assert api_keys(None) == ()
    monkeypatch.setenv(KEYS_VARIABLE, "third-key, first-key,")

    assert api_keys(file) == ("third-key", "first-key", "second-key")


@pytest.mark.parametrize("content", ["\n\n", "short\n"])
def test_a_file_without_a_good_key_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)

    with pytest.raises(UsageError) as caught:
        api_keys(file)

    assert "short\n" not in str(caught.value)
