"""Every result shows itself: a line, a table, a notebook's table, JSON, and a picture."""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import markupsafe
import numpy as np
import pytest
from tests.reporting.trees import checked, found, number, words

from tidybert import Explainer
from tidybert.explain import plots
from tidybert.explain.explained_text import Shown, Table

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
        html = table.html()
        assert html.count("<tr>") == 1 + len(table.rows)
        assert html.count("</td>") >= len(table.rows)
        assert "<a>" not in html + each._repr_html_()
        json.dumps(each.to_dict(), allow_nan=False)
    assert results["attention"].to_dict()["scores"][0][0][0][1] is None
    shown: Any = results["attributions"]
    for word, value in zip(shown.words, shown.word_values, strict=True):
        assert f'title="{value:+.4f}">{escape(word.text)}</span>' in shown._repr_html_()


def test_pictures_are_whole_and_the_same_each_time(results: dict[str, Shown]) -> None:
    for name, each in results.items():
        picture = each.plot()
        checked(picture.svg)
        assert each.plot().svg == picture.svg, name
        page = each.page()
        assert picture.inline in page
        assert f"<h1>{markupsafe.escape(each.table().title)}</h1>" in page
        assert "<a>" not in page
        assert "<script" not in page
    assert '<blockquote dir="auto">the red hen &lt;a&gt;</blockquote>' in results["head"].page()
    assert "a $ &lt;b&gt;" in results["similar"].plot().svg


def test_a_notebook_shades_a_head_and_says_each_number(results: dict[str, Shown]) -> None:
    head: Any = results["head"]
    root = checked(head._repr_html_())
    cells = [each for each in found(root, "g") if each[0].tag.endswith("title")]

    assert [each[0].text for each in cells] == [
        f"{first} → {second}: {value:.4f}"
        for first, row in zip(head.tokens, head.probs, strict=True)
        for second, value in zip(head.tokens, row, strict=True)
    ]
    shades = [number(each[1], "fill-opacity") for each in cells]
    np.testing.assert_allclose(shades, head.probs.ravel(), atol=0.005)


def test_bars_and_lines_are_where_their_numbers_are() -> None:
    values = np.array([1.0, -2.0, 0.0])
    boxes = found(checked(plots.bars(["a", "b", "c"], values, "t").svg), "rect", class_="bar")
    widths = [number(each, "width") for each in boxes]
    assert widths == pytest.approx([widths[0], 2 * widths[0], 0], abs=0.02)
    assert [("below" in each.get("class", "")) for each in boxes] == [False, True, False]
    # Both bars begin at 0, one to the right and one to the left.
    assert number(boxes[0], "x") == pytest.approx(number(boxes[1], "x") + widths[1], abs=0.02)

    root = checked(plots.lines(np.array([[0.0, 1], [1, 0], [2, 1]]), ["a", "b"], "y", "t").svg)
    first, second = (each.get("points", "").split() for each in found(root, "polyline"))
    assert len(first) == len(second) == 3
    assert first[1].split(",")[0] == second[1].split(",")[0]
    assert float(first[0].split(",")[1]) > float(first[2].split(",")[1])
    assert words(root)[-2:] == ["a", "b"]


@pytest.mark.parametrize("count", [1, 80, 81, 200])
def test_a_matrix_of_any_size_can_be_drawn(count: int) -> None:
    values = np.eye(count)
    root = checked(plots.matrix(values, ["[CLS]"] * count, "t").svg)
    assert len(found(root, "image")) == (count > 80)
    assert words(root).count("[CLS]") == (2 * count if count <= 80 else 0)
    checked(plots.grid(values[None, None], "t").svg)
    checked(plots.scatter(np.zeros((count, 2)), ["a"] * count, "t").svg)
    checked(plots.bars(["a"] * count, np.zeros(count), "t").svg)


def test_columns_are_aligned_whatever_the_script() -> None:
    table = Table("t", ("word", "n"), [["中文", "1"], ["a\x1b", "22"]], frozenset({"word"}))

    assert str(table).splitlines() == ["t", "word    n", "─────────", "中文    1", "a\\x1b  22"]
