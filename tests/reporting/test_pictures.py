"""The pictures of a report: each figure has its place."""

import pytest
from tests.reporting.trees import checked, found, number, words

from tidybert.reporting import pictures
from tidybert.reporting.drawing import Frame


def dots(root):
    return [(number(each, "cx"), number(each, "cy")) for each in found(root, "circle")]


def test_perfect_calibration_lies_on_the_diagonal():
    bins = [
        {"confidence": x, "accuracy": x, "count": 5, "low": x - 0.1, "high": x + 0.1}
        for x in (0.3, 0.6, 0.9)
    ]
    frame = Frame((0, 1), (0, 1))
    expected = [(frame.at_x(x), frame.at_y(x)) for x in (0.3, 0.6, 0.9)]

    for place, wanted in zip(dots(checked(pictures.calibration(bins))), expected, strict=True):
        assert place == pytest.approx(wanted, abs=0.01)


def test_bins_of_few_examples_are_faint_and_not_joined():
    bins = [
        {"confidence": x, "accuracy": x, "count": count, "low": x - 0.1, "high": x + 0.1}
        for x, count in ((0.2, 10), (0.4, 9), (0.6, 30), (0.8, 1))
    ]
    root = checked(pictures.calibration(bins))
    (line,) = found(root, "polyline", class_="thin")
    frame = Frame((0, 1), (0, 1))

    joined = [tuple(map(float, each.split(","))) for each in line.get("points").split()]
    assert joined == [pytest.approx((frame.at_x(x), frame.at_y(x)), abs=0.06) for x in (0.2, 0.6)]
    kinds = [each.get("class") for each in found(root, "circle")]
    assert kinds == ["dot", "dot faint", "dot", "dot faint"]
    assert len(found(root, "line", class_="faint")) == 2


@pytest.mark.parametrize(
    ("given", "middle"),
    [((0.25, 0.5, 0.75), 0.5), ((-0.5, 0.0, 0.5, 0.0, -1), 0.5), ((0.0, 1.0, 1.0, 0.25), 1.0)],
)
def test_an_interval_has_its_place_on_the_scale(given, middle):
    root = checked(pictures.interval(*given))
    (axis,), (band,) = found(root, "line", class_="axis"), found(root, "line", class_="band")
    ((x, _),) = dots(root)
    start, end = number(axis, "x1"), number(axis, "x2")

    assert (x - start) / (end - start) == pytest.approx(middle, abs=0.01)
    assert number(band, "x1") <= x <= number(band, "x2")
    for mark in found(root, "line", class_="whisker"):
        least = given[4] if len(given) > 4 else 0
        share = (given[3] - least) / (1 - least)
        assert (number(mark, "x1") - start) / (end - start) == pytest.approx(share, abs=0.01)


def test_bars_are_as_high_as_their_counts():
    boxes = found(checked(pictures.residuals([-1, 0, 1, 2], [2, 4, 0])), "rect")
    heights = [number(each, "height") for each in boxes]
    assert len(heights) == 2
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.02)


def test_a_long_course_is_thinned_and_keeps_its_ends():
    entries = [{"step": n, "loss": 1.0} for n in range(1, 10_001)]
    drawn = found(checked(pictures.course("loss", entries, "loss", smoothed=True)), "polyline")
    assert len(drawn) == 2
    for line in drawn:
        points = line.get("points").split()
        assert len(points) <= 400
        frame = Frame((0, 10_000), (0, 1))
        assert float(points[-1].split(",")[0]) == pytest.approx(frame.at_x(10_000), abs=0.1)


def test_one_step_can_be_drawn():
    checked(pictures.course("loss", [{"step": 1, "loss": 0.0}], "loss"))


def test_a_small_matrix_shows_its_counts():
    root = checked(pictures.confusion(["<no>", "yes"], [[5, 1], [0, 1234]]))

    assert words(root, "count") == ["5", "1", "1,234"]
    assert [each.find("title").text for each in found(root, "g")] == [
        "<no>: 5 (83.3 %) right",
        "<no>: 1 (16.7 %) taken for yes",
        "yes: 1,234 (100.0 %) right",
    ]
    # The opacity is the root of the share.
    opacity = [number(each, "fill-opacity") for each in found(root, "rect")]
    assert opacity == pytest.approx([(5 / 6) ** 0.5, (1 / 6) ** 0.5, 1], abs=0.01)


def test_many_classes_are_a_map_with_every_name():
    names = [f"{'a_very_long_name_of_a_class_' * (at % 2)}{at}" for at in range(77)]
    matrix = [[40 if row == column else 0 for column in range(77)] for row in range(77)]
    matrix[3][4] = 1
    root = checked(pictures.confusion(names, matrix))

    assert len(found(root, "rect")) == 78
    texts = words(root)
    assert texts.count("0") == texts.count("76") == 2
    assert max(map(len, texts)) <= 26
    assert "a_very_long_name_of_a_class_3: 1 (2.4 %) taken for 4" in [
        each.text for each in found(root, "title")
    ]
    # It fits beside the margins of the widest page.
    assert number(root, "width") <= 68 * 16 - 40


def test_a_course_of_step_0_alone_is_drawn() -> None:
    drawn = pictures.course("accuracy", [{"step": 0, "accuracy": 0.5}], "accuracy", dots=True)

    assert "step 0: 0.5" in drawn
    assert "NaN" not in drawn
