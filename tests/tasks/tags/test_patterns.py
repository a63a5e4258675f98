"""Addresses and numbers that need no model, and their checksums."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import UsageError
from tidybert.tasks.tags.patterns import Patterns, has_luhn


def found(text: str, names: str = "email,iban,card") -> list[tuple[str, str]]:
    marks = sorted(Patterns(names).find(text), key=lambda each: each.start)
    return [(each.type, text[each.start : each.end]) for each in marks]


def test_each_kind_in_running_text() -> None:
    text = (
        "Zoë <zoë.o'neil+x@müller-bank.de>, card 4111 1111-1111 1111; IBAN DE89 3704 0044 0532 "
        "0130 00 BIC, (gb29nwbk60161331926819)."
    )

    assert found(text) == [
        ("EMAIL", "zoë.o'neil+x@müller-bank.de"),
        ("CARD", "4111 1111-1111 1111"),
        ("IBAN", "DE89 3704 0044 0532 0130 00"),
        ("IBAN", "gb29nwbk60161331926819"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "20261128012345 2026-11-28 01:23:45",  # a time stamp is no card
        "4111 1111 1111 1112",  # the check digit is wrong
        "9111111111111111",  # no issuer begins so
        "DE88 3704 0044 0532 0130 00 and DE89 3704 0044 0532 0130",
        "XX89370400440532013000",
        "a@b and @user and a@b..c and user@-x.de",
        "",
    ],
)
def test_what_only_looks_like_one(text: str) -> None:
    assert found(text) == []


def test_a_card_among_other_digits() -> None:
    assert found("ref 77 378282246310005 99") == [("CARD", "378282246310005")]


@given(st.text("0123456789", min_size=15, max_size=15))
def test_one_of_ten_last_digits_is_the_check_digit(digits: str) -> None:
    assert sum(has_luhn(digits + last) for last in "0123456789") == 1


def test_telephone_numbers_of_the_world_and_of_a_country(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("phonenumbers")
    text = "Call (650) 253-0000 or +49 30 901820, order 20261128."
    assert found(text, "phone") == [("PHONE", "+49 30 901820")]
    assert found(text, "phone:US") == [("PHONE", "(650) 253-0000"), ("PHONE", "+49 30 901820")]
    with pytest.raises(UsageError, match=r"phone:XX.*a country of two letters, such as phone:US"):
        Patterns("phone:XX")
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    with pytest.raises(UsageError, match=r"pip install 'tidybert\[patterns\]'"):
        Patterns("phone")


@pytest.mark.parametrize("name", ["emial", "", "iban:DE", "email,"])
def test_a_pattern_that_does_not_exist(name: str) -> None:
    with pytest.raises(UsageError, match="expected some of email, iban, card, phone"):
        Patterns(name)
