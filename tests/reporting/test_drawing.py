"""Axes: their numbers are round and lie within, places follow the ranges."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.reporting.confusion import confusion_picture
from tidybert.reporting.drawing import Frame, around, picture, short, ticks
from tidybert.reporting.pictures import (
    calibration_picture,
    course_picture,
    interval_picture,
    residuals_picture,
)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-0.6, 5.6, [0, 1, 2, 3, 4, 5]),
        (0, 1000, [0, 200, 400, 600, 800, 1000]),
        (0, 5e-5, [0, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5]),
    ],
)
def test_ticks_by_hand(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6))
def test_ticks_are_a_handful_and_within(low, width):
    found = ticks(low, low + width)

    assert 2 <= len(found) <= 8
    assert low - 1e-6 * width <= found[0] <= found[-1] <= low + width * (1 + 1e-6)


@given(values=st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_a_range_around_values_is_never_empty(values):
    low, high = around(values)
    assert low <= min(values) <= max(values) <= high
    assert low < high


def test_a_frame_puts_ranges_on_its_rectangle():
    frame = Frame((0, 10), (0, 1), width=420, height=280)
    assert frame.at_x(0) < frame.at_x(5) < frame.at_x(10) < 420
    assert frame.at_x(5) - frame.at_x(0) == pytest.approx(frame.at_x(10) - frame.at_x(5))
    assert 280 > frame.at_y(0) > frame.at_y(1) > 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.25, "0.25"), (12345.6, "12,346"), (2e-5, "2e-5"), (1.5e-4, "1.5e-4")],
)
def test_numbers_on_an_axis(value, shown):
    assert short(value) == shown


def test_a_picture_says_what_it_is():
    root = ET.fromstring(picture("one", "A title", "<what> is seen", 10, 20))
    assert root.get("role") == "img"
    assert root.get("viewBox") == "0 0 10 20"
    named = root.get("aria-labelledby").split()
    assert [child.get("id") for child in root] == named
    assert [child.text for child in root] == ["A title", "<what> is seen"]


def dots(svg):
    return [
        (float(each.get("cx")), float(each.get("cy"))) for each in ET.fromstring(svg).iter("circle")
    ]


def test_perfect_calibration_lies_on_the_diagonal():
    bins = [
        {"confidence": x, "accuracy": x, "count": 5, "low": x - 0.1, "high": x + 0.1}
        for x in (0.3, 0.6, 0.9)
    ]
    frame = Frame((0, 1), (0, 1))
    expected = [(frame.at_x(x), frame.at_y(x)) for x in (0.3, 0.6, 0.9)]

    for found, place in zip(dots(calibration_picture(bins)), expected, strict=True):
        assert found == pytest.approx(place, abs=0.01)


def test_an_interval_holds_its_value():
    root = ET.fromstring(interval_picture(0.2, 0.5, 0.7))
    band = root.find("line[@class='band']")
    (dot,) = dots(interval_picture(0.2, 0.5, 0.7))
    assert float(band.get("x1")) < dot[0] < float(band.get("x2"))


def test_bars_are_as_high_as_their_counts():
    root = ET.fromstring(residuals_picture([-1, 0, 1, 2], [2, 4, 0]))
    heights = [float(each.get("height")) for each in root.iter("rect")]
    assert len(heights) == 2
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.02)


def test_a_long_course_is_thinned_and_keeps_its_ends():
    entries = [{"step": n, "loss": 1.0} for n in range(1, 10_001)]
    for line in ET.fromstring(course_picture("loss", entries, "loss", smoothed=True)).iter(
        "polyline"
    ):
        points = line.get("points").split()
        assert len(points) <= 400
        frame = Frame((0, 10_000), (0, 1))
        assert float(points[-1].split(",")[0]) == pytest.approx(frame.at_x(10_000), abs=0.1)


def test_one_step_can_be_drawn():
    ET.fromstring(course_picture("loss", [{"step": 1, "loss": 0.0}], "loss"))


# --- the confusion matrix


def test_a_small_matrix_shows_its_counts():
    svg = confusion_picture(["<no>", "yes"], [[5, 1], [0, 1234]])
    root = ET.fromstring(svg)
    counts = [each.text for each in root.iter("text") if "count" in each.get("class")]
    assert counts == ["5", "1", "1,234"]
    titles = [each.find("title").text for each in root.iter("g")]
    assert titles == [
        "<no>: 5 (83.3 %) right",
        "<no>: 1 (16.7 %) taken for yes",
        "yes: 1,234 (100.0 %) right",
    ]


def test_many_classes_are_a_map_with_every_name():
    names = [f"{'a_very_long_name_of_a_class_' * (at % 2)}{at}" for at in range(77)]
    matrix = [[40 if row == column else 0 for column in range(77)] for row in range(77)]
    matrix[3][4] = 1
    root = ET.fromstring(confusion_picture(names, matrix))

    assert len(list(root.iter("rect"))) == 78
    texts = [each.text for each in root.iter("text")]
    assert texts.count("0") == texts.count("76") == 2
    assert max(map(len, texts)) <= 26
    assert "a_very_long_name_of_a_class_3: 1 (2.4 %) taken for 4" in [
        each.text for each in root.iter("title")
    ]
    # It fits beside the margins of the widest page.
    assert float(root.get("width")) <= 68 * 16 - 40


def test_opacity_is_the_root_of_the_share():
    root = ET.fromstring(confusion_picture(["a", "b"], [[3, 1], [0, 0]]))
    found = [float(each.get("fill-opacity")) for each in root.iter("rect")]
    assert found == pytest.approx([0.75**0.5, 0.5], abs=0.01)
    assert re.fullmatch(r"[\d. ]+", root.get("viewBox"))
