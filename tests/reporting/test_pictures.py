"""The pictures of a report: each figure has its place."""

import re
import xml.etree.ElementTree as ET

import pytest

from tidybert.reporting import pictures
from tidybert.reporting.drawing import Frame


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

    for found, place in zip(dots(pictures.calibration(bins)), expected, strict=True):
        assert found == pytest.approx(place, abs=0.01)


def test_an_interval_holds_its_value():
    root = ET.fromstring(pictures.interval(0.2, 0.5, 0.7))
    band = root.find("line[@class='band']")
    (dot,) = dots(pictures.interval(0.2, 0.5, 0.7))
    assert float(band.get("x1")) < dot[0] < float(band.get("x2"))


def test_a_correlation_is_drawn_from_minus_1_to_1_beside_its_baseline():
    ((x, _),) = dots(pictures.interval(-0.5, 0.0, 0.5, 0.0, -1))
    root = ET.fromstring(pictures.interval(-0.5, 0.0, 0.5, 0.0, -1))
    axis, mark = root.find("line[@class='axis']"), root.find("line[@class='whisker']")

    assert float(axis.get("x1")) < x == float(mark.get("x1")) < float(axis.get("x2"))
    assert x == pytest.approx((float(axis.get("x1")) + float(axis.get("x2"))) / 2)


def test_bars_are_as_high_as_their_counts():
    root = ET.fromstring(pictures.residuals([-1, 0, 1, 2], [2, 4, 0]))
    heights = [float(each.get("height")) for each in root.iter("rect")]
    assert len(heights) == 2
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.02)


def test_a_long_course_is_thinned_and_keeps_its_ends():
    entries = [{"step": n, "loss": 1.0} for n in range(1, 10_001)]
    for line in ET.fromstring(pictures.course("loss", entries, "loss", smoothed=True)).iter(
        "polyline"
    ):
        points = line.get("points").split()
        assert len(points) <= 400
        frame = Frame((0, 10_000), (0, 1))
        assert float(points[-1].split(",")[0]) == pytest.approx(frame.at_x(10_000), abs=0.1)


def test_one_step_can_be_drawn():
    ET.fromstring(pictures.course("loss", [{"step": 1, "loss": 0.0}], "loss"))


def test_a_small_matrix_shows_its_counts():
    svg = pictures.confusion(["<no>", "yes"], [[5, 1], [0, 1234]])
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
    root = ET.fromstring(pictures.confusion(names, matrix))

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
    root = ET.fromstring(pictures.confusion(["a", "b"], [[3, 1], [0, 0]]))
    found = [float(each.get("fill-opacity")) for each in root.iter("rect")]
    assert found == pytest.approx([0.75**0.5, 0.5], abs=0.01)
    assert re.fullmatch(r"[\d. ]+", root.get("viewBox"))
