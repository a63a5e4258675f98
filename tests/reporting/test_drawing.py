"""Pictures: round numbers on axes, places that follow the ranges, and texts that stay texts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reporting.trees import checked, found, words

from tidybert.reporting.drawing import Frame, Picture, around, short, text, ticks, visible


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-0.6, 5.6, [0, 1, 2, 3, 4, 5]),
        (0, 1000, [0, 200, 400, 600, 800, 1000]),
        (0, 5e-5, [0, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5]),
    ],
)
def test_ticks_by_hand(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6))
def test_ticks_are_a_handful_and_within(low: float, width: float) -> None:
    at = ticks(low, low + width)

    assert 2 <= len(at) <= 8
    assert low - 1e-6 * width <= at[0] <= at[-1] <= low + width * (1 + 1e-6)


@given(values=st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_a_range_around_values_is_never_empty(values: list[float]) -> None:
    low, high = around(values)
    assert low <= min(values) <= max(values) <= high
    assert low < high


def test_a_frame_puts_ranges_on_its_rectangle() -> None:
    frame = Frame((0, 10), (0, 1), width=420, height=280)
    assert frame.at_x(0) < frame.at_x(5) < frame.at_x(10) < 420
    assert frame.at_x(5) - frame.at_x(0) == pytest.approx(frame.at_x(10) - frame.at_x(5))
    assert 280 > frame.at_y(0) > frame.at_y(1) > 0
    falling = Frame((0, 10), (1, 0), width=420, height=280)
    assert falling.at_y(1) == frame.at_y(0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.25, "0.25"), (12345.6, "12,346"), (2e-5, "2e-5"), (1.5e-4, "1.5e-4")],
)
def test_numbers_on_an_axis(value: float, shown: str) -> None:
    assert short(value) == shown


def test_a_literal_picture() -> None:
    frame = Frame((0, 2), (0, 1), 100, 60, left=5, right=15, top=5, bottom=15)
    drawn = frame.picture(
        *("one", "A title", "<what> is seen"),
        frame.line([(0, 0), (1, 0.5), (2, 1)]),
        frame.dot(1, 0.5, "a & b"),
        frame.bar((1, 2), (0, 0.25), "low"),
    )
    assert drawn == (
        '<svg class="picture" viewBox="0 0 100 60" width="100" height="60" role="img" '
        'aria-labelledby="one-title one-description"><title id="one-title">A title</title>'
        '<desc id="one-description">&lt;what&gt; is seen</desc>'
        '<polyline points="5.0,45.0 45.0,25.0 85.0,5.0" class="line"/>'
        '<circle cx="45" cy="25" r="3.5" class="dot"><title>a &amp; b</title></circle>'
        '<rect class="bar" x="45" y="35" width="40" height="10"><title>low</title></rect></svg>'
    )


def test_a_file_has_its_style_and_a_page_of_its_own(tmp_path: Path) -> None:
    one = Picture("one", "A title", "seen", 10, 20, [text("a", 1, 2)])
    one.save(tmp_path / "a.svg")

    assert (tmp_path / "a.svg").read_text() == one._repr_svg_() + "\n"
    root = checked(one.svg)
    (style,) = found(root, "style")
    assert "prefers-color-scheme: dark" in (style.text or "")
    # Other viewers than browsers may know neither.
    assert "var(" not in one.svg
    assert "@import" not in one.svg
    assert "style" not in one.inline
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


@given(said=st.text())
def test_whatever_a_text_holds_stays_text(said: str) -> None:
    frame = Frame((0, 1), (0, 1))
    axes = frame.axes(said, said, x_text=lambda _: said)
    drawn = Picture("p", said, said, 9, 9, [axes, frame.dot(0, 0, said), text(said, 1, 2, "tick")])
    root = checked(drawn.svg)

    # XML reads a carriage return as a line feed.
    wanted = visible(said)
    assert words(root, "tick")[-1] == wanted
    assert [each.text or "" for each in found(root, "title")] == [wanted, wanted]
    assert {each.tag.rpartition("}")[2] for each in root.iter()} == {
        *("svg", "title", "desc", "style", "rect", "line", "text", "circle")
    }


numbers = st.floats(-1e9, 1e9)


@given(points=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
def test_places_are_numbers(points: list[tuple[float, float]]) -> None:
    frame = Frame(around(x for x, _ in points), around(y for _, y in points))
    dots = [frame.dot(x, y, None) for x, y in points]
    root = checked(Picture("p", "", "", 420, 280, [frame.axes(), frame.line(points), *dots]).svg)

    assert len(found(root, "circle")) == len(points)
    for each in found(root, "circle"):
        assert frame.left <= float(each.get("cx", "nan")) <= frame.width - frame.right
