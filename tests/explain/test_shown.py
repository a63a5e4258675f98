"""Every result shows itself: a line, a table, a notebook's table, JSON, and a picture."""

import json
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tidybert import Explainer
from tidybert.errors import UsageError
from tidybert.explain.plots import as_page, as_svg
from tidybert.explain.shown import Shown, Table

TEXT = "the red hen <a>"


@pytest.fixture(scope="module")
def results(pretrained: Callable[[str], tuple[Path, Any]]) -> dict[str, Shown]:
    explainer = Explainer(pretrained("BertForMaskedLM")[0])
    attention = explainer.attention(TEXT, causal=True)
    return {
        "attention": attention,
        "head": attention.head(2, 1),
        "cell": attention.cell(2, 1, 2, 1),
        "embeddings": explainer.embeddings(TEXT),
        "states": explainer.hidden_states(TEXT),
        "cloze": explainer.cloze(TEXT, hide=(4, 7)),
        "attributions": explainer.attributions("a [MASK] <a>"),
        "drift": explainer.word_in_texts("hen", [TEXT, "a hen"]),
        "nearest": explainer.nearest("hen"),
        "similar": explainer.similarities(["a $ <b>", "hen", "cow"]),
    }


def test_lines_tables_and_json(results: dict[str, Shown]) -> None:
    for name, each in results.items():
        assert repr(each).startswith(f"{type(each).__name__}("), name
        assert "\n" not in repr(each)
        table = each.table()
        title, headings, *lines = str(each).splitlines()
        assert title == table.title
        assert headings.split()[0] == table.headings[0].split()[0]
        assert len(lines) >= 1 + len(table.rows)
        html = each._repr_html_()
        assert html.count("<tr>") == 1 + len(table.rows)
        assert html.count("</td>") >= len(table.rows)
        assert "<a>" not in html
        json.dumps(each.to_dict(), allow_nan=False)
    head = results["head"]
    assert head._repr_html_().count('title="') == 64
    assert f'title="the → [CLS]: {head.probs[1, 0]:.4f}"' in head._repr_html_()
    found = results["attributions"]
    for word, value in zip(found.words, found.word_values, strict=True):
        assert f'title="{value:+.4f}">{escape(word.text)}</span>' in found._repr_html_()
    assert results["attention"].to_dict()["scores"][0][0][0][1] is None
    page = as_page("a<b", [TEXT], "<svg></svg>", results["head"].table().html())
    assert "<h1>a&lt;b</h1><blockquote>the red hen &lt;a&gt;</blockquote>" in page


def test_pictures_are_the_same_bytes_each_time(results: dict[str, Shown]) -> None:
    for name, each in results.items():
        svg = as_svg(each.plot())
        ElementTree.fromstring(svg)
        if name in ("head", "similar", "attributions"):
            assert as_svg(each.plot()) == svg
        if name == "similar":
            assert "a $ &lt;b&gt;" in svg


def test_without_matplotlib_a_picture_says_what_to_install(
    results: dict[str, Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'tidybert\[plots\]'"):
        results["head"].plot()


def test_columns_are_aligned_whatever_the_script() -> None:
    table = Table("t", ("word", "n"), [["中文", "1"], ["a\x1b", "22"]], frozenset({"word"}))

    assert str(table).splitlines() == ["t", "word    n", "─────────", "中文    1", "a\\x1b  22"]
