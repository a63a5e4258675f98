"""JSON: read untrusted text and files with care, and make values fit for writing.

``parse_json`` keeps the limits on text: its depth, repeated keys, numbers that are not finite.
``decoded`` then checks each part of the value against the type of a record, a msgspec.Struct.
"""

import hashlib
import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from tidybert.errors import ConfigError, TidyBertError, suggestion
from tidybert.storage.limits import JSON_BYTES, JSON_DEPTH, LOG_BYTES, Limit
from tidybert.storage.opening import Failure, read_bytes, read_text

Record = TypeVar("Record")


def read_json_object(
    path: str | Path,
    limit: Limit = JSON_BYTES,
    *,
    error: Failure = ConfigError,
    where: object = None,
) -> dict[str, Any]:
    """The JSON object in an untrusted file; ``where`` begins the message about its content."""
    where = path if where is None else where
    value = parse_json(read_text(path, limit, error=error), where, error=error)
    if not isinstance(value, dict):
        raise error(f"{where}: a JSON object was expected, not {type(value).__name__}")
    return value


def read_json_lines(
    path: str | Path, limit: Limit = LOG_BYTES, *, error: Failure = ConfigError
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """The lines of an untrusted file but blank ones, each with its JSON object, or None."""
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

    Raises ``error`` for no JSON, a repeated key, a number that is not finite or half of a surrogate
    pair, and LimitError for a value nested deeper than JSON_DEPTH.
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
    depth, level = 0, [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        JSON_DEPTH.check(depth, where)
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    return value


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


def decoded(
    value: Any, kind: type[Record], where: object, *, error: Failure = ConfigError
) -> Record:
    """A value of ``parse_json`` as a ``kind``; the message of ``error`` names the wrong part."""
    # Commands that read no record start without it.
    import msgspec

    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as failure:
        said = _in_words(value, kind, str(failure))
        if isinstance(failure.__cause__, TidyBertError):
            # Raised by the record itself.
            said = failure.__cause__.message
        raise error(f"{where}: {said}" if where else said) from None


SHA256: Final = r"^[0-9a-f]{64}\Z"
"""The pattern of a sha256 in hexadecimal, for the type of a field."""


def one_of(names: Iterable[str]) -> Any:
    """For the type of a field: a string among these."""
    import msgspec

    return msgspec.Meta(pattern=rf"^({'|'.join(names)})\Z")


# What msgspec says of a value: what was expected, and at which keys.
_FAILURE: Final = r"(?s)(.*?)(?: - at (?:`key` in )?`\$([^`]*)`)?"
_EXPECTED: Final = (
    r"(?s)Expected `([^`]*)`(?: (>=|<=|>|<|of length(?: [<>]=)?|matching regex) (.*?))?"
    r"(?:, got .*)?"
)
_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a JSON object",
}
_BOUNDS: Final = {
    ">=": "of at least",
    "<=": "of at most",
    ">": "above",
    "<": "below",
    "of length >=": "of at least",
    "of length <=": "of at most",
    "of length": "of",
    "matching regex": "that matches",
}


def _in_words(value: Any, kind: type, message: str) -> str:
    """What msgspec says of a value, for a user: "parts, item 1: name is 3; a string is needed"."""
    found = re.fullmatch(_FAILURE, message)
    assert found is not None, "the pattern fits any text"
    said, part = found[1], value
    keys: list[str | int] = []
    for name, place in re.findall(r"\.([^.\[]+)|\[(\.\.\.|[0-9]+)\]", found[2] or ""):
        is_unnamed = place == "..."
        keys.append(_wrong_key(value, keys, kind, message) if is_unnamed else name or int(place))
        try:
            part = part[keys[-1]]
        except LookupError:
            # An unknown key that reads like the end of a message.
            return message
    words = [f"item {key + 1}" if isinstance(key, int) else key for key in keys]
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", said, re.DOTALL):
        near = suggestion(unknown[1], () if keys else getattr(kind, "__struct_encode_fields__", ()))
        return f"{_in(words)}unknown key {unknown[1]!r:.80}{near}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", said):
        return f"{_in(words)}missing key {missing[1]!r}"
    *above, last = words or ["the value"]
    expected = re.fullmatch(_EXPECTED, said)
    if expected is None:
        return f"{_in(above)}{last} is {part!r:.80}: {said}"
    types = [_TYPES.get(each, each) for each in expected[1].split(" | ")]
    needed = " or ".join([", ".join(types[:-1]), types[-1]] if types[1:] else types)
    if expected[2]:
        if names := re.fullmatch(r"'\^\(([^()]+)\)\\\\Z'", expected[3]):
            needed = f"one of {', '.join(names[1].split('|'))}"
        elif expected[3] == repr(SHA256):
            needed = "a sha256"
        else:
            needed += f" {_BOUNDS[expected[2]]} {expected[3]}"
    return f"{_in(above)}{last} is {part!r:.80}; {needed} is needed"


def _in(words: Sequence[str]) -> str:
    return f"{', '.join(words)}: " if words else ""


def _wrong_key(value: Any, keys: Sequence[str | int], kind: type, message: str) -> str:
    """The first wrong key of the object at ``keys``, which msgspec's message does not name."""
    import msgspec

    def cut(within: Any, keys: Sequence[Any], num: int) -> Any:
        """A copy whose object at ``keys`` has only its first entries."""
        if not keys:
            return dict(islice(within.items(), num))
        copy = within.copy()
        copy[keys[0]] = cut(within[keys[0]], keys[1:], num)
        return copy

    def is_wrong(num: int) -> bool:
        try:
            msgspec.convert(cut(value, keys, num), kind)
        except msgspec.ValidationError as failure:
            return str(failure) == message
        return False

    part = value
    for key in keys:
        part = part[key]
    names: list[str] = list(part)
    return names[bisect_left(range(1, len(part) + 1), True, key=is_wrong)]


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
