"""Axes: their numbers are round and lie within, places follow the ranges."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.reporting.drawing import (
    Frame,
    around,
    extremes,
    picture,
    short,
    smooth_course,
    ticks,
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


# --- courses over steps


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=900))
def test_extremes_keep_every_jump(values: list[float]) -> None:
    points = list(enumerate(values))
    kept = extremes([(float(x), y) for x, y in points])

    assert len(kept) <= 402
    assert kept == sorted(kept)
    assert max(y for _, y in kept) == max(values)
    assert min(y for _, y in kept) == min(values)


def test_a_smooth_course_follows_a_steep_beginning() -> None:
    points = [(float(n), 100.0 / n) for n in range(1, 201)]
    smooth = smooth_course(points)

    assert smooth[0] == points[0]
    # The second value and one on each side.
    assert smooth[1][1] == pytest.approx((100 + 50 + 100 / 3) / 3)
    # Five values on each side, and none after the last.
    assert smooth[100][1] == pytest.approx(sum(100 / n for n in range(96, 107)) / 11)
    assert smooth[-1][1] == pytest.approx(sum(100 / n for n in range(195, 201)) / 6)
