"""JSON: read untrusted text and files with care, and make values fit for writing."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidybert.errors import ConfigError, TidyBertError
from tidybert.storage.limits import JSON_BYTES, JSON_DEPTH, LOG_BYTES, Limit
from tidybert.storage.opening import Failure, read_bytes, read_text


def read_json_object(
    path: str | Path, limit: Limit = JSON_BYTES, *, error: Failure = ConfigError
) -> dict[str, Any]:
    """The JSON object in an untrusted file.

    Raises:
        TidyBertError: of the class ``error``: the file cannot be read, is not UTF-8, or not a JSON
            object, or as ``parse_json``.
        LimitError: the file is larger than ``limit``, or nested deeper than JSON_DEPTH.
    """
    value = parse_json(read_text(path, limit, error=error), path, error=error)
    if not isinstance(value, dict):
        raise error(f"{path}: a JSON object was expected, not {type(value).__name__}")
    return value


def read_json_lines(
    path: str | Path, limit: Limit = LOG_BYTES, *, error: Failure = ConfigError
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """The lines of an untrusted file, each with its JSON object; None where it holds none.

    Passes over blank lines.  Raises as ``read_bytes``.
    """
    for number, raw in enumerate(read_bytes(path, limit, error=error).split(b"\n"), start=1):
        line = raw.decode(errors="replace")
        if line.strip():
            try:
                value = parse_json(line, f"{path}:{number}", error=error)
            except TidyBertError:
                value = None
            yield line, value if isinstance(value, dict) else None


def parse_json(text: str, where: object, *, error: Failure = ConfigError) -> Any:
    """The value of untrusted JSON text; ``where`` begins the message of an error.

    Raises:
        TidyBertError: of the class ``error``: the text is not valid JSON, repeats a key, has a
            number that is not finite or half of a surrogate pair.
        LimitError: the value is nested deeper than JSON_DEPTH.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_float=_finite,
            parse_constant=_finite,
        )
        if "\\ud" in text or "\\uD" in text:
            # JSON can spell half of a surrogate pair, which nobody could write or print.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise JSON_DEPTH.error(f"more than {JSON_DEPTH.value:,}", where) from None
    except MemoryError:
        raise error(f"{where}: too little memory to read its {len(text):,} characters") from None
    except ValueError as failure:
        raise error(f"{where}: not valid JSON: {failure}") from None
    _check_depth(value, where)
    return value


def _check_depth(value: Any, where: object) -> None:
    depth, level = 0, [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        JSON_DEPTH.check(depth, where)
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {repeated!r:.80} appears twice")
    return values


def json_checksum(content: Mapping[str, Any]) -> str:
    """The sha256 of an object, by which a reader knows that it is what was written."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def plain_json(value: Any) -> Any:
    """``value`` fit for JSON: NumPy numbers and arrays unpacked, NaN and infinities as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
