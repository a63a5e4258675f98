"""Whatever a text holds, it stays text."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.reporting.markup import Markup, escaped, join, tag, visible


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


def test_a_literal_element():
    made = tag("p", "a < b & ", tag("b", "c"), None, class_="note", data_value=1.5, id=None)
    assert made == '<p class="note" data-value="1.5">a &lt; b &amp; <b>c</b></p>'
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert join([tag("i"), None, "<"]) == "<i></i>&lt;"


def test_a_script_is_text():
    attack = "</p><script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
    found = Reader(tag("p", attack, title=attack))

    assert found.elements == [("p", {"title": attack})]
    assert found.text == attack


@given(text=st.text())
def test_any_text_comes_out_as_it_went_in_but_for_signs(text):
    found = Reader(tag("p", text, title=text))

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
    assert escaped(escaped("<")) == "&lt;"
    assert tag("p", Markup("<b></b>")) == "<p><b></b></p>"
    assert tag("p", title=Markup('"')) == '<p title="&quot;"></p>'
