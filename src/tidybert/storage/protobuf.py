"""The wire format of Protocol Buffers, as far as TensorFlow's checkpoints and ONNX use it.

A message is a list of fields, each a number and a value.  Source: protobuf.dev, "Encoding".
"""

from typing import Final

from tidybert.errors import WeightsError
from tidybert.storage.limits import MESSAGE_FIELDS

_VARINT, _64_BITS, _BYTES, _32_BITS = 0, 1, 2, 5
# Ten bytes of seven bits hold 64.
_LONGEST_VARINT: Final = 10

Message = bytes | memoryview
Fields = dict[int, list[int | Message]]
"""Values by the numbers of their fields, in order: numbers, or the bytes of text and messages.

Those of a memoryview are views, so no tensor is copied.
"""


def read_varint(data: Message, at: int, source: str) -> tuple[int, int]:
    """The number at a place, seven bits a byte, the lowest first; and where it ends."""
    number = 0
    for count, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number & 2**64 - 1, at + count + 1
    raise WeightsError(f"{source}: damaged: a number does not end")


def varint(number: int) -> bytes:
    """A number from 0 on as a varint."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def read_fields(message: Message, source: str) -> Fields:
    """The fields of a message.

    Raises:
        WeightsError: it is damaged.
        LimitError: it has more fields than MESSAGE_FIELDS.
    """
    fields: Fields = {}
    at = count = 0
    while at < len(message):
        tag, at = read_varint(message, at, source)
        number, kind = tag >> 3, tag & 7
        value: int | Message
        if kind == _VARINT:
            value, at = read_varint(message, at, source)
        elif kind in (_64_BITS, _32_BITS, _BYTES):
            if kind == _BYTES:
                size, at = read_varint(message, at, source)
            else:
                size = 8 if kind == _64_BITS else 4
            value, at = message[at : at + size], at + size
            if at > len(message):
                raise WeightsError(f"{source}: damaged: a field is longer than its message")
            if kind != _BYTES:
                value = int.from_bytes(value, "little")
        else:
            raise WeightsError(f"{source}: damaged: a field of the unknown kind {kind}")
        fields.setdefault(number, []).append(value)
        count += 1
        if count > MESSAGE_FIELDS.value:
            raise MESSAGE_FIELDS.error("more", source)
    return fields


def number_of(fields: Fields, field: int) -> int:
    """The last value of a field with a number, 0 where it is missing."""
    value = fields.get(field, [0])[-1]
    return value if isinstance(value, int) else 0


def numbers_of(fields: Fields, field: int, source: str) -> list[int]:
    """The values of a field with numbers, which may lie packed in one."""
    found: list[int] = []
    for value in fields.get(field, []):
        at = 0
        while not isinstance(value, int) and at < len(value):
            number, at = read_varint(value, at, source)
            found.append(number)
        if isinstance(value, int):
            found.append(value)
    return found


def messages_of(fields: Fields, field: int) -> list[Message]:
    """The values of a field with text or messages."""
    return [value for value in fields.get(field, []) if not isinstance(value, int)]


def texts_of(fields: Fields, field: int) -> list[str]:
    """The values of a field with text."""
    return [bytes(each).decode(errors="replace") for each in messages_of(fields, field)]


def number_field(number: int, value: int) -> bytes:
    """A field with a number; nothing for 0, which is what a missing field has."""
    return varint(number << 3 | _VARINT) + varint(value) if value else b""


def fixed32_field(number: int, value: int) -> bytes:
    """A field with a number of 32 bits."""
    return varint(number << 3 | _32_BITS) + value.to_bytes(4, "little")


def bytes_field(number: int, value: bytes) -> bytes:
    """A field with text or a message."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value
