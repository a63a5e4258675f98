"""Patterns of numbers and addresses that need no model, with their checksums; loads no torch.

A card number has Luhn's checksum (ISO/IEC 7812-1), an IBAN that of ISO 7064 (mod 97-10) and the
length of its country (the SWIFT registry).  Telephone numbers are those of libphonenumber.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from tidybert.errors import UsageError, param, suggestion

Span = tuple[int, int]
_GAP: Final = "[ \u00a0\u202f-]"


class Mark(NamedTuple):
    """Characters of a text that a pattern or a model names; ``score`` is None for a pattern."""

    type: str
    start: int
    end: int
    score: float | None = None


_LOCAL: Final = r"[\w.!#$%&'*+/=?^`{|}~-]"
_EMAIL: Final = re.compile(
    rf"(?<!{_LOCAL}){_LOCAL}+@(?:[^\W_](?:[\w-]{{0,61}}[^\W_])?\.)+[^\W\d_][\w-]*"
)
_RUN: Final = re.compile(rf"(?<![0-9])[0-9](?:{_GAP}?[0-9])+(?![0-9])")
_GROUP: Final = re.compile("[0-9]+")
# Visa, Mastercard, American Express, Diners, JCB; Discover, UnionPay and Maestro.
_CARD: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14,17}"
    r"|(?:6\d|5[06-8])\d{14,17}"
)
_MOST_DIGITS: Final = 19
_IBAN: Final = re.compile(
    rf"(?<![A-Z0-9])([A-Z]{{2}})[0-9]{{2}}(?:{_GAP}?[A-Z0-9]){{11,30}}", re.IGNORECASE | re.ASCII
)
_IBAN_LENGTHS: Final = {
    country: int(length)
    for country, length in re.findall(
        "([A-Z]{2})([0-9]{2})",
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 "
        "DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 "
        "IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 "
        "MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 "
        "SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30",
    )
}


def _emails(text: str) -> Iterator[Span]:
    return (each.span() for each in _EMAIL.finditer(text))


def _cards(text: str) -> Iterator[Span]:
    """Whole groups of digits that have a card's digits together."""
    for run in _RUN.finditer(text):
        groups = [each.span() for each in _GROUP.finditer(text, *run.span())]
        done = 0
        for at, (start, _) in enumerate(groups):
            digits = ""
            for number, (first, end) in enumerate(groups[at : at + _MOST_DIGITS], at):
                digits += text[first:end]
                if len(digits) > _MOST_DIGITS or at < done:
                    break
                if _CARD.fullmatch(digits) and has_luhn(digits):
                    yield start, end
                    done = number + 1


def has_luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others."""
    numbers = [int(each) for each in reversed(digits)]
    doubled = [sum(divmod(2 * each, 10)) for each in numbers[1::2]]
    return (sum(numbers[::2]) + sum(doubled)) % 10 == 0


def _ibans(text: str) -> Iterator[Span]:
    at = 0
    while found := _IBAN.search(text, at):
        at = found.start() + 1
        length = _IBAN_LENGTHS.get(found[1].upper(), 0)
        places = [each for each in range(*found.span()) if text[each].isalnum()][:length]
        number = "".join(text[each] for each in places).upper()
        end = places[-1] + 1 if len(places) == length > 0 else 0
        # A to Z count as 10 to 35.
        value = int("".join(str(int(each, 36)) for each in number[4:] + number[:4]) or 0)
        if end and value % 97 == 1 and not re.match("[A-Z0-9]", text[end : end + 1], re.IGNORECASE):
            yield found.start(), end
            at = end


def _phones(text: str, region: str | None = None) -> Iterator[Span]:
    import phonenumbers

    return ((each.start, each.end) for each in phonenumbers.PhoneNumberMatcher(text, region))


_FINDERS: Final[dict[str, Callable[[str], Iterator[Span]]]] = {
    "email": _emails,
    "iban": _ibans,
    "card": _cards,
    "phone": _phones,
}


class Patterns:
    """Some of the patterns, by their names.

    Args:
        given: such as "email,iban,card,phone", or a list of them; phone:DE reads numbers without a
            country's code as numbers of Germany.

    Raises UsageError for an unknown one, and where the package of telephone numbers is missing.
    """

    def __init__(self, given: str | Sequence[str] = ()) -> None:
        names = given.split(",") if isinstance(given, str) else list(given)
        self.names = tuple(each.strip() for each in names)
        self._finders = {each: self._finder(each) for each in self.names}

    @staticmethod
    def _finder(name: str) -> Callable[[str], Iterator[Span]]:
        kind, has_region, region = name.partition(":")
        if kind not in _FINDERS or (has_region and kind != "phone"):
            raise UsageError(
                f"{param('patterns', name)}: expected some of {', '.join(_FINDERS)}, with commas "
                f"between them{suggestion(name, _FINDERS)}"
            )
        if kind != "phone":
            return _FINDERS[kind]
        try:
            import phonenumbers
        except ImportError:
            raise UsageError(
                f"{param('patterns', name)} needs the package phonenumbers: pip install "
                "'tidybert[patterns]'"
            ) from None
        if has_region and region not in phonenumbers.SUPPORTED_REGIONS:
            raise UsageError(
                f"{param('patterns', name)}: expected a country of two letters, such as phone:US"
            )
        return partial(_phones, region=region or None)

    def find(self, text: str) -> list[Mark]:
        """What they find in a text; the type is EMAIL, IBAN, CARD or PHONE."""
        return [
            Mark(name.partition(":")[0].upper(), *span)
            for name, find in self._finders.items()
            for span in find(text)
        ]
