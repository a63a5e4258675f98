"""Whatever a text holds, it stays text."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tidybert.reporting.drawing import element, shown, visible


class Reader(HTMLParser):
    """Collects elements with their attributes, and the text between."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def paragraph(text: str) -> str:
    return element('<p title="{}">{}</p>', text, text)


def test_a_literal_element():
    made = element('<p x="{}" y="{}" id="{}">{}{}</p>', 1.5, 2 / 3, None, "a < b & ", Markup("<b>"))
    assert made == '<p x="1.5" y="0.67" id="">a &lt; b &amp; <b></p>'
    assert isinstance(made, Markup)


def test_a_script_is_text():
    attack = "</p><script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
    found = Reader(paragraph(attack))

    assert found.elements == [("p", {"title": attack})]
    assert found.text == attack


@given(text=st.text())
def test_any_text_comes_out_as_it_went_in_but_for_signs(text):
    found = Reader(paragraph(text))

    assert found.elements == [("p", {"title": visible(text)})]
    assert found.text == visible(text)


@given(text=st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Cn", "Co"])))
def test_what_can_be_seen_is_left_alone(text):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00\x07b", "a␀␇b"),
        ("a\tb\nc\r\nd\re", "a\tb\nc\nd␍e"),
        ("\x7f\x85", "␡\ufffd"),
        ("\u202eevil\u2066", "\ufffdevil\ufffd"),
        ("\ud83d", "\ufffd"),
        ("שלום 👍🏽 e\u0301", "שלום 👍🏽 e\u0301"),
    ],
)
def test_what_cannot_be_seen_has_a_sign(text, shown):
    assert visible(text) == shown
    visible(text).encode("utf-8")


def test_markup_is_escaped_once():
    assert element("{}", element("{}", "<")) == "&lt;"
    assert shown(Markup("<\x00")) == "<\x00"
