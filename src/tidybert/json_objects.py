"""JSON: read small untrusted files with care, and make values fit for writing."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidybert.errors import ConfigError

MAX_FILE_BYTES: Final = 16 * 2**20


def read_json_object(path: str | Path) -> dict[str, Any]:
    """The JSON object in a small untrusted file.

    Raises:
        ConfigError: the file is missing, above 16 MiB, not UTF-8 or not a JSON object; or it is
            nested too deeply, repeats a key, or holds half of a surrogate pair.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{size} bytes; at most {MAX_FILE_BYTES} are read")
        text = path.read_text(encoding="utf-8-sig")
        value = json.loads(text, object_pairs_hook=_no_duplicates)
        if "\\ud" in text or "\\uD" in text:
            # JSON can spell half of a surrogate pair, which nobody could write or print.
            json.dumps(value, ensure_ascii=False).encode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a JSON object was expected, not {type(value).__name__}")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"the key {repeated!r} appears twice")
    return values


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
