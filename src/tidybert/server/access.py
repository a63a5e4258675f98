"""The API keys of a server, from a file and from the environment."""

import os
from pathlib import Path
from typing import Final

from tidybert.errors import UsageError, param
from tidybert.storage.limits import JSON_BYTES
from tidybert.storage.opening import read_text

KEYS_VARIABLE: Final = "TIDYBERT_API_KEYS"
_SHORTEST: Final = 8


def api_keys(file: Path | None) -> tuple[str, ...]:
    """The keys in a file, one a line, and in TIDYBERT_API_KEYS, with commas between them.

    Raises UsageError for a file without a key and for a key that is too short; no message has a
    key in it.
    """
    found = [each.strip() for each in os.environ.get(KEYS_VARIABLE, "").split(",")]
    if file is not None:
        lines = [each.strip() for each in read_text(file, JSON_BYTES).splitlines()]
        if not any(lines):
            raise UsageError(f"{param('api_key_file', file)}: it has no key; write one a line")
        found += lines
    keys = tuple(dict.fromkeys(each for each in found if each))
    if any(len(each) < _SHORTEST for each in keys):
        raise UsageError(f"an API key is shorter than {_SHORTEST} characters: give longer ones")
    return keys
